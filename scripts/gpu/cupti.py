#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Step cupti: a server under the watcher (tests/gpu/cupti) answers requests of all classes; nothing of the process may use
the legacy default stream, and no request thread may allocate. What the watcher must catch is planted in another process."""
import json
import subprocess
import time

import machine as machines

STREAMS = ("class=latency,model=filetype,concurrency=2", "class=latency,model=mlp24,concurrency=1",
           "class=standard,model=filetype,concurrency=2,batch=3", "class=standard,model=mlp24,concurrency=1",
           "class=batch,model=gemm,concurrency=2,batch=64", "class=batch,model=resnet50,concurrency=1,batch=2")


def watcher_environment(machine, watcher, name):
    out, mark = machine.work / f"cupti-{name}.json", machine.work / f"cupti-{name}.mark"
    return out, mark, {"CUDA_INJECTION64_PATH": str(watcher), "SLUICE_CUPTI_OUT": str(out), "SLUICE_CUPTI_MARK": str(mark)}


def read(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def total(counts):
    return sum(counts.values())


def self_check(machine, watcher, what):
    """(uses of the legacy stream, allocations) after the mark."""
    out, _, environment = watcher_environment(machine, watcher, what)
    subprocess.run([str(machine.program("cupti_self_check")), what], check=True, timeout=60,
                   env=dict(machine.environment, **environment))
    after = read(out)["after"]
    print(f"{what}: {after}")
    return total(after["legacy_stream"]), total(after["allocations_on_request_threads"])


def serve(machine, watcher, requests):
    """(requests answered, errors, the watcher's counts) of a watched server."""
    out, mark, environment = watcher_environment(machine, watcher, "server")
    server = machine.start_server(environment=environment)
    try:
        mark.touch()
        deadline = time.monotonic() + 10
        while not (read(out) or {}).get("marked"):
            if time.monotonic() > deadline:
                raise RuntimeError("the watcher does not count: was it loaded?\n" + server.log()[-2000:])
            time.sleep(0.05)
        each = -(-requests // len(STREAMS))
        document = machine.load(server.grpc, [f"{stream},requests={each}" for stream in STREAMS], ["mixed"], 90, 0)
    finally:
        code = server.stop()
    answered = sum(stream["requests"] for phase in document["phases"] for stream in phase["streams"])
    errors = sum(sum(stream["errors"].values()) for phase in document["phases"] for stream in phase["streams"])
    print(f"the server ended with {code}")
    return answered, errors + (code != 0), read(out)


def main():
    parser = machines.step_parser(__doc__)
    parser.add_argument("--requests", type=int, default=10_200, help="of all classes together (default: %(default)s)")
    arguments = parser.parse_args()
    machine = machines.from_flags(arguments)
    watcher = machine.program("libsluice_cupti_watch.so")
    if not machine.cuda or watcher is None or machine.program("cupti_self_check") is None:
        print("needs a CUDA device and the watcher")
        machines.finish(machine, "cupti", False, "the watcher is not there")
    clean, planted = self_check(machine, watcher, "clean"), self_check(machine, watcher, "planted")
    answered, errors, counts = serve(machine, watcher, arguments.requests)
    print("before READY:", json.dumps(counts["before"]))
    print("after READY:", json.dumps(counts["after"]))
    legacy, allocations = (total(counts["after"][key]) for key in ("legacy_stream", "allocations_on_request_threads"))
    # A call can be seen twice, as the runtime's and as the driver's below it.
    caught = clean == (0, 0) and planted[0] >= 1 and planted[1] >= 1
    passed = (caught and errors == 0 and answered >= 10_000 and counts["after"]["calls"] > 0 and legacy == 0 and
              allocations == 0)
    machines.finish(machine, "cupti", passed,
                    f"{answered} requests, {errors} errors: {legacy} uses of the legacy default stream (before READY "
                    f"{total(counts['before']['legacy_stream'])}), {allocations} allocations on request threads; planted "
                    f"{'caught' if caught else 'NOT caught'} {planted}, clean {clean}", {"counts": counts})


if __name__ == "__main__":
    main()
