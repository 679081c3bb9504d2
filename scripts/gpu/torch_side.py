#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""One network in PyTorch. torch_peer.py starts it and hears from it in lines of JSON on standard output:

  exported   the network is in the repository, inputs and expected outputs (fp32, TF32 off) are in FOLDER/ROWS
  prepared   {rows: how long compiling took, or why it failed}; a line "measure" on standard input then begins
  ready      {rows: {side: error in norm, or why it could not be captured}}; nothing is running on the device
  round      milliseconds of a replay, after each line "round ROWS SIDE"
  measured   {rows: {side: as in ready, and the milliseconds of all rounds}}, after a line "end" or the end of the input
  failed     why; nothing follows

sides: eager (as the module is) and compiled (torch.compile), each captured in a CUDA graph of its own by hand, so that
replays alone are timed. Without a GPU the eager side is called as it is, and nothing is compiled.
"""
import argparse
import copy
import json
import logging
import os
import pathlib
import signal
import sys
import time
import warnings

import numpy as np
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests" / "models")]
import export_models  # noqa: E402: the path is set above
from errors import norm_error  # noqa: E402: likewise

TYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
CONFIG = """max_batch_size: {most}
parameters {{ key: "sluice.buckets" value {{ string_value: "{buckets}" }} }}
parameters {{ key: "sluice.precision" value {{ string_value: "{precision}" }} }}
parameters {{ key: "sluice.allowed_classes" value {{ string_value: "latency" }} }}
parameters {{ key: "sluice.slots" value {{ string_value: "latency=1" }} }}
"""


def first_line(error):
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"


def allow_tf32(allowed):
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def random_like(name, example, rows):
    """As many rows of an input that looks like `example`: masks leave out a tail of each row, indices stay in bounds."""
    shape = (rows, *example.shape[1:])
    if "mask" in name:
        lengths = torch.randint(shape[1] // 4, shape[1] + 1, (rows, 1))
        return (torch.arange(shape[1]) < lengths).to(example.dtype)
    if example.is_floating_point():
        return torch.randn(shape)
    return torch.randint(0, int(example.max()) + 1, shape, dtype=example.dtype)


def as_tuple(outputs):
    return outputs if isinstance(outputs, (tuple, list)) else (outputs,)


def numbers(outputs):
    return [output.float().cpu().numpy() for output in as_tuple(outputs)]


class Slow(BaseException):
    """Compilation took longer than it may. No Exception: the compiler would take it for a failure of its own."""


class Network:
    def __init__(self, arguments):
        self.name, self.rows, self.precision = arguments.network, arguments.rows, arguments.precision
        self.repository, self.folder = arguments.repository, arguments.folder
        self.cuda = arguments.device.startswith("cuda")
        self.device = torch.device(arguments.device)
        self.compile_mode = arguments.compile_mode
        make, self.exporter, self.opset = next(
            entry[1:] for entry in export_models.plan(arguments.small) if entry[0] == self.name)
        torch.manual_seed(export_models.SEED)
        np.random.seed(export_models.SEED % 2**32)
        with torch.no_grad():
            self.module, self.examples, self.input_names, self.output_names = make()
        self.inputs = {rows: [random_like(name, example, rows) for name, example in zip(self.input_names, self.examples)]
                       for rows in self.rows}
        self.expected = {}
        self.compiled = {}
        if self.cuda:
            torch.cuda.set_device(self.device)

    def export(self):
        path = self.repository / self.name / "1" / "model.onnx"
        with torch.no_grad():
            export_models.export(self.module, self.examples, self.input_names, self.output_names, path, self.exporter, self.opset)
        export_models.strip(path)
        (self.repository / self.name / "config.pbtxt").write_text(CONFIG.format(
            most=self.rows[-1], buckets=",".join(map(str, self.rows)), precision=self.precision))

    @torch.no_grad()
    def save_expected(self):
        """By the module itself in fp32, on the same device."""
        allow_tf32(False)
        reference = copy.deepcopy(self.module).to(self.device)
        for rows, inputs in self.inputs.items():
            self.expected[rows] = numbers(reference(*[value.to(self.device) for value in inputs]))
            folder = self.folder / str(rows)
            folder.mkdir(parents=True, exist_ok=True)
            for kind, names, values in (("input", self.input_names, [value.numpy() for value in inputs]),
                                        ("output", self.output_names, self.expected[rows])):
                for name, value in zip(names, values):
                    np.save(folder / f"{kind}-{name}.npy", value)

    @torch.no_grad()  # Not in inference mode: its tensors cannot take the place of a module's parameters.
    def settle(self):
        """Module and inputs in the precision that is measured, convolutions with the channels last."""
        allow_tf32(self.precision == "tf32")
        # Its own fused encoder layer is older and slower than attention by scaled_dot_product_attention.
        torch.backends.mha.set_fastpath_enabled(False)
        dtype = TYPES[self.precision]
        self.module = self.module.to(self.device, dtype)
        images = self.examples[0].dim() == 4 and self.precision != "fp32"
        if images:
            self.module = self.module.to(memory_format=torch.channels_last)

        def place(value):
            value = value.to(self.device, dtype if value.is_floating_point() else value.dtype)
            return value.contiguous(memory_format=torch.channels_last) if images and value.dim() == 4 else value
        self.inputs = {rows: [place(value) for value in values] for rows, values in self.inputs.items()}

    def prepare(self, end):
        """{rows: how compiling went}; it compiles until `end`."""
        told = {}
        for position, rows in enumerate(self.rows if self.cuda else []):
            begin = time.monotonic()
            try:
                self.compiled[rows] = self.compile(rows, (end - begin) / (len(self.rows) - position))
                told[str(rows)] = {"seconds": time.monotonic() - begin}
            except (Exception, Slow) as error:
                told[str(rows)] = {"reason": first_line(error)}
        return told

    def compile(self, rows, limit):
        """The module compiled for that batch size, in one piece where that is possible."""
        def give_up(*_):
            raise Slow(f"compilation took more than {limit:.0f} s")
        begin = time.monotonic()
        signal.signal(signal.SIGALRM, give_up)
        signal.setitimer(signal.ITIMER_REAL, max(limit, 0.1))
        try:
            for whole in (True, False):
                function = torch.compile(self.module, fullgraph=whole, dynamic=False, mode=self.compile_mode)
                try:
                    function(*self.inputs[rows])
                    return function
                except Exception as error:
                    if not whole or time.monotonic() - begin > limit:
                        raise
                    print(f"{rows} rows, not in one piece: {first_line(error)}", file=sys.stderr, flush=True)
                    torch._dynamo.reset()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def ready(self, function, rows):
        """(what runs it once, its outputs, which a run writes again)."""
        inputs = self.inputs[rows]
        if not self.cuda:
            return (lambda: function(*inputs)), function(*inputs)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # Tunes and allocates what a capture must not.
            for _ in range(3):
                function(*inputs)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = function(*inputs)
        graph.replay()
        torch.cuda.synchronize()
        return graph.replay, outputs

    def capture_all(self):
        """{rows: {side: error in norm, or why not}}, {(rows, side): as `ready` returns it}. Nothing else may be on the GPU."""
        # Only now, since cuDNN takes the algorithm that is the fastest while it looks.
        torch.backends.cudnn.benchmark = True
        found, runs = {str(rows): {} for rows in self.rows}, {}
        for rows in self.rows:
            for side, function in (("eager", self.module), ("compiled", self.compiled.get(rows))):
                if function is None:
                    continue
                try:
                    run_once, outputs = self.ready(function, rows)
                except Exception as error:
                    found[str(rows)][side] = {"reason": first_line(error)}
                    continue
                error = max(norm_error(actual, right) for actual, right in zip(numbers(outputs), self.expected[rows]))
                found[str(rows)][side] = {"error_in_norm": error}
                runs[rows, side] = run_once, outputs
        return found, runs

    def measure(self, seconds, say):
        """Answers one line with one round, until it is told to end."""
        found, runs = self.capture_all()
        say("ready", rows=found)
        for line in sys.stdin:
            if line.strip() == "end":
                break
            word, rows, side = line.split()
            if word != "round":
                raise ValueError(f"expected 'round ROWS SIDE' or 'end', not {line.strip()!r}")
            milliseconds = measure(runs[int(rows), side][0], seconds, self.cuda)
            found[rows][side].setdefault("ms", []).append(milliseconds)
            say("round", rows=int(rows), side=side, ms=milliseconds)
        say("measured", rows=found)


def batch(run, times, cuda):
    """Milliseconds of one of `times` in a row."""
    if not cuda:
        begin = time.perf_counter()
        for _ in range(times):
            run()
        return (time.perf_counter() - begin) * 1e3 / times
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(times):
        run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / times


def measure(run, seconds, cuda):
    """As bench/plans does: a guess, a warm-up, then as many as take `seconds`."""
    def times(milliseconds, once):
        return int(min(max(milliseconds / max(once, 1e-4), 1), 1e6))
    once = min(batch(run, 1, cuda), batch(run, 1, cuda))
    once = batch(run, times(250 * seconds, once), cuda)
    return batch(run, times(1e3 * seconds, once), cuda)


def parse_flags():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", required=True, help="as scripts/export_models.py names it")
    parser.add_argument("--repository", type=pathlib.Path, required=True, help="to export to")
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="for inputs and expected outputs")
    parser.add_argument("--rows", required=True, help="batch sizes, ascending, with commas between them")
    parser.add_argument("--precision", choices=TYPES, required=True)
    parser.add_argument("--device", required=True, help="cpu or cuda:N")
    parser.add_argument("--phase", type=float, required=True, help="seconds of each measurement")
    parser.add_argument("--prepare-until", type=float, required=True, help="when to stop compiling, by the monotonic clock")
    parser.add_argument("--compile-mode", default="default")
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    arguments.rows = sorted(map(int, arguments.rows.split(",")))
    return arguments


def run(arguments, say):
    begin = time.monotonic()
    network = Network(arguments)
    network.export()
    network.save_expected()
    say("exported", seconds=time.monotonic() - begin)
    network.settle()
    with torch.inference_mode():
        told = network.prepare(arguments.prepare_until)
        say("prepared", seconds=time.monotonic() - begin, rows=told)
        if sys.stdin.readline():
            network.measure(arguments.phase, say)


def main():
    arguments = parse_flags()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    # Exporters print what they like to standard output, which is for lines of JSON here.
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def say(event, **more):
        print(json.dumps({"event": event, **more}), file=channel, flush=True)
    try:
        run(arguments, say)
    except Exception as error:
        say("failed", reason=first_line(error))
        raise


if __name__ == "__main__":
    main()
