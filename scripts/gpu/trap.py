#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Step trap: a kernel that kills the device. Readiness must go off within 1 s, every client must be told UNAVAILABLE, and
the process must end with its own exit code, so that a supervisor restarts it."""
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


def send(machine, server, model, answers):
    done = subprocess.run([str(machine.program("sluice")), "infer", "--url", server.grpc, "--model", model,
                           "--input", ("X" if model == "trap" else "bytes") + "=random", "--deadline-ms", "5000", "--json"],
                          env=machine.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    code = re.search(r"\b(UNAVAILABLE|DEADLINE_EXCEEDED|INTERNAL|CANCELLED|UNKNOWN)\b", done.stdout)
    answers.append((model, "OK" if done.returncode == 0 else code.group(1) if code else done.stdout[-200:]))


def main():
    machine = machines.from_flags(machines.step_parser(__doc__).parse_args())
    server = machine.start_server("--exit-timeout-secs", "5", repository=machine.repository / "trap")
    answers = []
    send(machine, server, "filetype", answers)
    healthy = answers == [("filetype", "OK")] and ready(server)
    threads = [threading.Thread(target=send, args=(machine, server, model, answers))
               for model in ("trap", "filetype", "filetype")]
    threads[0].start()
    begin = time.monotonic()
    time.sleep(0.01)
    for thread in threads[1:]:
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
    print(answers)
    told = [answer for model, answer in answers if model == "trap"]
    others = {answer for model, answer in answers[1:] if model != "trap"}
    # A request that was answered before the kernel ran is no failure.
    passed = (healthy and off_after is not None and off_after <= READY_OFF_SECONDS and code == EXIT_DEVICE_LOST and
              told == ["UNAVAILABLE"] and others <= {"UNAVAILABLE", "OK"})
    off = "never" if off_after is None else f"{1e3 * off_after:.0f} ms after the request was started"
    machines.finish(machine, "trap", passed, f"ready off {off}; trap told {told}, others {sorted(others)}; exit code {code}")


if __name__ == "__main__":
    main()
