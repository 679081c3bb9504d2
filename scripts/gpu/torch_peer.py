#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Step torch: Sluice's plans against PyTorch, outputs checked in the same run.

Each network is exported with seeded random weights. Then, network by network and with nothing else on the GPU: the plans of
Sluice as they are loaded (bench/plans), `sluice-server tune`, the tuned plans, PyTorch in a CUDA graph, torch.compile in a
CUDA graph, in rounds, and the tuned plans again. All times are of graphs replayed back to back with their inputs on the
device; the ratio is of the medians, Sluice's (tuned) over torch.compile's. At the end a server with the tunings answers
requests of each batch size, and its answers are compared with PyTorch's in fp32 without TF32: error in norm,
|a - b| / |b|, of the worst output; the same rows in another order must not pass.

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
import threading
import time

import numpy as np

import machine as machines
from command_line import CommandLine

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
HEADER = ("network", "rows", "precision", "error", "planted", "torch error", "untuned ms", "tuned ms", "again ms", "eager ms",
          "compiled ms", "ratio", "target", "")


def one_line(error):
    return " ".join(str(error).split())[:300]


class Side:
    """torch_side.py of one network."""

    def __init__(self, name, command, environment, log):
        self.name, self.command, self.environment, self.log = name, command, environment, log
        self.process = None
        self.events = {}
        self.changed = threading.Condition()

    def run(self, until):
        """Starts it and returns when it is prepared, or at its end; what it says later is read as well."""
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                                            env=self.environment)
        threading.Thread(target=self.listen, daemon=True).start()
        if not self.wait("prepared", until - time.monotonic()):
            self.tell({"event": "failed", "reason": self.reason() or "not prepared in time"})
            self.process.kill()

    def listen(self):
        for line in self.process.stdout:
            self.tell(json.loads(line))
        code = self.process.wait()
        self.tell({"event": "failed", "reason": f"exit {code}"})

    def tell(self, event):
        with self.changed:
            self.events.setdefault(event["event"], event)
            self.changed.notify_all()

    def wait(self, event, seconds):
        """The event, or None when it failed or did not come in time."""
        with self.changed:
            self.changed.wait_for(lambda: event in self.events or "failed" in self.events, max(seconds, 0))
            return self.events.get(event)

    def reason(self):
        with self.changed:
            return self.events.get("failed", {}).get("reason")

    def measure(self, seconds):
        """{rows: {side: what was measured, or why not}}; raises RuntimeError."""
        try:
            self.process.stdin.write("measure\n")
            self.process.stdin.flush()
        except OSError as error:
            raise RuntimeError(self.reason() or str(error)) from error
        found = self.wait("measured", seconds)
        if found is None:
            raise RuntimeError(self.reason() or f"not measured in {seconds:.0f} s")
        return found["rows"]

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class Comparison:
    def __init__(self, machine, arguments):
        self.machine, self.arguments = machine, arguments
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
                       "--device", machine.devices if machine.cuda else "cpu", "--rounds", str(arguments.rounds),
                       "--phase", str(arguments.phase), "--prepare-until", str(self.prepare_end - KILL_SECONDS),
                       "--compile-mode", arguments.compile_mode, *(["--small"] if arguments.small else [])]
            self.sides[network] = Side(network, command, environment, machine.work / f"torch-{network}.log")
        self.rows = [{"network": network, "rows": rows, "precision": arguments.precision, "reasons": []}
                     for network in arguments.networks for rows in arguments.rows]

    def folder(self, network):
        return self.machine.work / f"torch-{network}"

    def left(self):
        return self.arguments.time_limit - (time.monotonic() - self.begin)

    def rows_of(self, network):
        return [row for row in self.rows if row["network"] == network]

    def say(self, text):
        print(f"{time.monotonic() - self.begin:4.0f} s  {text}", flush=True)

    def run(self):
        with concurrent.futures.ThreadPoolExecutor(self.arguments.parallel) as pool:
            done = [pool.submit(side.run, self.prepare_end) for side in self.sides.values()]
            for side in self.sides.values():
                exported = side.wait("exported", self.prepare_end - time.monotonic())
                self.say(f"{side.name}: " + (f"exported in {exported['seconds']:.0f} s" if exported else
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
                                   timeout=max(self.left() - CHECK_SECONDS, 1), check=False)
        (self.machine.work / f"torch-tune-{network}.log").write_text(done.stderr)
        if done.returncode:
            raise RuntimeError(f"tune: exit {done.returncode}: {one_line(done.stderr)[-200:]}")
        report = json.loads(done.stdout)
        for device in report["devices"]:
            self.say(f"{network}: {device['choices']} choices in {device['tuning_seconds']:.1f} s; a load takes "
                     f"{device['load_seconds_after']:.1f} s, {device['load_seconds_before']:.1f} s untuned")
        return report

    def plans(self, network, which):
        """{rows: milliseconds of each round}; raises RuntimeError."""
        result = self.machine.work / f"torch-plans-{network}-{which}.json"
        command = [str(self.machine.program("plans")), "--models", str(self.repository), "--model", NETWORKS[network],
                   "--device", self.machine.devices, "--rows", ",".join(map(str, self.arguments.rows)),
                   "--rounds", str(self.arguments.rounds), "--phase", str(self.arguments.phase), "--json", str(result)]
        command += self.machine.module_flags()
        if which != "untuned":
            command += self.tuning_flags()
        if which == "first" and self.arguments.kernels:
            command += ["--kernels", str(self.arguments.kernels)]
        try:
            done = subprocess.run(command, env=self.machine.environment, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=max(self.left() - CHECK_SECONDS, 1))
        except subprocess.TimeoutExpired as stopped:
            raise RuntimeError("plans: no time was left") from stopped
        (self.machine.work / f"torch-plans-{network}-{which}.log").write_text(done.stdout)
        document = json.loads(result.read_text()) if result.exists() else {"rows": [], "errors": []}
        if not document["rows"]:
            said = [error["error"] for error in document["errors"]] or done.stdout.strip().splitlines()[-1:]
            raise RuntimeError(f"plans: {said[0] if said else f'exit {done.returncode}'}")
        if which == "first":
            print(done.stdout[done.stdout.index("model "):] if "model " in done.stdout else done.stdout, flush=True)
        return {row["rows"]: row for row in document["rows"]}

    def measure(self, network, side):
        rows = self.rows_of(network)
        if self.left() < CHECK_SECONDS + LEAST_SECONDS:
            for row in rows:
                row["reasons"].append("no time was left")
            return
        found, reasons = {}, []
        for what, take in (("untuned", lambda: self.plans(network, "untuned")),
                           ("tune", lambda: self.tune(network)),
                           ("first", lambda: self.plans(network, "first")),
                           ("torch", lambda: side.measure(self.left() - CHECK_SECONDS) if side.wait("prepared", 0) else {}),
                           ("again", lambda: self.plans(network, "again"))):
            try:
                found[what] = take()
            except (RuntimeError, OSError, ValueError, subprocess.SubprocessError) as error:
                reasons += [one_line(error)] if one_line(error) not in reasons else []
        side.stop()  # Its memory and its context.
        for row in rows:
            for what, name in (("untuned", "untuned"), ("first", "sluice"), ("again", "again")):
                plan = found.get(what, {}).get(row["rows"], {})
                row[f"{name}_ms"] = plan.get("rounds ms", [])
                row["kernels"] = plan.get("kernels", row.get("kernels"))
            for name, told in found.get("torch", {}).get(str(row["rows"]), {}).items():
                row[f"{name}_ms"] = told.get("ms", [])
                row[f"{name}_error"] = told.get("error_in_norm")
                if "reason" in told:
                    row["reasons"].append(f"{name}: {told['reason']}")
            row["reasons"] += reasons
            self.judge(row)
            self.say(" ".join(map(str, cells(row))))

    def judge(self, row):
        sluice = row["sluice_ms"] + row["again_ms"]
        if sluice and row.get("compiled_ms"):
            row["ratio"] = statistics.median(sluice) / statistics.median(row["compiled_ms"])
        row["target"] = TARGETS.get((row["network"], row["precision"], row["rows"]), 1.0)
        row["within"] = row["ratio"] <= row["target"] if "ratio" in row else None


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
    return (row["network"], row["rows"], row["precision"], show(row.get("error"), ".1e"), show(row.get("planted"), ".2f"),
            show(max(torch_errors, default=None), ".1e"), median(row.get("untuned_ms")), median(row.get("sluice_ms")),
            median(row.get("again_ms")),
            median(row.get("eager_ms")), median(row.get("compiled_ms")), show(row.get("ratio"), ".3f"),
            show(row.get("target"), ".2f"), outcome(row))


def parse_flags():
    parser = machines.step_parser(__doc__)
    parser.add_argument("--networks", default=",".join(NETWORKS), help="comma-separated, in this order (default: all)")
    parser.add_argument("--rows", default="1,32", help="batch sizes, comma-separated (default: %(default)s)")
    parser.add_argument("--precision", choices=ERROR_LIMITS, default="fp16", help="of both sides (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each side (default: %(default)s)")
    parser.add_argument("--phase", type=float, default=0.2, help="seconds of each measurement (default: %(default)s)")
    parser.add_argument("--time-limit", type=float, default=270, help="seconds of the whole step (default: %(default)s)")
    parser.add_argument("--parallel", type=int, default=max(1, (os.cpu_count() or 1) // 3),
                        help="networks exported and compiled at once (default: a third of the CPUs)")
    parser.add_argument("--compile-mode", default="default", help="mode of torch.compile (default: %(default)s)")
    parser.add_argument("--no-tune", dest="tune", action="store_false", help="measure the plans as they are loaded, twice")
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
                "phase_seconds": arguments.phase, "small": arguments.small, "rows": rows}
    if arguments.json:
        arguments.json.write_text(json.dumps(document, indent=1))
    said = f"{within} of {len(judged)} rows within their targets" if machine.cuda else "no targets without a GPU"
    machines.finish(machine, "torch", right == len(rows) and within == len(judged) and failed == 0 and code == 0,
                    f"{arguments.precision}: {right} of {len(rows)} rows right, {said}, {failed} not measured whole, "
                    f"the server ended with {code}", document)


if __name__ == "__main__":
    main()
