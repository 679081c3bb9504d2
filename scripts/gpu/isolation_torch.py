#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""The experiment of bench/isolation in PyTorch: a latency model beside batch work on one GPU, without Sluice.

modes:
  streams    one process, two threads: latency requests on a stream of the highest priority, batches on one of the lowest
  processes  two processes, each with a CUDA context of its own, whose turns the driver decides (no MPS)
Both models are what a user of PyTorch would write: ResNet-50 of batch 1 in fp16 with the channels last, or mlp24 in fp32;
batch work in fp32 without TF32. Each request is a copy of a page-locked fp32 input (602,112 bytes for ResNet-50, converted on
the device), one CUDA graph, and a copy of the fp32 output back. The batch side keeps two batches in flight. Weights are
seeded and random, shapes are those of scripts/generate_gpu_models.sh --isolation.

Requests come by a Poisson schedule at --load, the share of the device that the latency model takes alone: the median time
on the device of single requests back to back, copies included. They are answered in order by one thread, and latency is from
the scheduled time, so that waiting in the queue counts and the sender cannot drift; answer_us in the JSON is from when the
thread took the request. What is still unanswered --drain-seconds after a phase counts with the time it has waited.
A round is four phases with one schedule: alone, mixed, batch alone, alone again (A/A). R50, R99 and R999 (from 10,000 samples
on each side on) are mixed over both alone phases, T is what batch work keeps, U the share on the device alone, W = T/(1-U).
Intervals are over rounds, drawn anew with replacement.

What the rows show is therefore PyTorch with Python around it. "late p99" is how long a request lay although nothing was in
its way: Python's own jitter. In mode streams both threads share the interpreter: what the batch thread holds of it is in the
latency too, as it would be in a server written so. Compare "late" of alone and mixed to see how much that is; mode processes
does not have it. With --device cpu streams are plain threads: that is for trying the script.

