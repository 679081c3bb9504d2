#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Step overhead: bench/overhead against a server with the probe models, without and with a pause between requests."""
import json
import subprocess

import machine as machines

LIMITS_US = {"p50": 40, "p99": 100}  # Of the front end at 1 KiB.


def main():
    parser = machines.step_parser(__doc__)
    parser.add_argument("--requests", type=int, default=3000, help="per payload (default: %(default)s)")
    arguments = parser.parse_args()
    machine = machines.from_flags(arguments)
    program = machine.program("overhead")
    if program is None:
        machines.finish(machine, "overhead", False, "the program overhead is not there")
    server = machine.start_server(repository=machine.repository / "probes")
    documents, failed = {}, False
    try:
        for label, pause_us, requests in (("back to back", 0, arguments.requests),
                                          ("1 ms apart", 1000, max(300, arguments.requests // 3))):
            result = machine.work / "overhead-run.json"
            command = [str(program), "--url", server.grpc, "--requests", str(requests), "--pause-us", str(pause_us),
                       "--json", str(result)]
            done = subprocess.run(command, env=machine.environment, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT)
            print(f"{label}:\n{done.stdout}", flush=True)
            failed = failed or done.returncode != 0
            documents[label] = json.loads(result.read_text()) if done.returncode == 0 else None
    finally:
        code = server.stop()
    first = (documents.get("back to back") or {"rows": []})["rows"]
    if failed or not first:
        machines.finish(machine, "overhead", False, "it could not be measured", documents)
    found = {quantile: first[0][f"front_end_{quantile}_us"] for quantile in LIMITS_US}
    passed = code == 0 and all(found[quantile] <= limit for quantile, limit in LIMITS_US.items())
    machines.finish(machine, "overhead", passed, "front end at 1 KiB: " + ", ".join(
        f"{quantile} {found[quantile]:.0f} us (limit {limit})" for quantile, limit in LIMITS_US.items()), documents)


if __name__ == "__main__":
    main()
