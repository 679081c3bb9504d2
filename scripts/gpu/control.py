#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Step control: what a latency model feels while another model is loaded and unloaded in turns.

Phases without and with loads alternate on one server, each pair with one schedule of arrivals. R99 is the middle p99 of the
phases beside loads over the middle p99 of the others (client times), and no request may fail. The server's own times say
where it goes: the device's stages, and total with what the request waited for threads.
"""
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
    machines.add_phase_flags(parser, model="filetype", rate=200, rounds=5, seconds=4)
    parser.add_argument("--other", default="resnet50", help="loaded and unloaded (default: %(default)s)")
    arguments = parser.parse_args()
    machine = machines.from_flags(arguments)
    server = machine.start_server("--model-control-mode=explicit", "--load-model", arguments.model)
    quiet, busy, loads = [], [], 0
    try:
        for round_index in range(arguments.rounds):
            quiet.append(machines.latency_phase(machine, server.grpc, arguments, round_index))
            with Turns(machine, server, arguments.other) as turns:
                busy.append(machines.latency_phase(machine, server.grpc, arguments, round_index))
            loads += turns.loads
    finally:
        code = server.stop()
    errors = sum(sum(part["errors"].values()) for part in quiet + busy)
    ratio = machines.middle(busy, "latency", "p99_ms") / machines.middle(quiet, "latency", "p99_ms")
    kinds = (("alone", quiet), ("beside loads", busy))
    print(machines.table(("phase", *machines.LATENCY_COLUMNS), [machines.latency_row(*kind) for kind in kinds]))
    print(machines.table(("p99 ms in the server", *STAGES), [
        (name, *(f"{machines.middle(parts, 'server', stage, 'p99_ms'):.3f}" for stage in STAGES)) for name, parts in kinds]))
    passed = errors == 0 and loads > 0 and ratio <= R99_LIMIT and code == 0
    machines.finish(machine, "control", passed, f"R99 {ratio:.3f} (limit {R99_LIMIT}) beside {loads} loads of {arguments.other}, "
                    f"{errors} errors", {"quiet": quiet, "busy": busy, "loads": loads, "ratio": ratio, "errors": errors})


if __name__ == "__main__":
    main()
