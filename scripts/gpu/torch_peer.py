#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Step torch: Sluice's plans against PyTorch, outputs checked in the same run.

Each network is exported with seeded random weights. Then, network by network and with nothing else on the GPU: the plans of
Sluice as they are loaded (bench/plans), `sluice tune`, and the tuned plans beside PyTorch. All times are of graphs replayed
back to back with their inputs on the device. At the end a server with the tunings answers requests of each batch size, and
its answers are compared with PyTorch's in fp32 without TF32: error in norm, |a - b| / |b|, of the worst output; the same
rows in another order must not pass.

A GPU may run one graph at one of two speeds and change between them every few seconds, so what is compared is measured at
once: both processes are loaded, and a round of each batch size is Sluice, torch.compile and Sluice again, while the other
process waits. The ratio of a round is the mean of Sluice's two times over torch.compile's; A/A is the second of Sluice's
over the first. The table has the medians over the rounds and the ratios' quartiles. Untuned plans, and PyTorch as it is
(eager), are in no ratio and get fewer rounds. Without a GPU nothing is compiled, and eager takes its place in the rounds.

Networks are exported and compiled in processes of their own, several at once, before anything is measured. One that
fails, or for which no time is left, is a row that says why.
"""
import concurrent.futures
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np

import machine as machines
import pairs
from command_line import CommandLine
from pairs import note, one_line
from talker import Talker

sys.path.insert(0, str(machines.ROOT / "tests" / "models"))
from errors import norm_error  # noqa: E402: the path is set above

HERE = pathlib.Path(__file__).resolve().parent
# The most important first: what is cut when time runs out is at the end. By the exporter that takes the least time.
NETWORKS = {"resnet50": "resnet50_ts17", "bert": "bert_ts17_sdpa", "mobilenet_v2": "mobilenet_v2_ts17",
            "efficientnet_b0": "efficientnet_b0_ts17", "vit_b_16": "vit_b_16_dy18"}
ERROR_LIMITS = {"fp32": 1e-4, "tf32": 2e-3, "fp16": 1e-2, "bf16": 1e-2}
# Of the time of torch.compile in a graph; 1.0 where nothing is said.
TARGETS = {("resnet50", "fp16", 1): 0.80, ("resnet50", "fp16", 32): 0.90}
# Exporting and compiling may take this share of the time limit.
PREPARE_SHARE = 0.55
# Before it is over each process gives up by itself, and keeps what it has.
KILL_SECONDS = 5
LEAST_SECONDS = 10  # For one network's measurements.
CHECK_SECONDS = 40  # Kept for the answers at the end.
HEADER = ("network", "rows", "error", "planted", "torch error", "untuned ms", "tuned ms", "again ms", "eager ms", "compiled ms",
          "A/A", "ratio", "quartiles", "target", "")
TIMES = ("untuned_ms", "sluice_ms", "again_ms", "eager_ms", "compiled_ms")


class Side(Talker):
    """torch_side.py of one network."""

    def run(self, until):
        """Starts it and returns when it is prepared, or at its end; what it says later is read as well."""
        self.start()
        if not self.wait("prepared", until - time.monotonic()):
            self.tell({"event": "failed", "reason": self.reason() or "not prepared in time"})
            if self.process is not None:
                self.process.kill()


class Comparison:
    def __init__(self, machine, arguments):
        self.machine, self.arguments = machine, arguments
        self.peer = "compiled" if machine.cuda else "eager"
        self.begin = time.monotonic()
        self.repository = machine.work / "torch-repository"
        self.repository.mkdir(exist_ok=True)
        self.tunings = machine.work / "torch-tunings"
        self.tunings.mkdir(exist_ok=True)
        self.prepare_end = self.begin + PREPARE_SHARE * arguments.time_limit
        environment = dict(os.environ)
        if machine.cuda:  # Several compile at once; without a GPU the CPUs are what is measured.
            for name in ("TORCHINDUCTOR_COMPILE_THREADS", "OMP_NUM_THREADS"):
                environment.setdefault(name, str(max(1, (os.cpu_count() or 1) // arguments.parallel)))
        self.sides = {}
        for network in arguments.networks:
            command = [sys.executable, str(HERE / "torch_side.py"), "--network", NETWORKS[network],
                       "--repository", str(self.repository), "--folder", str(self.folder(network)),
                       "--rows", ",".join(map(str, arguments.rows)), "--precision", arguments.precision,
                       "--device", machine.devices if machine.cuda else "cpu", "--phase", str(arguments.phase),
                       "--prepare-until", str(self.prepare_end - KILL_SECONDS), "--compile-mode", arguments.compile_mode,
                       *(["--small"] if arguments.small else [])]
            self.sides[network] = Side("torch", command, environment, machine.work / f"torch-{network}.log")
        self.rows = [{"network": network, "rows": rows, "precision": arguments.precision, "reasons": [],
                      **{name: [] for name in TIMES}}
                     for network in arguments.networks for rows in arguments.rows]

    def folder(self, network):
        return self.machine.work / f"torch-{network}"

    def left(self):
        return self.arguments.time_limit - (time.monotonic() - self.begin)

    def patience(self):
        """Seconds until the answers at the end need the rest; raises RuntimeError when there are none."""
        seconds = self.left() - CHECK_SECONDS
        if seconds <= 0:
            raise RuntimeError("no time was left")
        return seconds

    def rows_of(self, network):
        return [row for row in self.rows if row["network"] == network]

    def say(self, text):
        print(f"{time.monotonic() - self.begin:4.0f} s  {text}", flush=True)

    def run(self):
        with concurrent.futures.ThreadPoolExecutor(self.arguments.parallel) as pool:
            done = [pool.submit(side.run, self.prepare_end) for side in self.sides.values()]
            for network, side in self.sides.items():
                exported = side.wait("exported", self.prepare_end - time.monotonic())
                self.say(f"{network}: " + (f"exported in {exported['seconds']:.0f} s" if exported else
                                           f"not exported: {side.reason() or 'no time was left'}"))
            concurrent.futures.wait(done)
        for network, side in self.sides.items():
            self.note_prepared(network, side)
        for network, side in self.sides.items():
            self.measure(network, side)
        return self.check()

    def note_prepared(self, network, side):
        prepared = side.wait("prepared", 0)
        for row in self.rows_of(network):
            if not prepared:
                row["reasons"].append(f"torch: {side.reason()}")
                continue
            told = prepared["rows"].get(str(row["rows"]))
            if told is None:
                continue
            row["compile_seconds"] = told.get("seconds")
            if "reason" in told:
                row["reasons"].append(f"compiled: {told['reason']}")
            self.say(f"{network}, {row['rows']} rows: " + told.get("reason", f"compiled in {told.get('seconds', 0):.1f} s"))

    def check(self):
        """Asks a server for every row; its exit code."""
        try:
            server = self.machine.start_server("--strict-readiness=false", *self.tuning_flags(), repository=self.repository)
        except (RuntimeError, OSError) as error:
            for row in self.rows:
                row["reasons"].append(f"server: {one_line(error)}")
            return 1
        try:
            client = CommandLine(self.machine, server.grpc)
            for row in self.rows:
                if self.sides[row["network"]].wait("exported", 0) is None:
                    continue
                try:
                    self.check_row(client, row)
                except Exception as error:  # One network's failure leaves the others to be looked at.
                    row["reasons"].append(f"server: {one_line(error)}")
                    self.say(f"{row['network']}, {row['rows']} rows: {row['reasons'][-1]}")
        finally:
            log = server.log()
            (self.machine.work / "torch-server.log").write_text(log)
            code = server.stop()
        return code

    def check_row(self, client, row):
        folder = self.folder(row["network"]) / str(row["rows"])
        values = {path.stem[len("input-"):]: np.load(path) for path in sorted(folder.glob("input-*.npy"))}
        answer = client.ask(NETWORKS[row["network"]], values, "latency")
        errors, planted = [], []
        for path in sorted(folder.glob("output-*.npy")):
            right, actual = np.load(path), answer[path.stem[len("output-"):]]
            if actual.shape != right.shape:
                raise RuntimeError(f"{path.stem}: shape {actual.shape}, not {right.shape}")
            errors.append(norm_error(actual, right))
            planted.append(norm_error(actual[::-1], right))
        limit = ERROR_LIMITS[self.arguments.precision]
        row["error"] = max(errors)
        row["planted"] = min(planted) if row["rows"] > 1 else None
        row["right"] = row["error"] <= limit and (row["planted"] is None or row["planted"] > limit)
        self.say(f"{row['network']}, {row['rows']} rows: error in norm {row['error']:.1e}, at most {limit:.0e}")

    def tuning_flags(self):
        return ["--tuning-cache", str(self.tunings)] if self.machine.cuda and self.arguments.tune else []

    def tune(self, network):
        """Raises RuntimeError; on a machine without a GPU there is nothing to tune."""
        if not self.tuning_flags():
            return None
        done = self.machine.sluice("tune", NETWORKS[network], "--json", "--model-repository", self.repository, "--devices",
                                   self.machine.devices, *self.tuning_flags(), *self.machine.module_flags(),
                                   timeout=self.patience(), check=False)
        (self.machine.work / f"torch-tune-{network}.log").write_text(done.stderr)
        if done.returncode:
            raise RuntimeError(f"tune: exit {done.returncode}: {one_line(done.stderr)[-200:]}")
        report = json.loads(done.stdout)
        for device in report["devices"]:
            self.say(f"{network}: {device['choices']} choices in {device['tuning_seconds']:.1f} s; a load takes "
                     f"{device['load_seconds_after']:.1f} s, {device['load_seconds_before']:.1f} s untuned")
        return report

    def plans(self, network, which, rounds, *flags):
        """bench/plans of one network, not started."""
        work, phase = self.machine.work, self.arguments.phase
        result = work / f"torch-plans-{network}-{which}.json"
        result.unlink(missing_ok=True)
        command = [str(self.machine.program("plans")), "--models", str(self.repository), "--model", NETWORKS[network],
                   "--device", self.machine.devices, "--rows", ",".join(map(str, self.arguments.rows)),
                   "--rounds", str(rounds), "--phase", str(phase), "--warmup", str(phase / 4), "--json", str(result)]
        return pairs.Plans([*command, *self.machine.module_flags(), *flags], self.machine.environment,
                           work / f"torch-plans-{network}-{which}.log", result)

    def measure_untuned(self, network, rows):
        """The plans as they are loaded; raises RuntimeError."""
        plans = self.plans(network, "untuned", max(1, self.arguments.rounds // pairs.OTHERS_EVERY))
        try:
            with open(plans.log, "w") as log:
                done = subprocess.run(plans.command, env=plans.environment, stdin=subprocess.DEVNULL, stdout=log,
                                      stderr=subprocess.STDOUT, timeout=self.patience())
        except subprocess.TimeoutExpired as stopped:
            raise RuntimeError("plans: no time was left") from stopped
        told = plans.results(rows)
        if not told and done.returncode:
            raise RuntimeError(plans.why(f"exit {done.returncode}"))
        for row in rows:
            row["untuned_ms"] = told.get(row["rows"], {}).get("rounds ms", [])

    def measure_pairs(self, network, rows, side):
        """Tuned plans and PyTorch in turns; raises RuntimeError when no time is left."""
        shown = ["--kernels", str(self.arguments.kernels)] if self.arguments.kernels else []
        plans = self.plans(network, "tuned", 2 * self.arguments.rounds * len(rows), "--paced", "--limit-seconds",
                           str(min(max(self.patience(), 1), 3600)), *self.tuning_flags(), *shown)
        both = pairs.Pairs(plans, side if side.wait("prepared", 0) else None, self.peer, rows, self.patience)
        try:
            both.measure(self.arguments.rounds)
        finally:
            plans.stop()
            side.stop()  # Its memory and its context.
        log = plans.log.read_text(errors="replace")
        if "model " in log:
            print(log[log.index("model "):], flush=True)

    def measure(self, network, side):
        rows = self.rows_of(network)
        if self.left() < CHECK_SECONDS + LEAST_SECONDS:
            note(rows, "no time was left")
            return
        for take in (lambda: self.measure_untuned(network, rows), lambda: self.tune(network),
                     lambda: self.measure_pairs(network, rows, side)):
            try:
                take()
            except (RuntimeError, OSError, ValueError, subprocess.SubprocessError) as error:
                note(rows, one_line(error))
        for row in rows:
            pairs.judge(row, self.peer)
            row["target"] = TARGETS.get((row["network"], row["precision"], row["rows"]), 1.0)
            row["within"] = row["ratio"] <= row["target"] if self.machine.cuda and "ratio" in row else None
            self.say(" ".join(map(str, cells(row))))


def median(numbers):
    return f"{statistics.median(numbers):.4f}" if numbers else "-"


def show(value, form):
    return "-" if value is None else format(value, form)


def outcome(row):
    if row.get("right") is False:
        return "WRONG"
    if row["reasons"]:
        return "; ".join(row["reasons"])
    return {True: "within", False: "OVER", None: "not judged"}[row.get("within")]


def cells(row):
    torch_errors = [row[name] for name in ("eager_error", "compiled_error") if row.get(name) is not None]
    interval = row.get("ratio_quartiles")
    return (row["network"], row["rows"], show(row.get("error"), ".1e"), show(row.get("planted"), ".2f"),
            show(max(torch_errors, default=None), ".1e"), *(median(row[name]) for name in TIMES),
            show(row.get("again_ratio"), ".3f"), show(row.get("ratio"), ".3f"),
            f"{interval[0]:.3f} {interval[2]:.3f}" if interval else "-", show(row.get("target"), ".2f"), outcome(row))


def parse_flags():
    parser = machines.step_parser(__doc__)
    parser.add_argument("--networks", default=",".join(NETWORKS), help="comma-separated, in this order (default: all)")
    parser.add_argument("--rows", default="1,32", help="batch sizes, comma-separated (default: %(default)s)")
    parser.add_argument("--precision", choices=ERROR_LIMITS, default="fp16", help="of both sides (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=15, help="of Sluice, PyTorch, Sluice (default: %(default)s)")
    parser.add_argument("--phase", type=float, default=0.08, help="seconds of each measurement (default: %(default)s)")
    parser.add_argument("--time-limit", type=float, default=270, help="seconds of the whole step (default: %(default)s)")
    parser.add_argument("--parallel", type=int, default=max(1, (os.cpu_count() or 1) // 3),
                        help="networks exported and compiled at once (default: a third of the CPUs)")
    parser.add_argument("--compile-mode", default="default", help="mode of torch.compile (default: %(default)s)")
    parser.add_argument("--no-tune", dest="tune", action="store_false", help="compare the plans as they are loaded")
    parser.add_argument("--kernels", type=int, default=0, help="show as many of each plan's longest kernels")
    parser.add_argument("--small", action="store_true", help="small networks of the same kinds, for a machine without a GPU")
    parser.add_argument("--json", type=pathlib.Path, help="write the rows to this file as well")
    arguments = parser.parse_args()
    arguments.networks = arguments.networks.split(",")
    unknown = [network for network in arguments.networks if network not in NETWORKS]
    if unknown:
        parser.error(f"unknown networks: {', '.join(unknown)}; known are {', '.join(NETWORKS)}")
    try:
        arguments.rows = sorted(set(map(int, arguments.rows.split(","))))
    except ValueError:
        parser.error(f"--rows: expected numbers with commas between them, got '{arguments.rows}'")
    # One device is measured; the server's own flag reads host:N as a number of devices.
    arguments.devices = "host" if arguments.devices == "host:0" else arguments.devices.split(",")[0]
    return arguments


def main():
    arguments = parse_flags()
    machine = machines.from_flags(arguments)
    if machine.program("plans") is None:
        machines.finish(machine, "torch", False, "the program plans is not there")
    comparison = Comparison(machine, arguments)
    try:
        code = comparison.run()
    finally:
        for side in comparison.sides.values():
            side.stop()
        rows = comparison.rows
        print(machines.table(HEADER, [cells(row) for row in rows]))
    right = sum(row.get("right") is True for row in rows)
    judged = [row for row in rows if machine.cuda]
    within = sum(row.get("within") is True for row in judged)
    failed = sum(bool(row["reasons"]) for row in rows)
    document = {"precision": arguments.precision, "device": machine.devices, "rounds": arguments.rounds,
                "phase_seconds": arguments.phase, "small": arguments.small, "ratio_to": comparison.peer, "rows": rows}
    if arguments.json:
        arguments.json.write_text(json.dumps(document, indent=1))
    said = f"{within} of {len(judged)} rows within their targets" if machine.cuda else "no targets without a GPU"
    machines.finish(machine, "torch", right == len(rows) and within == len(judged) and failed == 0 and code == 0,
                    f"{arguments.precision}: {right} of {len(rows)} rows right, {said}, {failed} not measured whole, "
                    f"the server ended with {code}", document)


if __name__ == "__main__":
    main()
