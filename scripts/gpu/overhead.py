#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Step overhead: bench/overhead against a server with the probe models: one request at a time, without and with a pause
between requests, and many connections at once. With --triton NVIDIA Triton's server is called in turn with it.
"""
import contextlib
import json
import pathlib
import subprocess
import sys

import machine as machines

sys.path.insert(0, str(machines.ROOT / "bench" / "host"))

LIMITS_US = {"p50": 40, "p99": 100}  # Of the front end at 1 KiB.
TARGETS_US = {"p50": 25, "p99": 60}
COPIES_TARGET, THROUGHPUT_TARGET = 1.5, 0.8


def triton_beside(arguments, server):
    """A context that gives the flags of bench/overhead for Triton; none without --triton."""
    if not arguments.triton:
        return contextlib.nullcontext([])
    import triton_peer  # needs tritonclient, which nothing else of this step does
    return triton_peer.beside(pathlib.Path(arguments.triton), server.grpc, ["probe_1k", "probe_64k", "probe_600k"])


def main():
    parser = machines.step_parser(__doc__)
    parser.add_argument("--requests", type=int, default=3000, help="per payload (default: %(default)s)")
    parser.add_argument("--connections", type=int, default=64, help="of the throughput (default: %(default)s)")
    parser.add_argument("--client-threads", type=int, default=4, help="of its clients (default: %(default)s)")
    parser.add_argument("--triton", help="folder that scripts/fetch_triton.sh wrote")
    arguments = parser.parse_args()
    machine = machines.from_flags(arguments)
    # The echo must have the CPUs that the server has, and is the client's child.
    machine.server_cpus = machine.server_cpus + [cpu for cpu in machine.client_cpus if cpu not in machine.server_cpus]
    program = machine.program("overhead")
    if program is None:
        machines.finish(machine, "overhead", False, "the program overhead is not there")
    many = ["--connections", str(arguments.connections), "--client-threads", str(arguments.client_threads)]
    runs = (("back to back", arguments.requests, many), ("1 ms apart", max(300, arguments.requests // 3), ["--pause-us", "1000"]))
    server = machine.start_server(repository=machine.repository / "probes")
    documents, failed = {}, False
    try:
        with triton_beside(arguments, server) as peer:
            for label, requests, flags in runs:
                result = machine.work / "overhead-run.json"
                command = [str(program), "--url", server.grpc, "--requests", str(requests), "--json", str(result), *flags, *peer]
                done = subprocess.run(command, env=machine.environment, text=True, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT)
                print(f"{label}:\n{done.stdout}", flush=True)
                failed = failed or done.returncode != 0
                documents[label] = json.loads(result.read_text()) if done.returncode == 0 else None
    finally:
        code = server.stop()
    found = documents.get("back to back")
    if failed or not found:
        machines.finish(machine, "overhead", False, "it could not be measured", documents)
    rows = [row for row in found["rows"] if row["server"] == "sluice"]
    front = {quantile: rows[0][f"front_end_{quantile}_us"] for quantile in LIMITS_US}
    passed = code == 0 and all(front[quantile] <= limit for quantile, limit in LIMITS_US.items())
    summary = "front end at 1 KiB: " + ", ".join(f"{quantile} {front[quantile]:.0f} us (limit {limit}, target {TARGETS_US[quantile]})"
                                                 for quantile, limit in LIMITS_US.items())
    summary += f"; at 600 KB {rows[-1]['front_end_copies']:.2f} copies (target {COPIES_TARGET})"
    summary += (f"; {arguments.connections} connections {found['throughput'][0]['ratio']:.3f} of the echo's throughput "
                f"(target {THROUGHPUT_TARGET})")
    machines.finish(machine, "overhead", passed, summary, documents)


if __name__ == "__main__":
    main()
