#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Step isolation: bench/isolation, the cells of the promise, and the same experiment in PyTorch beside them.

A process for each cell, so that one that hangs or dies leaves the others. --results FILE keeps everything measured; given
again, its rounds are pooled with the new ones, so that a ladder may be spread over several runs.
"""
import json
import pathlib
import subprocess
import sys
import time

import machine as machines

HERE = pathlib.Path(__file__).resolve().parent
RESNET = "latency=resnet50_b1"
GEMM = "neighbour=gemm:768,in-flight=6"
SHORT = "rounds=4,alone=1.5,mixed=3"
# Name: (cell of the program, seconds it may take with loading its models). The most important first: a limit cuts the end.
# "bare" is no cell, but a model against a loop without the server.
CELLS = {
    "ladder": (f"{RESNET},{GEMM},load=0.2,rungs=ladder,rounds=4,alone=1,mixed=2", 180),
    "20": (f"{RESNET},{GEMM},load=0.2,rounds=8,alone=2.5,mixed=5,r99=1.03,w=0.97,r999=1.15,added-wait-us=60", 150),
    "bare": ("resnet50_b1", 30),
    "50": (f"{RESNET},{GEMM},load=0.5,{SHORT},r99=1.05,w=0.95", 70),
    "standard": (f"{RESNET},{GEMM},class=standard,load=0.2,{SHORT},r99=1.05", 70),
    "copies": (f"{RESNET},neighbour=copy:64,in-flight=6,load=0.2,{SHORT},r99=1.05,h2d-us=65", 70),
    "long": (f"{RESNET},neighbour=long:4096,in-flight=3,load=0.2,{SHORT},r99=1.10", 90),
    "long-uncut": (f"{RESNET},neighbour=long:4096,in-flight=3,uncut=true,load=0.2,rounds=2,alone=1.5,mixed=3", 60),
    "20/s": (f"{RESNET},{GEMM},rate=20,rounds=4,alone=4,mixed=8,r99=1.05", 90),
    "5/s": (f"{RESNET},{GEMM},rate=5,rounds=4,alone=6,mixed=12,r99=1.05", 125),
    "memory": (f"{RESNET},neighbour=mem:16,in-flight=4,load=0.2,{SHORT}", 70),
    "bursty": (f"{RESNET},{GEMM},load=0.2,arrivals=bursty,{SHORT}", 70),
    "10": (f"{RESNET},{GEMM},load=0.1,{SHORT}", 70),
    "mlp24": (f"latency=mlp24,{GEMM},load=0.2,rungs=priority+product,{SHORT}", 80),
    "bert": (f"latency=bert_b1,{GEMM},load=0.2,rungs=priority+product,{SHORT}", 80),
    "ablations": (f"{RESNET},{GEMM},load=0.2,rungs=no-units+no-window+no-gate,rounds=3,alone=1,mixed=2", 90),
}
DEFAULT = ("ladder", "20", "bare", "50", "standard", "copies", "long", "long-uncut", "20/s", "5/s")
LEAST_SECONDS = 15


def parse_flags():
    parser = machines.step_parser(__doc__)
    parser.add_argument("--cells", default=",".join(DEFAULT),
                        help=f"comma-separated, of {', '.join(CELLS)} (default: %(default)s)")
    parser.add_argument("--torch", default="", help="modes of isolation_torch.py beside them, as streams,processes")
    parser.add_argument("--results", type=pathlib.Path, help="keep all samples here, and continue from what is there")
    parser.add_argument("--limit-seconds", type=float, default=560, help="of the whole step (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="for trying the step on a small machine: nothing is judged")
    parser.add_argument("--bench-flags", default="", help="more flags for the program, separated by spaces")
    arguments = parser.parse_args()
    arguments.cells = list(filter(None, arguments.cells.split(",")))
    unknown = [cell for cell in arguments.cells if cell not in CELLS]
    if unknown:
        parser.error(f"unknown cells: {', '.join(unknown)}; known are {', '.join(CELLS)}")
    return arguments


def verdict(report):
    over = [f"{target['what']} {target['value']:.3f}" for target in report["targets"] if not target["within"]]
    return "; ".join(over) if over else "within" if report["within"] else "not every request was answered"


def stop_text(stopped, limit):
    output = stopped.stdout or ""
    return (output.decode(errors="replace") if isinstance(output, bytes) else output) + f"stopped after {limit:.0f} s"


class Isolation:
    def __init__(self, machine, arguments):
        self.machine, self.arguments = machine, arguments
        self.end = time.monotonic() + arguments.limit_seconds
        self.results = arguments.results or machine.work / "isolation-results.json"
        if not arguments.results:
            self.results.unlink(missing_ok=True)
        self.cells = json.loads(self.results.read_text())["cells"] if self.results.exists() else []

    def left(self):
        return self.end - time.monotonic()

    def run_cell(self, name):
        """What is to be said of the cell: within, or why not."""
        text, seconds = CELLS[name]
        limit = min(seconds, self.left())
        if limit < LEAST_SECONDS:
            return "no time was left"
        result, log = self.machine.work / "isolation-cell.json", self.machine.work / f"isolation-{name.replace('/', '-')}.log"
        result.unlink(missing_ok=True)
        command = [str(self.machine.program("isolation")), "--models", str(self.machine.repository / "isolation"),
                   "--device", self.machine.devices.split(",")[0], "--bare" if name == "bare" else "--cell", text,
                   "--json", str(result),
                   "--limit-seconds", f"{limit - 12:.0f}", *self.machine.module_flags()]
        if self.results.exists():
            command += ["--continue", str(self.results)]
        command += (["--quick"] if self.arguments.quick else []) + self.arguments.bench_flags.split()
        print(f"-- {name}", flush=True)
        try:
            with open(log, "w") as errors:
                done = subprocess.run(command, env=self.machine.environment, text=True, stdout=subprocess.PIPE, stderr=errors,
                                      timeout=limit)
        except subprocess.TimeoutExpired as stopped:
            print(stop_text(stopped, limit), *log.read_text(errors="replace").splitlines()[-10:], sep="\n", flush=True)
            return f"stopped after {limit:.0f} s"
        print(done.stdout, flush=True)
        if not result.exists():
            print(*log.read_text(errors="replace").splitlines()[-10:], sep="\n", flush=True)
            return f"exit {done.returncode}"
        document = json.loads(result.read_text())
        cell = (document["cells"] or document["bare"])[0]
        if "error" in cell:
            print(cell["error"], flush=True)
            return cell["error"]
        if name == "bare":
            return verdict(cell)
        # The program has pooled what was there before.
        self.cells = [other for other in self.cells if other["key"] != cell["key"]] + [cell]
        self.results.write_text(json.dumps({**document, "cells": self.cells}))
        return verdict(cell["report"])

    def run_torch(self):
        limit = self.left()
        if limit < LEAST_SECONDS:
            return "no time was left"
        result = self.machine.work / "isolation-torch.json"
        command = [sys.executable, str(HERE / "isolation_torch.py"), "--mode", self.arguments.torch, "--device",
                   "cuda" if self.machine.cuda else "cpu", "--json", str(result), "--limit-seconds", f"{limit / 2:.0f}",
                   *(["--small"] if self.arguments.quick else [])]
        print("-- PyTorch", flush=True)
        try:
            done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit)
        except subprocess.TimeoutExpired as stopped:
            print(stop_text(stopped, limit), flush=True)
            return f"stopped after {limit:.0f} s"
        print(done.stdout, flush=True)
        return "printed" if done.returncode == 0 else f"exit {done.returncode}"


def main():
    arguments = parse_flags()
    machine = machines.from_flags(arguments)
    if machine.program("isolation") is None:
        machines.finish(machine, "isolation", False, "the program isolation is not there")
    isolation = Isolation(machine, arguments)
    said = {name: isolation.run_cell(name) for name in arguments.cells}
    if arguments.torch:
        said["PyTorch"] = isolation.run_torch()
    print(machines.table(("cell", ""), said.items()))
    # Without the samples, which --results keeps.
    reports = [{"cell": cell["key"], **cell["report"]} for cell in isolation.cells]
    machines.finish(machine, "isolation", all(word in ("within", "printed") for word in said.values()),
                    "; ".join(f"{name}: {word}" for name, word in said.items()), {"said": said, "cells": reports})


if __name__ == "__main__":
    main()
