#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Step control: what a latency model feels while another model is loaded and unloaded in turns.

Phases without and with loads alternate on one server, each pair with one schedule of arrivals. R99 is the middle p99 of the
phases beside loads over the middle p99 of the others (client times), and no request may fail. The server's own times say
where it goes: the device's stages, and total with what the request waited for threads.
"""
import statistics
import threading

import machine as machines

R99_LIMIT = 1.20
STAGES = ("total", "queue", "copy_in", "gpu_wait", "compute", "device")


class Turns:
    """Loads and unloads `model` of a server until it is told to end."""

    def __init__(self, machine, server, model):
        self.machine, self.server, self.model = machine, server, model
        self.over = threading.Event()
        self.loads = 0
        self.failure = None
        self.thread = threading.Thread(target=self.run)

    def run(self):
        try:
            while not self.over.is_set():
                for act in ("--load", "--unload"):
                    self.machine.sluice("models", "--url", self.server.grpc, "--deadline-ms", 120000, act, self.model)
                self.loads += 1
        except Exception as error:  # handed to the step's own thread
            self.failure = error

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        if self.failure:
            raise self.failure


def main():
    parser = machines.step_parser(__doc__)
    parser.add_argument("--model", default="filetype", help="the latency model (default: %(default)s)")
    parser.add_argument("--other", default="resnet50", help="loaded and unloaded (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=200, help="latency requests per second (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of phases (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=4, help="measured time of a phase (default: %(default)s)")
    arguments = parser.parse_args()
    machine = machines.from_flags(arguments)
    server = machine.start_server("--model-control-mode=explicit", "--load-model", arguments.model)
    stream = [f"name=latency,class=latency,model={arguments.model},rate={arguments.rate}"]

    def phase(seed):
        document = machine.load(server.grpc, stream, ["alone"], arguments.seconds, 0.5, "--seed", seed)
        return document["phases"][0]["streams"][0]

    quiet, busy, loads = [], [], 0
    try:
        for round_index in range(arguments.rounds):
            quiet.append(phase(round_index))
            with Turns(machine, server, arguments.other) as turns:
                busy.append(phase(round_index))
            loads += turns.loads
    finally:
        code = server.stop()
    errors = sum(sum(part["errors"].values()) for part in quiet + busy)

    def p99(parts):
        return statistics.median(part["latency"]["p99_ms"] for part in parts)

    def stage_p99(parts, stage):
        return f"{statistics.median(part['server'][stage].get('p99_ms', 0) for part in parts):.3f}"
    ratio = p99(busy) / p99(quiet)
    rows = [(name, sum(part["latency"]["n"] for part in parts), f"{statistics.median(part['latency']['p50_ms'] for part in parts):.3f}",
             f"{p99(parts):.3f}", f"{max(part['latency']['max_ms'] for part in parts):.3f}")
            for name, parts in (("alone", quiet), ("beside loads", busy))]
    print(machines.table(("phase", "n", "p50 ms", "p99 ms", "max ms"), rows))
    print(machines.table(("p99 ms in the server", *STAGES),
                         [(name, *(stage_p99(parts, stage) for stage in STAGES))
                          for name, parts in (("alone", quiet), ("beside loads", busy))]))
    passed = errors == 0 and loads > 0 and ratio <= R99_LIMIT and code == 0
    machines.finish(machine, "control", passed, f"R99 {ratio:.3f} (limit {R99_LIMIT}) beside {loads} loads of {arguments.other}, "
                    f"{errors} errors", {"quiet": quiet, "busy": busy, "loads": loads, "ratio": ratio, "errors": errors})


if __name__ == "__main__":
    main()
