# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""The two sides of isolation_torch.py: a model with its stream, its CUDA graphs and its page-locked buffers, and how it is
asked in a phase. A side lives in one thread, or in one process, which prepares it and then runs the phases.

Python threads share one interpreter lock. So the calls on the hot path are few and let go of it while they are in CUDA
(copy_, replay, synchronize), spinning is interrupted by a call that does (select), and garbage is not collected.
"""
import gc
import pathlib
import select
import sys
import time

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import export_models  # noqa: E402: the path is set above

SEED = 20250204
LATENCY = ("resnet50_b1", "mlp24")
ROWS = {"gemm": 768, "mem": 16, "long": 4096, "copy": 64}  # Of a batch.
SMALL_ROWS = {"gemm": 32, "mem": 4, "long": 64, "copy": 2}
SWITCH_SECONDS = 50e-6  # How long one thread may keep the interpreter from the other.
SPIN_SECONDS = 3e-4  # Sleeps end this much early.
CALIBRATION_SECONDS = 3
sides = {}  # The sides of this process, by what they are for.


class Moves(nn.Module):
    """Kind mem of scripts/generate_mlp.py."""

    def __init__(self, layers, side, features, outputs):
        super().__init__()
        self.layers, self.side, self.outputs = layers, side, outputs
        self.table = nn.Parameter(torch.rand(side * side // features))
        self.offsets = nn.Parameter(torch.rand(layers, side))

    def forward(self, x):
        value = (x.unsqueeze(2) + self.table).view(-1, self.side, self.side)
        for layer in range(1, self.layers):
            value = value.transpose(1, 2).contiguous() if layer % 2 else value + self.offsets[layer]
        return value.view(len(x), self.outputs, -1).mean(2)


class Long(nn.Module):
    """Kind long of scripts/generate_mlp.py."""

    def __init__(self, lines, width, features, outputs):
        super().__init__()
        self.first, self.last = nn.Linear(features, width), nn.Linear(width, outputs)
        self.offsets = nn.Parameter(torch.randn(lines, width))
        self.matrix = nn.Parameter(torch.randn(width, width) / width**0.5)

    def forward(self, x):
        return self.last(((self.first(x).unsqueeze(1) + self.offsets) @ self.matrix).mean(1))


class Means(nn.Module):
    """Kind copy of scripts/generate_mlp.py."""

    def forward(self, x):
        return x.mean((2, 3))


def chain(widths):
    parts = []
    for inputs, outputs in zip(widths, widths[1:]):
        parts += [nn.Linear(inputs, outputs), nn.ReLU()]
        nn.init.normal_(parts[-2].weight, std=(2 / inputs)**0.5)  # Numbers keep their size, and the device its power.
    return nn.Sequential(*parts[:-1])


def make(name, small):
    """(module in fp32, shape of a row), as scripts/generate_gpu_models.sh --isolation makes them."""
    torch.manual_seed(SEED)
    np.random.seed(SEED)
    if name == "resnet50_b1":
        module, examples, _, _ = export_models.vision("resnet50", small)
        return module, tuple(examples[0].shape[1:])
    if name == "mlp24":
        layers, width = (6, 256) if small else (24, 1280)
        return chain([width] * layers + [16]), (width,)
    if name == "gemm":
        layers, width = (4, 256) if small else (64, 512)
        return chain([64] + [width] * layers + [16]), (64,)
    if name == "mem":
        return Moves(12, 64 if small else 2048, 64, 16), (64,)
    if name == "long":
        return Long(16, 128 if small else 2048, 64, 16), (64,)
    return Means(), (3, 224, 224)


class Slot:
    """One request in flight: page-locked input and output in fp32, and a graph from one to the other on the device."""

    def __init__(self, module, shape, device):
        self.cuda = device.type == "cuda"
        host_input = torch.randn(shape)
        self.host_input = host_input.pin_memory() if self.cuda else host_input
        self.input = torch.empty(shape, device=device)
        self.input.copy_(self.host_input)
        parameter = next(module.parameters(), self.input)
        images = parameter.dtype == torch.float16 and len(shape) == 4

        def compute():
            value = self.input.to(parameter.dtype, memory_format=torch.channels_last if images else torch.preserve_format)
            return module(value).float()
        self.compute, self.graph = compute, None
        output = self.capture() if self.cuda else compute()
        self.output = output
        self.host_output = torch.empty(output.shape, pin_memory=self.cuda)
        self.begun, self.done = ((torch.cuda.Event(enable_timing=True) for _ in range(2)) if self.cuda else (None, None))
        self.host_us = 0

    def capture(self):
        for _ in range(3):  # Tunes and allocates what a capture must not.
            self.compute()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=torch.cuda.current_stream()):  # Kernels get its priority.
            return self.compute()

    def submit(self):
        """Everything in the current stream; without a GPU it is done when this returns."""
        if not self.cuda:
            begin = time.monotonic()
            self.input.copy_(self.host_input)
            self.host_output.copy_(self.compute())
            self.host_us = 1e6 * (time.monotonic() - begin)
            return
        self.begun.record()
        self.input.copy_(self.host_input, non_blocking=True)
        self.graph.replay()
        self.host_output.copy_(self.output, non_blocking=True)
        self.done.record()

    def wait(self, spin):
        if not self.cuda:
            return
        if not spin:
            self.done.synchronize()
            return
        while not self.done.query():
            select.select((), (), (), 0)  # Lets the other thread have the interpreter. A sleep of 0 may take 50 us.

    def microseconds(self):
        """On the device, copies included, of the last time."""
        return 1e3 * self.begun.elapsed_time(self.done) if self.cuda else self.host_us


class Side:
    """A model on a stream of its own; the current stream of the thread that made it."""

    def __init__(self, name, rows, slots, high, options):
        self.rows = rows
        self.spin, self.stop = options["wait"] == "query", options["stop"]
        device = torch.device(options["device"])
        self.cuda = device.type == "cuda"
        self.priority = None
        if self.cuda:
            torch.cuda.set_device(device)
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
            torch.backends.cudnn.benchmark = True
            least, greatest = torch.cuda.Stream.priority_range()
            self.stream = torch.cuda.Stream(priority=greatest if high else least)
            self.priority = self.stream.priority
            torch.cuda.set_stream(self.stream)
        with torch.no_grad():
            module, shape = make(name, options["small"])
            module = module.eval().to(device)
            if self.cuda and name == "resnet50_b1":
                module = module.half().to(memory_format=torch.channels_last)
            self.slots = [Slot(module, (rows, *shape), device) for _ in range(slots)]
        if self.cuda:
            torch.cuda.synchronize()


def prepare(kind, name, rows, slots, options):
    """Begins the thread or process of a side. options: device, small, wait, and stop, an event that ends a batch phase."""
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.disable()
    if options["device"] == "cpu":
        torch.set_num_threads(1)
    sides[kind] = Side(name, rows, slots, kind == "latency", options)


def told(kind):
    return {"priority": sides[kind].priority, "input_bytes": sides[kind].slots[0].host_input.nbytes}


def wait_until(due):
    while (left := due - time.monotonic()) > 0:
        if left > SPIN_SECONDS:
            time.sleep(left - SPIN_SECONDS)
        else:
            select.select((), (), (), 0)


@torch.no_grad()
def calibrate(most):
    """Medians of single requests back to back: microseconds on the device, and from submission to answer."""
    side, device_us, answer_us = sides["latency"], [], []
    slot, end = side.slots[0], time.monotonic() + CALIBRATION_SECONDS
    while len(device_us) < most and (time.monotonic() < end or not device_us):
        begin = time.monotonic()
        slot.submit()
        slot.wait(side.spin)
        answer_us.append(1e6 * (time.monotonic() - begin))
        device_us.append(slot.microseconds())
    return float(np.median(device_us)), float(np.median(answer_us))


@torch.no_grad()
def latency_phase(begin, schedule, warmup, give_up):
    """Requests at `begin` + schedule, one at a time and in order. `us` is from the scheduled time, `answer_us` from when the
    request was taken from the queue, `late_us` how long that was after it came and the last one was answered: what Python
    adds by itself. What is not answered at `give_up` counts with the time it has waited by then."""
    side = sides["latency"]
    slot, spin, answered = side.slots[0], side.spin, begin
    found = {"us": [], "answer_us": [], "device_us": [], "late_us": [], "unanswered": 0}
    for at in schedule:
        due = begin + at
        wait_until(due)
        taken = time.monotonic()
        if taken >= give_up:
            found["unanswered"] += at >= warmup
            if at >= warmup:
                found["us"].append(1e6 * (taken - due))
            continue
        slot.submit()
        slot.wait(spin)
        last, answered = answered, time.monotonic()
        if at >= warmup:
            found["us"].append(1e6 * (answered - due))
            found["answer_us"].append(1e6 * (answered - taken))
            found["device_us"].append(slot.microseconds())
            found["late_us"].append(1e6 * (taken - max(due, last)))
    return found


@torch.no_grad()
def batch_phase(begin, window, give_up):
    """Batches in a closed loop from `begin` until stopped; rows a second in `window`. Times are of the monotonic clock."""
    side, ends, number = sides["batch"], [], 0
    wait_until(begin)
    while not side.stop.is_set() and time.monotonic() < give_up:
        slot = side.slots[number % len(side.slots)]
        if number >= len(side.slots):
            slot.wait(spin=False)
            ends.append(time.monotonic())
        slot.submit()
        number += 1
    for slot in side.slots[:number]:
        slot.wait(spin=False)
    # From one end to another, so that no part of a batch is lost.
    inside = [end for end in ends if window[0] <= end <= window[1]]
    seconds = inside[-1] - inside[0] if len(inside) > 1 else 0
    return (len(inside) - 1) * side.rows / seconds if seconds > 0 else 0.0
