# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Where the programs are, what they need to run here, and how to run a server and a load: shared by the steps."""
import argparse
import contextlib
import glob
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "interop"))
import server_process  # noqa: E402: the path is set above

CUDA_LIBRARIES = ("cublasLt", "cudnn", "cupti")


def cuda_library_folders():
    """{library: folder} for CUDA's large libraries, which are not bundled. Empty string: the loader knows it."""
    candidates = ["/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib",
                  "/usr/local/cuda/extras/CUPTI/lib64", "/usr/lib/x86_64-linux-gnu"]
    for entry in sys.path:
        candidates += sorted(glob.glob(os.path.join(entry, "nvidia", "*", "lib")))
    # The loader's own list and path, not ctypes.util: that also asks the compiler, which looks in folders of its own.
    listed = subprocess.run(["/sbin/ldconfig", "-p"], text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    known_folders = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))
    known = listed + " ".join(path for folder in known_folders for path in glob.glob(os.path.join(folder, "lib*")))
    found = {}
    for library in CUDA_LIBRARIES:
        if f"lib{library}.so." in known:
            found[library] = ""
            continue
        for folder in candidates:
            if glob.glob(os.path.join(folder, f"lib{library}.so.*")):
                found[library] = folder
                break
    return found


def split_cpus(client_share=0.25):
    """(CPUs of servers, CPUs of clients). From eight CPUs on they are apart: clients on the CPUs of threads that poll would be
    part of what they measure."""
    cpus = sorted(os.sched_getaffinity(0))
    clients = int(len(cpus) * client_share)
    return (cpus[:-clients], cpus[-clients:]) if len(cpus) >= 8 else (cpus, cpus)


@contextlib.contextmanager
def on_cpus(cpus):
    """What is started meanwhile runs on these CPUs only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Machine:
    """The programs of a bundle or a build folder, on this machine."""

    def __init__(self, programs, devices, work, models=None, server_flags=()):
        self.programs = pathlib.Path(programs)
        self.devices = devices
        self.work = pathlib.Path(work)
        self.repository = pathlib.Path(models) if models else self.work / "repository"
        self.server_flags = list(server_flags)
        # Only for our programs: this machine's Python must keep its own libstdc++.
        folders = [str(self.programs / "lib")] if (self.programs / "lib").is_dir() else []
        self.cuda_folders = cuda_library_folders()
        folders += sorted({folder for folder in self.cuda_folders.values() if folder})
        self.server_cpus, self.client_cpus = split_cpus()
        self.found = {}
        self.environment = dict(os.environ, REQUIRE_GPU="1" if self.cuda else "0")
        if folders:
            known = os.environ.get("LD_LIBRARY_PATH")
            self.environment["LD_LIBRARY_PATH"] = ":".join(folders + ([known] if known else []))
        module = self.program("libsluice_cuda_device.so")
        if module:
            self.environment["SLUICE_CUDA_MODULE"] = str(module)

    @property
    def cuda(self):
        return self.devices.startswith("cuda")

    def program(self, name):
        """Path of a program, None when it is not there."""
        if name not in self.found:
            bundled = self.programs / "bin" / name
            candidates = [bundled] if bundled.exists() else sorted(self.programs.rglob(name))
            runnable = [path for path in candidates if path.is_file() and os.access(path, os.X_OK)]
            self.found[name] = runnable[0] if runnable else None
        return self.found[name]

    def module_flags(self):
        """What tells one of our programs where the CUDA module is, when it may not lie beside it."""
        module = self.program("libsluice_cuda_device.so")
        return ["--cuda-module", str(module)] if self.cuda and module else []

    def start_server(self, *flags, repository=None, environment=None):
        """A server that is ready; raises RuntimeError with its log when it does not get there."""
        all_flags = ["--devices", self.devices, *self.module_flags(), *self.server_flags, *flags]
        with on_cpus(self.server_cpus):
            return server_process.ServerProcess(
                str(self.program("sluice-server")), *all_flags, repository=repository or self.repository / "models",
                environment=dict(self.environment, **(environment or {})))

    def sluice(self, *arguments, timeout=300, check=True):
        """Runs the command line client; returns the finished process with its output as text."""
        with on_cpus(self.client_cpus):
            return subprocess.run([str(self.program("sluice")), *map(str, arguments)], env=self.environment, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout, check=check)

    def load(self, url, streams, phases, seconds, warmup, *flags):
        """One `sluice load`; returns its JSON document."""
        command = ["load", "--url", url, "--phases", ",".join(phases), "--phase-seconds", seconds,
                   "--warmup-seconds", warmup, "--drain-seconds", 3, "--connections", 4, "--threads", 2,
                   "--timings", "--json", "-", *flags]
        for stream in streams:
            command += ["--stream", stream]
        done = self.sluice(*command, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"sluice {' '.join(map(str, command))}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return json.loads(done.stdout)


def add_phase_flags(parser, model, rate, rounds, seconds):
    """Of steps that compare phases of one latency stream."""
    parser.add_argument("--model", default=model, help="the latency model (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=rate, help="latency requests per second (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=rounds, help="of the phases, in turns (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=seconds, help="measured time of a phase (default: %(default)s)")


def latency_phase(machine, url, arguments, seed, warmup=0.5):
    """One phase of it, alone as far as `sluice load` knows; equal seeds have equal arrivals. Its stream's results."""
    stream = f"name=latency,class=latency,model={arguments.model},rate={arguments.rate}"
    document = machine.load(url, [stream], ["alone"], arguments.seconds, warmup, "--seed", seed)
    return document["phases"][0]["streams"][0]


