#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's perf_analyzer against a server, in every mode that a user of it would try.

Goal: the tool that people measure other servers with measures this one, unchanged. Method: each mode for a second or two,
with the demo repository; a mode passes when the tool exits with 0, its requests were answered, and, for two processes of
different priority at once, the server counted both classes; the tool's collector of metrics must read each metric of GPUs
that the server exports (none without a GPU). Its figures are printed, not judged.
scripts/fetch_perf_analyzer.sh fetches the tool; scripts/long.sh perf_analyzer does both.
exit codes: 0 every mode passed, 1 one did not, 2 usage
"""
import argparse
import json
import re
import subprocess
import sys
import urllib.request

import server_process

# Name: arguments of each process that runs at once.
MODES = {
    "concurrency 1 to 4, synchronous": [["--concurrency-range=1:4:3"]],
    "concurrency 4, --async": [["--concurrency-range=4", "--async"]],
    "rate, constant": [["--request-rate-range=20", "--request-distribution=constant"]],
    "rate, poisson, --async": [["--request-rate-range=20", "--request-distribution=poisson", "--async"]],
    "streaming, concurrency 4": [["--streaming", "--concurrency-range=4"]],
    "streaming, rate": [["--streaming", "--request-rate-range=20"]],
    "batch of 4": [["-b", "4", "--concurrency-range=2"]],
    "p99, with a timeout parameter": [["--percentile=99", "--concurrency-range=2", "--request-parameter", "timeout:5000000:int"]],
    "gzip": [["--concurrency-range=2", "--grpc-compression-algorithm", "gzip"]],
    "--shared-memory=system": [["--concurrency-range=2", "--shared-memory=system", "--output-shared-memory-size=4096"]],
    "two processes, priority 1 and 3": [["--concurrency-range=1", "--request-parameter", "priority:1:int"],
                                        ["--concurrency-range=2", "--request-parameter", "priority:3:int"]],
    "--collect-metrics": [["--concurrency-range=2", "--collect-metrics", "--metrics-interval=500"]],
}
SERVER_FLAGS = ["--shared-memory=system"]  # What the modes need of the server.
SHORT = ["--measurement-interval=1000", "--stability-percentage=999", "--max-trials=4"]
SECONDS = 120
GPU_METRICS = {"nv_gpu_utilization", "nv_gpu_power_usage", "nv_gpu_memory_used_bytes", "nv_gpu_memory_total_bytes"}


def scrape(server):
    return urllib.request.urlopen(f"{server.metrics}/metrics").read().decode()


def check_collected(server, output):
    """Why the tool did not collect what the server exports; None if it did. It warns once of each metric it did not find."""
    exported = {name for name in GPU_METRICS if f"\n{name}{{" in scrape(server)}
    missed = set(re.findall(r"Unable to parse '(\w+)' metric", output))
    if missed == GPU_METRICS - exported:
        return None
    return f"the server exports {sorted(exported)}, the tool missed {sorted(missed)}"


def count_by_class(server, model):
    """Answered requests of each class, from the metrics port."""
    counts = {}
    for line in scrape(server).splitlines():
        found = re.match(r'sluice_requests_total\{(.*)\} (\S+)', line)
        if found and f'model="{model}"' in found[1] and 'code="OK"' in found[1]:
            name = re.search(r'class="(\w+)"', found[1])[1]
            counts[name] = counts.get(name, 0) + float(found[2])
    return counts


def read_report(text):
    """The last level's figures as (requests, requests a second, p99 in us)."""
    def last(pattern):
        found = re.findall(pattern, text)
        return float(found[-1]) if found else None
    return (last(r"Request count: (\d+)"), last(r"Throughput: ([\d.]+) infer/sec"), last(r"p99 latency: (\d+) usec"))


def run_mode(tool, server, model, processes):
    """(why it failed or None, [report of each process], [output of each process])"""
    started = []
    for arguments in processes:
        command = [tool, "-m", model, "-i", "grpc", "-u", server.grpc, *SHORT, *arguments]
        if "--collect-metrics" in arguments:
            command.append(f"--metrics-url={server.metrics.removeprefix('http://')}/metrics")
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    outputs, why = [], None
    for process in started:
        try:
            outputs.append(process.communicate(timeout=SECONDS)[0])
        except subprocess.TimeoutExpired:
            process.kill()
            outputs.append(process.communicate()[0])
            why = f"took longer than {SECONDS} s"
    reports = [read_report(output) for output in outputs]
    if why is None and any(process.returncode != 0 for process in started):
        why = "exit " + ", ".join(str(process.returncode) for process in started)
    if why is None and not all(report[0] for report in reports):
        why = "no request was counted"
    return why, reports, outputs


def run_modes(tool, server, model):
    """Every mode in turn, with its figures as a table: [row of each process], and how many modes failed."""
    rows, failed = [], 0
    for name, processes in MODES.items():
        print(f"-- {name}", file=sys.stderr, flush=True)
        before = count_by_class(server, model)
        why, reports, outputs = run_mode(tool, server, model, processes)
        after = count_by_class(server, model)
        answered = {key: int(after[key] - before.get(key, 0)) for key in after if after[key] > before.get(key, 0)}
        if why is None and len(processes) == 2 and not {"latency", "batch"} <= answered.keys():
            why = f"the server answered {answered}, not both classes"
        if why is None and "--collect-metrics" in processes[0]:
            why = check_collected(server, outputs[0])
        if why is not None:
            failed += 1
            print(*(output[-2000:] for output in outputs), sep="\n", file=sys.stderr)
        for report in reports:
            rows.append({"mode": name, "requests": report[0], "per_second": report[1], "p99_us": report[2],
                         "answered_by_class": answered, "failed": why})
    print_rows(rows)
    return rows, failed


def print_rows(rows):
    width = max(len(name) for name in MODES)
    print(f"{'mode':{width}}  {'requests':>8}  {'a second':>8}  {'p99 us':>8}  {'answered in all':32}  result")
    for row in rows:
        figures = "  ".join(f"{'-' if row[key] is None else format(row[key], '.0f'):>8}"
                            for key in ("requests", "per_second", "p99_us"))
        classes = ", ".join(f"{key} {count}" for key, count in sorted(row["answered_by_class"].items()))
        print(f"{row['mode']:{width}}  {figures}  {classes:32}  {row['failed'] or 'passed'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="path of sluice-server")
    parser.add_argument("--perf-analyzer", required=True, help="path of perf_analyzer, or of what starts it")
    parser.add_argument("--devices", default="host", help="the server's devices (default: %(default)s)")
    parser.add_argument("--model", default="filetype", help="of the repository (default: %(default)s)")
    parser.add_argument("--json", help="write the results to this file")
    arguments = parser.parse_args()
    server = server_process.ServerProcess(arguments.server, "--devices", arguments.devices, *SERVER_FLAGS)
    try:
        rows, failed = run_modes(arguments.perf_analyzer, server, arguments.model)
    finally:
        code = server.stop()
    print(f"the server ended with {code}")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"rows": rows, "server_exit": code}, file, indent=2)
    sys.exit(1 if failed or code != 0 else 0)


if __name__ == "__main__":
    main()
