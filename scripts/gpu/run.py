#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the checks of a machine with a GPU, one after the other, and prints one table.

steps, in the order they run:
  conformance  the device suite on the CUDA device              memcheck    it and the kernels under compute-sanitizer
  kernels      the CUDA kernels against the host's              priorities  what the streams' priorities read back as
  numerics     every model, every class, against ONNX Runtime   load        two classes: R99 and W
  copies       a large latency input beside batch copies        overhead    front end: client minus echo minus device
  pipeline     lanes, gate and transfers without gRPC           cupti       legacy default stream and allocations
  trap         a kernel that kills the device                racecheck   hazards of our kernels in shared memory
  parity       exported networks against ONNX Runtime
of a run of its own, so only when named:
  torch        five networks, tuned, against PyTorch: outputs and graph replay (needs torch, torchvision, transformers)
  isolation    the promise: R99 and W cell by cell, the ladder of mechanisms, PyTorch beside them
  soak         many minutes of both classes: p99 and memory must not grow
  control      a latency model while another is loaded and unloaded in turns
  uploads      a latency model while 64 clients upload large batch requests, on a port of its own and on theirs
  gpu_metrics  nv_gpu_* beside nvidia-smi, and what reading them costs the latency class
  perf_analyzer  NVIDIA's load generator in every mode (needs --flags "perf_analyzer:--perf-analyzer PATH")
  networks     ResNet-50 beside batches of ResNet-50 and BERT, time until ready, memory (needs the same)