def middle(parts, *keys):
    """The median over results of phases of one of their numbers, in ms; 0 where nothing was counted."""
    def pick(part):
        for key in keys:
            part = part.get(key, 0)
        return part
    return statistics.median(map(pick, parts))


def latency_row(name, parts):
    """Of a table with the columns LATENCY_COLUMNS: client times."""
    return (name, sum(part["latency"]["n"] for part in parts), f"{middle(parts, 'latency', 'p50_ms'):.3f}",
            f"{middle(parts, 'latency', 'p99_ms'):.3f}", f"{max(part['latency']['max_ms'] for part in parts):.3f}")


LATENCY_COLUMNS = ("n", "p50 ms", "p99 ms", "max ms")


def metrics(server):
    """/metrics as {(family, labels text): value}."""
    text = urllib.request.urlopen(server.metrics + "/metrics", timeout=10).read().decode()
    values = {}
    for line in text.splitlines():
        match = re.match(r"^(\w+)(\{.*\})? (\S+)$", line)
        if match:
            values[match.group(1), match.group(2) or ""] = float(match.group(3))
    return values


class Paused:
    """A second server that must not take cores while the first is measured: stopped except inside `with`."""

    def __init__(self, server):
        self.server = server
        server.process.send_signal(signal.SIGSTOP)

    def __enter__(self):
        self.server.process.send_signal(signal.SIGCONT)
        return self.server

    def __exit__(self, *_):
        self.server.process.send_signal(signal.SIGSTOP)

    def stop(self):
        self.server.process.send_signal(signal.SIGCONT)
        return self.server.stop()


def add_flags(parser):
    parser.add_argument("--programs", required=True, help="an unpacked bundle, or a build folder")
    parser.add_argument("--devices", default="cuda:0", help="as the server's flag (default: %(default)s)")
    parser.add_argument("--work", required=True, help="folder for what the steps write")
    parser.add_argument("--models", help="folder written by scripts/generate_gpu_models.sh (default: WORK/repository)")
    parser.add_argument("--server-flags", default="", help="more flags for every server, separated by spaces")


def from_flags(arguments):
    return Machine(arguments.programs, arguments.devices, arguments.work, arguments.models,
                   arguments.server_flags.split())


def step_parser(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_flags(parser)
    return parser


def table(header, rows):
    """Text columns, numbers to the right."""
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    numeric = [all(re.fullmatch(r"-|[-+]?[0-9.]+", row[i]) for row in cells[1:]) for i in range(len(header))]
    return "\n".join("  ".join(cell.rjust(width) if right else cell.ljust(width)
                               for cell, width, right in zip(row, widths, numeric)).rstrip() for row in cells)


def finish(machine, step, passed, summary, document=None):
    """Ends a step: its line of the table, its JSON, its exit code."""
    if document is not None:
        (machine.work / f"{step}.json").write_text(json.dumps(document, indent=1))
    print(f"summary: {summary}")
    sys.exit(0 if passed else 1)
