#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Step trap: a kernel that kills the device under a running server (tests/gpu/trap). Readiness must go off within 1 s,
clients must be told UNAVAILABLE, and the process must end with its own exit code, so that a supervisor restarts it."""
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request

import machine as machines

EXIT_DEVICE_LOST = 3
READY_OFF_SECONDS = 1.0


def ready(server):
    try:
        return urllib.request.urlopen(server.metrics + "/readyz", timeout=0.5).status == 200
    except (urllib.error.URLError, OSError):
        return False


def send(machine, server, answers):
    done = subprocess.run([str(machine.program("sluice")), "infer", "--url", server.grpc, "--model", "filetype",
                           "--input", "bytes=random", "--deadline-ms", "5000", "--json"],
                          env=machine.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    code = re.search(r"\b(UNAVAILABLE|DEADLINE_EXCEEDED|INTERNAL|CANCELLED|UNKNOWN)\b", done.stdout)
    answers.append("OK" if done.returncode == 0 else code.group(1) if code else done.stdout[-200:])


def main():
    machine = machines.from_flags(machines.step_parser(__doc__).parse_args())
    trigger = machine.work / "trap-now"
    server = machine.start_server("--exit-timeout-secs", "5", environment={
        "CUDA_INJECTION64_PATH": str(machine.program("libsluice_cuda_trap.so")), "SLUICE_TRAP_FILE": str(trigger)})
    before, after = [], []
    send(machine, server, before)
    healthy = before == ["OK"] and ready(server)
    # Some are on the device when it dies, some come right after.
    threads = [threading.Thread(target=send, args=(machine, server, after)) for _ in range(8)]
    begin = time.monotonic()
    trigger.touch()
    for thread in threads:
        thread.start()
    off_after = None
    while time.monotonic() - begin < 10:
        if not ready(server):
            off_after = time.monotonic() - begin
            break
        time.sleep(0.005)
    for thread in threads:
        thread.join()
    try:
        code = server.process.wait(30)
    except subprocess.TimeoutExpired:
        server.process.kill()
        code = "still running after 30 s"
    print(server.log()[-3000:])
    # A request that was answered before the kernel ran is no failure.
    passed = (healthy and off_after is not None and off_after <= READY_OFF_SECONDS and code == EXIT_DEVICE_LOST and
              "UNAVAILABLE" in after and set(after) <= {"UNAVAILABLE", "OK"})
    off = "never" if off_after is None else f"{1e3 * off_after:.0f} ms after the trap was set off"
    machines.finish(machine, "trap", passed,
                    f"before {before}; ready off {off}; then clients got {sorted(after)}; exit code {code}")


if __name__ == "__main__":
    main()
