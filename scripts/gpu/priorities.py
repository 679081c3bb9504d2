#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Step priorities: what the streams' priorities read back as, from the conformance suite and from the server's own log."""
import re
import subprocess

import machine as machines


def main():
    machine = machines.from_flags(machines.step_parser(__doc__).parse_args())
    passed, summary = True, []
    suite = machine.program("conformance_cuda")
    if machine.cuda and suite:
        done = subprocess.run([str(suite), "--gtest_filter=*Priorit*:*Clock*"], env=machine.environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        print(done.stdout)
        passed = done.returncode == 0
        summary.append("suite " + ("passed" if passed else "FAILED"))
    server = machine.start_server()
    code = server.stop()
    log = server.log()
    lines = [line for line in log.splitlines() if "priorit" in line.lower() and f"device={machine.devices.split(',')[0]}" in line]
    print("\n".join(lines) or "the server's log says nothing of priorities")
    found = dict(re.findall(r"class=(\w+) .*?priority=(-?\d+)", "\n".join(lines)))
    summary.append(", ".join(f"{name} {value}" for name, value in found.items()) or "no word in the server's log")
    ordered = {"latency", "standard", "batch"} <= set(found) and int(found["latency"]) < min(
        int(found["standard"]), int(found["batch"]))
    machines.finish(machine, "priorities", passed and code == 0 and ordered, "; ".join(summary))


if __name__ == "__main__":
    main()
