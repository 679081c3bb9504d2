#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the include direction of the source tree (ARCHITECTURE.md, "Include direction").

usage: check_includes.py [--help] [--json] [ROOT]
exit codes: 0 every include is allowed, 1 some are not, 2 usage
"""
import json
import pathlib
import re
import sys

# What a benchmark may see that is in one process with what it measures; never the wire.
BENCH_INSIDE = ["base", "bench/common", "client", "gpu", "model", "server/execution", "server/metrics", "server/repository",
                "server/scheduler", "server/config.h", "server/container_memory.h", "server/infer_request.h",
                "server/repository_control.h", "server/response_pool.h", "server/served_model.h", "server/shared_memory.h",
                "server/spin_budget.h"]
# folder -> folders whose headers it may include. The longest matching folder decides.
ALLOWED = {
    "base": ["base"],
    "proto": [],
    "gpu": ["base", "gpu"],
    "model": ["base", "gpu", "model"],
    "server/scheduler": ["base", "server/scheduler"],
    "server/metrics": ["base", "server/metrics"],
    "server/repository": ["base", "model", "server/repository", "server/served_model.h"],
    "server/rpc": ["base", "server/rpc", "server/infer_request.h", "server/listen_options.h", "server/repository_control.h",
                   "server/response_pool.h", "server/served_model.h", "server/shared_memory.h"],
    "server": ["base", "gpu", "model", "server"],
    "client": ["base", "client"],
    "examples": ["base", "client", "examples"],
    "bench": ["base", "bench", "client"],
    "bench/common": BENCH_INSIDE,
    "bench/isolation": [*BENCH_INSIDE, "bench/isolation"],
    "bench/pipeline": [*BENCH_INSIDE, "bench/pipeline"],
    "bench/plans": [*BENCH_INSIDE, "bench/plans"],
}
# Third-party header patterns -> folders that may include them.
GUARDED = [
    (re.compile(r"^(grpc|grpcpp|google/protobuf)/|\.pb\.h$"),
     ["proto", "server/rpc", "server/repository", "server/execution/statistics.cc",
      "server/served_model.h", "client", "bench", "tests"]),
    (re.compile(r"^prometheus/|^CivetServer\.h$"), ["server/metrics"]),
    (re.compile(r"^openssl/"), ["server/rpc", "tests"]),
    (re.compile(r"^(cuda|cublas|cudnn|nvml)\w*\.h$"), ["gpu/cuda", "gpu/kernels"]),
    (re.compile(r"^oneapi/|^dnnl"), ["gpu/kernels"]),
    (re.compile(r"^omp\.h$"), ["gpu/host", "gpu/kernels"]),
    (re.compile(r"^CLI/"), ["server", "client", "examples", "bench", "tests"]),
]
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')


def inside(path, folder):
    return path == folder or path.startswith(folder + "/")


def rule_of(path):
    matches = [folder for folder in ALLOWED if inside(path, folder)]
    return max(matches, key=len) if matches else None


def check(root):
    problems = []
    for file in sorted(root.rglob("*")):
        path = file.relative_to(root).as_posix()
        if file.suffix not in (".h", ".cc", ".cu", ".cuh") or path.startswith(("build/", ".venv/", "tests/")):
            continue
        folder = rule_of(path)
        if folder is None:
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            header = match.group(2)
            where = f"{path}:{number}"
            if rule_of(header) is not None and match.group(1) == '"' and (root / header).exists():
                if not any(inside(header, allowed) for allowed in ALLOWED[folder]):
                    problems.append((where, header, f"{folder} may include only {', '.join(ALLOWED[folder]) or 'nothing'}"))
            for pattern, folders in GUARDED:
                if pattern.search(header):
                    if pattern.search("cuda.h") and file.suffix in (".cu", ".cuh"):
                        continue
                    if not any(inside(path, allowed) for allowed in folders):
                        problems.append((where, header, f"only {', '.join(folders)} may include it"))
    return problems


def main():
    arguments = [a for a in sys.argv[1:] if a != "--json"]
    if "--help" in arguments or "-h" in arguments:
        print(__doc__.strip())
        return 0
    if len(arguments) > 1:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    root = pathlib.Path(arguments[0]) if arguments else pathlib.Path(__file__).resolve().parent.parent
    problems = check(root)
    if "--json" in sys.argv:
        print(json.dumps([dict(zip(("where", "header", "rule"), p)) for p in problems]))
    else:
        for where, header, rule in problems:
            print(f"{where}: includes {header}, but {rule}")
        print(f"include direction: {len(problems)} problem{'s' if len(problems) != 1 else ''}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
