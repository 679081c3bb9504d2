#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Step copies: a 602,112-byte latency input (resnet50, one row) while batch copies go flat out (model copy)."""
import machine as machines

LIMIT_US = 70


def main():
    parser = machines.step_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rate", type=float, default=100, help="latency requests per second (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="rows of a copy request (default: %(default)s)")
    arguments = parser.parse_args()
    machine = machines.from_flags(arguments)
    server = machine.start_server()
    try:
        streams = [f"name=latency,class=latency,model=resnet50,rate={arguments.rate}",
                   f"name=copies,class=batch,model=copy,concurrency=4,batch={arguments.batch}"]
        document = machine.load(server.grpc, streams, ["alone", "mixed", "batch-alone"], arguments.seconds, 1)
    finally:
        code = server.stop()
    rows, p99 = [], None
    for phase in document["phases"]:
        for stream in phase["streams"]:
            times = stream["server"]
            if times["h2d"]["n"] == 0:
                continue
            micro = [f"{1e3 * times[stage][quantile]:.0f}" for stage, quantile in
                     (("h2d", "p50_ms"), ("h2d", "p99_ms"), ("h2d", "max_ms"), ("total", "p99_ms"))]
            gigabytes = stream["rows_per_second"] * 602112 / 1e9
            rows.append((phase["phase"], stream["stream"], times["h2d"]["n"], *micro, f"{gigabytes:.2f}"))
            if (phase["phase"], stream["stream"]) == ("mixed", "latency"):
                p99 = 1e3 * times["h2d"]["p99_ms"]
    print(machines.table(("phase", "stream", "n", "h2d p50 us", "h2d p99 us", "h2d max us", "server p99 us", "GB/s"), rows))
    passed = p99 is not None and p99 <= LIMIT_US and code == 0
    machines.finish(machine, "copies", passed, f"h2d p99 beside batch copies {p99} us (limit {LIMIT_US})", document)


if __name__ == "__main__":
    main()