Needs torch and torchvision.
exit codes: 0 measured, 1 failed, 2 usage
"""
import argparse
import concurrent.futures
import json
import multiprocessing
import pathlib
import platform
import sys
import threading
import time

import torch

import isolation_report as report
import isolation_sides as worker
import machine as machines

MODES = {"streams": "PyTorch, two priority streams", "processes": "PyTorch, two processes"}
IN_FLIGHT = 2
CALIBRATION_REQUESTS = 500
START_SECONDS = 0.05  # From now until a phase begins, so that both sides are there.
GRACE_SECONDS = 60  # For a side's answer behind the end of its phase.
HEADER = ("row", "phase", "n", "p50 us", "p99 us", "p99.9 us", "max us", "late p99", "unanswered")
RUNG_HEADER = ("row", "rounds", "R50", "R99", "from", "to", "R999", "A/A R99", "from", "to", "T", "U", "W", "from", "to")


class Pair:
    """Both sides, each in a thread or a process of its own."""

    def __init__(self, mode, arguments):
        self.arguments = arguments
        if mode == "processes":
            context = multiprocessing.get_context("spawn")
            self.stop = context.Event()

            def executor(*initial):
                return concurrent.futures.ProcessPoolExecutor(1, context, worker.prepare, initial)
        else:
            self.stop = threading.Event()

            def executor(*initial):
                return concurrent.futures.ThreadPoolExecutor(1, "side", worker.prepare, initial)
        options = {"device": arguments.device, "small": arguments.small, "wait": arguments.wait, "stop": self.stop}
        self.executors, self.told = {}, {}
        for kind, name, rows, slots in (("latency", arguments.latency, 1, 1),
                                        ("batch", arguments.batch, arguments.batch_rows, IN_FLIGHT)):
            self.executors[kind] = executor(kind, name, rows, slots, options)
            self.told[kind] = self.executors[kind].submit(worker.told, kind).result()  # One after the other: captures.

    def calibrate(self):
        most = CALIBRATION_REQUESTS // (10 if self.arguments.small else 1)
        return self.executors["latency"].submit(worker.calibrate, most).result()

    def phase(self, schedule=None, batch=False):
        """(what the latency side found, rows a second of the batch side); None for a side that does not run."""
        arguments = self.arguments
        begin = time.monotonic() + START_SECONDS
        window = (begin + arguments.warmup, begin + arguments.warmup + arguments.seconds)
        give_up = window[1] + arguments.drain_seconds
        left = give_up + GRACE_SECONDS - time.monotonic()
        self.stop.clear()
        futures = {}
        if batch:
            futures["batch"] = self.executors["batch"].submit(worker.batch_phase, begin, window, give_up)
        try:
            found = None
            if schedule is not None:
                latency = self.executors["latency"].submit(worker.latency_phase, begin, schedule, arguments.warmup, give_up)
                found = latency.result(left)
            time.sleep(max(0, window[1] - time.monotonic()))  # The last request may be answered early.
        finally:
            self.stop.set()
        return found, futures["batch"].result(left) if batch else None

    def close(self):
        self.stop.set()
        for executor in self.executors.values():
            executor.shutdown(wait=True)


def run_round(pair, rate, seed, arguments):
    schedule = report.arrivals(rate, arguments.warmup + arguments.seconds, seed)
    alone, _ = pair.phase(schedule)
    mixed, batch = pair.phase(schedule, batch=True)
    _, batch_alone = pair.phase(batch=True)
    again, _ = pair.phase(schedule)
    on_device = alone["device_us"] + again["device_us"]
    share = sum(on_device) * 1e-6 / (2 * arguments.seconds)
    one = {"seed": seed, "u": share, "batch_rows_s": batch, "batch_alone_rows_s": batch_alone}
    for name, found in (("alone", alone), ("mixed", mixed), ("again", again)):
        # A tenth of a microsecond is what clocks are good for; files stay small.
        one |= {f"{name}_{key}": [round(us, 1) for us in value] for key, value in found.items() if key != "unanswered"}
        one[f"{name}_unanswered"] = found["unanswered"]
    return one


def measure(mode, arguments, end):
    """One rung."""
    begin = time.monotonic()
    pair = Pair(mode, arguments)
    try:
        device_us, answer_us = pair.calibrate()
        rate = arguments.load / (device_us * 1e-6)
        told = pair.told["latency"]
        print(f"{MODES[mode]}: ready after {time.monotonic() - begin:.1f} s; {arguments.latency} alone {device_us:.0f} us on "
              f"the device, {answer_us:.0f} us with Python, input {told['input_bytes']} bytes; {rate:.1f} requests/s; stream "
              f"priorities {told['priority']} and {pair.told['batch']['priority']}", flush=True)
        rounds = []
        while len(rounds) < arguments.rounds and (not rounds or time.monotonic() < end):
            rounds.append(run_round(pair, rate, arguments.seed + len(rounds) + 1, arguments))
            print(f"{MODES[mode]}: round {len(rounds)} of {arguments.rounds}", file=sys.stderr, flush=True)
    finally:
        pair.close()
    if not all(one["alone_us"] and one["mixed_us"] and one["again_us"] for one in rounds):
        raise RuntimeError("a phase had no requests; raise --seconds or --load")
    rung = report.describe(MODES[mode], rounds, arguments.seed)
    return rung | {"rate": rate, "device_us": device_us, "answer_us": answer_us, "sides": pair.told}


def show(value, digits=3):
    return "-" if value is None else f"{value:.{digits}f}"


def print_tables(rungs):
    rows = []
    for rung in rungs:
        for phase in ("alone", "again", "mixed"):
            us, late = ([value for one in rung["rounds"] for value in one[f"{phase}_{key}"]] for key in ("us", "late_us"))
            times = (show(report.quantile(us, share), 0) for share in (0.5, 0.99, 0.999, 1))
            unanswered = sum(one[f"{phase}_unanswered"] for one in rung["rounds"])
            rows.append((rung["rung"], phase, len(us), *times, show(report.quantile(late, 0.99), 0), unanswered))
    print(machines.table(HEADER, rows))
    keys = ("r50", "r99", "r99_from", "r99_to", "r999", "aa_r99", "aa_r99_from", "aa_r99_to", "t", "u", "w", "w_from", "w_to")
    print(machines.table(RUNG_HEADER, [(rung["rung"], len(rung["rounds"]), *(show(rung[key]) for key in keys))
                                       for rung in rungs]))
    for rung in rungs:
        print(f"{rung['rung']}: batch rows/s alone {report.mean(rung['rounds'], 'batch_alone_rows_s'):.1f}, mixed "
              f"{report.mean(rung['rounds'], 'batch_rows_s'):.1f}")


def parse_flags():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", default="streams", help="streams, processes, or both with a comma (default: %(default)s)")
    parser.add_argument("--latency", choices=worker.LATENCY, default="resnet50_b1")
    parser.add_argument("--batch", choices=tuple(worker.ROWS), default="gemm")
    parser.add_argument("--batch-rows", type=int, help="of a batch (default: " +
                        ", ".join(f"{name} {rows}" for name, rows in worker.ROWS.items()) + "; fewer with --small)")
    parser.add_argument("--load", type=float, default=0.2,
                        help="share of the device for the latency model (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="of each phase (default: %(default)s)")
    parser.add_argument("--warmup", type=float, default=0.25, metavar="SECONDS",
                        help="before it, not counted (default: %(default)s)")
    parser.add_argument("--drain-seconds", type=float, default=2, help="for what waits at its end (default: %(default)s)")
    parser.add_argument("--limit-seconds", type=float, default=300,
                        help="no round is begun later, but a mode's first; each of two modes gets half (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--wait", choices=("query", "synchronize"), default="query",
                        help="for latency requests: ask the event again and again, or wait in CUDA (default: %(default)s)")
    parser.add_argument("--device", default="cuda:0", help="cuda:N, or cpu to try the script (default: %(default)s)")
    parser.add_argument("--small", action="store_true", help="tiny models")
    parser.add_argument("--json", type=pathlib.Path,
                        help="write raw latencies and results here, for scripts/plot_isolation.py --torch")
    arguments = parser.parse_args()
    arguments.mode = arguments.mode.split(",")
    if not set(arguments.mode) <= set(MODES) or len(set(arguments.mode)) < len(arguments.mode):
        parser.error("--mode: expected streams, processes, or both")
    if not 0 < arguments.load < 1:
        parser.error("--load: expected more than 0 and less than 1")
    if arguments.rounds < 1 or arguments.seconds <= 0 or arguments.warmup < 0 or arguments.drain_seconds < 0:
        parser.error("--rounds, --seconds, --warmup, --drain-seconds: expected positive numbers")
    if arguments.batch_rows is None:
        arguments.batch_rows = (worker.SMALL_ROWS if arguments.small else worker.ROWS)[arguments.batch]
    if arguments.batch_rows < 1:
        parser.error("--batch-rows: expected at least 1")
    return arguments


def device_name(device):
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU"


def main():
    arguments = parse_flags()
    begin = time.monotonic()
    rungs = []
    try:
        name = device_name(arguments.device)
        for number, mode in enumerate(arguments.mode, start=1):
            rungs.append(measure(mode, arguments, begin + arguments.limit_seconds * number / len(arguments.mode)))
    except (RuntimeError, AssertionError, OSError, concurrent.futures.TimeoutError) as error:
        print(f"isolation_torch: {error!r}", file=sys.stderr)
        return 1
    print(f"{name}, torch {torch.__version__}: {arguments.latency} at {arguments.load:.0%} beside {arguments.batch} of "
          f"{arguments.batch_rows} rows, {arguments.seconds:g} s a phase")
    print_tables(rungs)
    if arguments.json:
        cell = {"latency": arguments.latency, "neighbour": f"{arguments.batch}:{arguments.batch_rows}", "class": "batch",
                "load": f"{100 * arguments.load:g} %", "arrivals": "poisson", "rungs": rungs}
        flags = {key: str(value) if isinstance(value, pathlib.Path) else value for key, value in vars(arguments).items()
                 if key != "json"}
        arguments.json.write_text(json.dumps({"device": name, "torch": torch.__version__, "flags": flags, "cells": [cell]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