exit codes: 0 every step passed, 1 one did not, 2 usage
"""
import argparse
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import machine as machines

HERE = pathlib.Path(__file__).resolve().parent
GTEST_NOISE = ("[ RUN ", "[       OK", "[----------]")


class LeftOut(Exception):
    """The step cannot run here, with the reason."""


def needed(machine, name):
    path = machine.program(name)
    if path is None:
        raise LeftOut(f"{name} is not there")
    return str(path)


def script(name):
    def command(machine, arguments):
        return [sys.executable, str(HERE / name), "--programs", str(machine.programs), "--devices", machine.devices,
                "--work", str(machine.work), "--models", str(machine.repository), f"--server-flags={arguments.server_flags}"]
    return command


def suite(name):
    def command(machine, arguments):
        if not machine.cuda:
            raise LeftOut("needs a CUDA device")
        return [needed(machine, name)]
    return command


def sanitizer(suites, *flags):
    """Suites under one tool of compute-sanitizer."""
    def command(machine, arguments):
        if not machine.cuda:
            raise LeftOut("needs a CUDA device")
        program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        if not os.access(program, os.X_OK):
            raise LeftOut("compute-sanitizer was not found")
        check = [program, "--error-exitcode", "1", *flags]
        return ["bash", "-ec", "; ".join(shlex.join([*check, needed(machine, name), *more]) for name, *more in suites)]
    return command


# Calls that the driver refuses are part of the suite (foreign memory, a size no device has): only memory counts.
memcheck = sanitizer([["conformance_cuda"], ["kernels_cuda"]], "--tool", "memcheck", "--report-api-errors", "no",
                     "--leak-check", "full")
# Of our own kernels, where they have shared memory. The tool fails inside cuBLASLt's kernels for halves ("Internal
# Sanitizer Error"), so tests that call those are left out.
SHARING = ("Attention.*", "Half.RowsAndColumns*", "LayerNorm.*", "Softmax.*", "BatchNorm.*", "MatMul.*", "Transpose.*",
           "Reduce.*", "ArgReduce.*", "Large.Reduce", "Large.ArgReduce", "Large.Normalize", "Large.Transpose")
racecheck = sanitizer([["kernels_cuda", "--gtest_filter=" + ":".join(SHARING)],
                       ["kernels_cuda", "--gtest_filter=Half.FewRows*"]], "--tool", "racecheck", "--kernel-name",
                      "kns=sluice")

# Name: (what makes its command, seconds it may take).
STEPS = {
    "conformance": (suite("conformance_cuda"), 120), "kernels": (suite("kernels_cuda"), 180), "memcheck": (memcheck, 300),
    "racecheck": (racecheck, 180),
    "priorities": (script("priorities.py"), 90), "numerics": (script("numerics.py"), 180),
    "parity": (script("parity.py"), 120), "load": (script("load.py"), 450),
    "copies": (script("copies.py"), 90), "overhead": (script("overhead.py"), 120),
    "pipeline": (script("pipeline.py"), 200), "cupti": (script("cupti.py"), 150),
    "trap": (script("trap.py"), 90), "torch": (script("torch_peer.py"), 560),
    "networks": (script("networks.py"), 400), "isolation": (script("isolation.py"), 590),
    "soak": (script("soak.py"), 3600), "control": (script("control.py"), 240),
    "uploads": (script("uploads.py"), 240), "gpu_metrics": (script("gpu_metrics.py"), 150),
    "perf_analyzer": (script("perf_analyzer.py"), 240),
}
# Minutes on its own, and packages that the others do not need.
ONLY_WHEN_NAMED = ("torch", "networks", "isolation", "soak", "control", "uploads", "gpu_metrics", "perf_analyzer")
# Suites run with this environment and no Python in between.
BARE = ("conformance", "kernels", "memcheck", "racecheck")
NEED_MODELS = ("priorities", "numerics", "load", "copies", "overhead", "pipeline", "cupti", "trap", "isolation", "soak",
               "control", "uploads", "gpu_metrics", "perf_analyzer")


def show_machine(machine, programs):
    print(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), f"devices {machine.devices}, {os.cpu_count()} CPUs,",
          "programs from", programs, flush=True)
    if shutil.which("nvidia-smi"):
        subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem,temperature.gpu,"
                        "power.draw", "--format=csv"], check=False)
    if machine.cuda:
        for library in machines.CUDA_LIBRARIES:
            folder = machine.cuda_folders.get(library)
            print(f"lib{library}:", "NOT FOUND" if folder is None else folder or "known to the loader")
    if machine.server_cpus != machine.client_cpus:
        print(f"CPUs of servers: {len(machine.server_cpus)}, of clients: {len(machine.client_cpus)} (steps that say so: others)")
    print("LD_LIBRARY_PATH of the programs:", machine.environment.get("LD_LIBRARY_PATH", ""), flush=True)


def run_step(name, command, environment, limit, log_path):
    """(passed, seconds, summary)."""
    begin = time.monotonic()
    with open(log_path, "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = f"stopped after its {limit} s"
        # Its servers too, also those of a step that died: they belong to its session.
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    lines = log_path.read_text(errors="replace").splitlines()
    said = [line[len("summary: "):] for line in lines if line.startswith("summary: ")]
    said += [line.strip("= ") for line in lines
             if line.startswith(("[  PASSED  ]", "[  SKIPPED ]", "[  FAILED  ]")) and " test" in line or "ERROR SUMMARY" in line]
    return code == 0, time.monotonic() - begin, "; ".join(said[-4:]) if code == 0 or said else f"exit {code}"


def show_log(log_path, passed, lines_of_failure):
    lines = [line for line in log_path.read_text(errors="replace").splitlines() if not line.startswith(GTEST_NOISE)]
    shown = lines[-lines_of_failure:] if not passed else lines[-100:]
    print("\n".join(line[:400] for line in shown), flush=True)


def parse_flags():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", required=True, help="an unpacked bundle, or a build folder")
    parser.add_argument("--steps", default=",".join(step for step in STEPS if step not in ONLY_WHEN_NAMED),
                        help=f"comma-separated (default: all but {', '.join(ONLY_WHEN_NAMED)})")
    parser.add_argument("--devices", default="cuda:0", help="as the server's flag (default: %(default)s)")
    parser.add_argument("--models", help="folder of scripts/generate_gpu_models.sh; generated when left out")
    parser.add_argument("--small-models", action="store_true", help="generate shallow models, for a small machine")
    parser.add_argument("--server-flags", default="", help="more flags for every server, separated by spaces")
    parser.add_argument("--flags", action="append", default=[], metavar="STEP:FLAGS",
                        help="more flags for one step, as 'load:--seconds 2 --classes batch'; repeatable")
    parser.add_argument("--json", type=pathlib.Path, help="write everything measured to this file")
    parser.add_argument("--logs", type=pathlib.Path, help="keep the steps' logs and traces in this folder")
    parser.add_argument("--limit-seconds", type=float, default=570, help="start no step after this (default: %(default)s)")
    parser.add_argument("--tail", type=int, default=80, help="lines shown of a failed step's log")
    arguments = parser.parse_args()
    arguments.steps = arguments.steps.split(",")
    arguments.extra = {}
    for entry in arguments.flags:
        step, _, flags = entry.partition(":")
        arguments.extra.setdefault(step, []).extend(shlex.split(flags))
    unknown = [step for step in [*arguments.steps, *arguments.extra] if step not in STEPS]
    if unknown:
        parser.error(f"unknown steps: {', '.join(unknown)}; known are {', '.join(STEPS)}")
    return arguments


def generate_models(machine, arguments):
    if arguments.models or not set(arguments.steps) & set(NEED_MODELS):
        return
    begin = time.monotonic()
    command = ["bash", str(machines.ROOT / "scripts" / "generate_gpu_models.sh"), str(machine.repository)]
    command += ["--small"] if arguments.small_models else []
    command += [f"--{step}" for step in ("pipeline", "isolation") if step in arguments.steps]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL,
                   env=dict(os.environ, PYTHON=sys.executable))
    print(f"models generated in {time.monotonic() - begin:.0f} s", flush=True)


def run_steps(machine, arguments, begin):
    results = []
    for name in [step for step in STEPS if step in arguments.steps]:
        make, limit = STEPS[name]
        left = arguments.limit_seconds - (time.monotonic() - begin)
        try:
            if left < 5:
                raise LeftOut("no time was left")
            command = make(machine, arguments) + arguments.extra.get(name, [])
        except LeftOut as reason:
            results.append((name, "left out", 0.0, str(reason)))
            continue
        print(f"\n== {name}", flush=True)
        environment = machine.environment if name in BARE else dict(os.environ, PYTHONUNBUFFERED="1")
        log = machine.work / f"{name}.log"
        passed, seconds, summary = run_step(name, command, environment, min(limit, left), log)
        show_log(log, passed, arguments.tail)
        results.append((name, "passed" if passed else "FAILED", seconds, summary))
    return results


def main():
    arguments = parse_flags()
    begin = time.monotonic()
    work = pathlib.Path(tempfile.mkdtemp(prefix="sluice-gpu-"))
    try:
        machine = machines.Machine(arguments.programs, arguments.devices, work, arguments.models)
        show_machine(machine, arguments.programs)
        generate_models(machine, arguments)
        results = run_steps(machine, arguments, begin)
        if arguments.json:
            document = {step: json.loads((work / f"{step}.json").read_text()) for step in STEPS
                        if (work / f"{step}.json").exists()}
            document["steps"] = [dict(zip(("step", "result", "seconds", "summary"), row)) for row in results]
            arguments.json.write_text(json.dumps(document))
        if arguments.logs:
            arguments.logs.mkdir(parents=True, exist_ok=True)
            for kept in [*work.glob("*.log"), *work.glob("*-trace.json")]:
                shutil.copy(kept, arguments.logs)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if shutil.which("nvidia-smi"):
        subprocess.run(["nvidia-smi", "--query-gpu=clocks.sm,temperature.gpu,power.draw", "--format=csv,noheader"], check=False)
    print()
    print(machines.table(("step", "result", "s", "summary"),
                         [(name, result, f"{seconds:.0f}", summary[:300]) for name, result, seconds, summary in results]))
    return 1 if any(result == "FAILED" for _, result, _, _ in results) else 0


if __name__ == "__main__":
    sys.exit(main())
