#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Step soak: the latency class for many minutes beside batch work that never ends: its p99 and the server's memory must not
grow, and a burst of ten times as much batch work for 2 s must not move its p99.

One server; `sluice load` in turns: some steady parts, then a burst. A trend is judged by Kendall's rank correlation (z beyond 3
is one) and by its size, Theil and Sen's slope over the whole time: p99 may not grow by more than 10 %, resident memory, of its
second half, by no more than 2 %. A trend must be both to fail: what is significant may be small, and what is large, chance.
"""
import itertools
import math
import statistics
import time

import machine as machines

LEAST_Z = 3
MOST_P99_GROWTH, MOST_MEMORY_GROWTH, MOST_BURST = 0.10, 0.02, 1.10
BURST_SECONDS, BURST_FACTOR = 2, 10


def slope(times, values):
    """Theil and Sen: the middle of the slopes of all pairs."""
    return statistics.median((b - a) / (t - s) for (s, a), (t, b) in itertools.combinations(zip(times, values), 2) if t > s)


def kendall_z(values):
    """Of a trend in time, normal under none; without correction for ties, which makes it smaller only."""
    count = len(values)
    signs = sum((b > a) - (b < a) for a, b in itertools.combinations(values, 2))
    return signs / math.sqrt(count * (count - 1) * (2 * count + 5) / 18)


class Trend:
    def __init__(self, what, times, values, most):
        self.what, self.most, self.count = what, most, len(values)
        self.z = kendall_z(values)
        self.per_hour = slope(times, values) * 3600 / statistics.median(values)
        self.growth = self.per_hour / 3600 * (times[-1] - times[0])
        self.middle = statistics.median(values)
        self.within = not (self.z > LEAST_Z and self.growth > most)

    def cells(self):
        return (self.what, self.count, f"{self.middle:.3f}", f"{100 * self.growth:.1f}", f"{100 * self.per_hour:.1f}",
                f"{self.z:.1f}", f"{100 * self.most:.0f}", "within" if self.within else "GROWS")


def resident_mib(server):
    with open(f"/proc/{server.process.pid}/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS"))


class Soak:
    def __init__(self, machine, server, arguments):
        self.machine, self.server, self.arguments = machine, server, arguments
        self.begin = time.monotonic()
        self.steady, self.bursts, self.errors, self.requests = [], [], 0, 0  # (seconds, p99 ms, MiB)

    def elapsed(self):
        return time.monotonic() - self.begin

    def part(self, seconds, concurrency):
        arguments = self.arguments
        streams = [f"name=latency,class=latency,model={arguments.latency},rate={arguments.rate}",
                   f"name=neighbour,class=batch,model={arguments.neighbour},concurrency={concurrency},batch={arguments.batch}"]
        document = self.machine.load(self.server.grpc, streams, ["mixed"], seconds, 0.2)
        streams = {stream["stream"]: stream for stream in document["phases"][0]["streams"]}
        self.errors += sum(sum(stream["errors"].values()) for stream in streams.values())
        self.requests += streams["latency"]["server"]["total"]["n"]
        return self.elapsed(), streams["latency"]["server"]["total"]["p99_ms"], resident_mib(self.server)

    def run(self):
        arguments = self.arguments
        while not self.steady or self.elapsed() < arguments.minutes * 60:
            for _ in range(arguments.steady_parts):
                self.steady.append(self.part(arguments.seconds, arguments.concurrency))
            self.bursts.append(self.part(BURST_SECONDS, BURST_FACTOR * arguments.concurrency))
            at, p99, memory = self.steady[-1]
            print(f"{at / 60:6.1f} of {arguments.minutes:g} min  p99 {p99:.3f} ms, in the burst {self.bursts[-1][1]:.3f} ms, "
                  f"resident {memory:.1f} MiB", flush=True)

    def report(self):
        """(passed, summary, document)."""
        times, p99s, memory = map(list, zip(*self.steady))
        half = len(memory) // 2
        trends = [Trend("p99, ms", times, p99s, MOST_P99_GROWTH),
                  Trend("resident, MiB, second half", times[half:], memory[half:], MOST_MEMORY_GROWTH)]
        print(machines.table(("trend", "n", "middle", "growth %", "% an hour", "z", "limit %", ""),
                             [trend.cells() for trend in trends]))
        burst = statistics.median(p99 for _, p99, _ in self.bursts) / statistics.median(p99s)
        said = (f"{self.elapsed() / 60:.1f} min, {self.requests} latency requests, {self.errors} errors; p99 "
                f"{100 * trends[0].growth:+.1f} %, memory {100 * trends[1].growth:+.1f} %; p99 in {len(self.bursts)} bursts over "
                f"steady {burst:.3f} (limit {MOST_BURST})")
        judged = self.machine.cuda  # On a CPU a burst's threads take the cores that answer.
        passed = all(trend.within for trend in trends) and self.errors == 0 and (burst <= MOST_BURST or not judged)
        return passed, said, {"steady": self.steady, "bursts": self.bursts, "errors": self.errors, "burst_ratio": burst,
                              "trends": [vars(trend) for trend in trends]}


def parse_flags():
    parser = machines.step_parser(__doc__)
    parser.add_argument("--minutes", type=float, default=8, help="of the whole (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=8, help="of each steady part (default: %(default)s)")
    parser.add_argument("--steady-parts", type=int, default=3, help="between two bursts (default: %(default)s)")
    parser.add_argument("--latency", default="mlp24", help="latency model (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=300, help="its requests a second (default: %(default)s)")
    parser.add_argument("--neighbour", default="gemm", help="model of the batch work (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=768, help="rows of its requests (default: %(default)s)")
    parser.add_argument("--concurrency", type=int, default=4, help="its requests in flight (default: %(default)s)")
    return parser.parse_args()


def main():
    arguments = parse_flags()
    machine = machines.from_flags(arguments)
    server = machine.start_server()
    try:
        soak = Soak(machine, server, arguments)
        soak.run()
        passed, said, document = soak.report()
    finally:
        code = server.stop()
    machines.finish(machine, "soak", passed and code == 0, f"{said}; the server ended with {code}", document)


if __name__ == "__main__":
    main()
