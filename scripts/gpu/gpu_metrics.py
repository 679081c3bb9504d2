#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Step gpu_metrics: the metrics nv_gpu_* beside what nvidia-smi says, and what reading them costs the latency class.

Two servers take turns, with and without --allow-gpu-metrics, each pair of phases with one schedule of arrivals; the ratio
of their middle p99 (server times) is printed, not judged. Memory must agree with nvidia-smi to 2 % of the whole, power and
utilization be in the device's range, and each metric be there once for each GPU, with the UUID that nvidia-smi says.
"""
import subprocess

import machine as machines

MEMORY_SHARE = 0.02
QUERY = ("uuid", "memory.total", "memory.used", "power.draw", "power.limit", "utilization.gpu")


def ask_nvidia_smi():
    """{uuid: {field: number}} with memory in bytes."""
    text = subprocess.run(["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits"], text=True,
                          stdout=subprocess.PIPE, check=True).stdout
    gpus = {}
    for line in text.splitlines():
        uuid, *values = [part.strip() for part in line.split(",")]
        gpus[uuid] = dict(zip(QUERY[1:], map(float, values)))
        for field in ("memory.total", "memory.used"):
            gpus[uuid][field] *= 1 << 20
    return gpus


def compare(exported, gpus):
    """Rows of a table, and what does not agree."""
    rows, wrong = [], []

    def check(metric, field, agrees):
        found = {labels.split('"')[1]: value for (family, labels), value in exported.items() if family == metric}
        if set(found) - set(gpus) or not found:
            wrong.append(f"{metric} is there for {sorted(found)}, nvidia-smi knows {sorted(gpus)}")
        for uuid in sorted(set(found) & set(gpus)):
            rows.append((metric, f"{found[uuid]:.6g}", f"{gpus[uuid][field]:.6g}"))
            if not agrees(found[uuid], gpus[uuid]):
                wrong.append(f"{metric} of {uuid}")
    check("nv_gpu_memory_total_bytes", "memory.total",
          lambda value, gpu: abs(value - gpu["memory.total"]) <= MEMORY_SHARE * gpu["memory.total"])
    check("nv_gpu_memory_used_bytes", "memory.used",
          lambda value, gpu: abs(value - gpu["memory.used"]) <= MEMORY_SHARE * gpu["memory.total"])
    check("nv_gpu_power_usage", "power.draw", lambda value, gpu: 0 < value <= 1.2 * gpu["power.limit"])
    check("nv_gpu_power_limit", "power.limit", lambda value, gpu: abs(value - gpu["power.limit"]) < 1)
    check("nv_gpu_utilization", "utilization.gpu", lambda value, gpu: 0 <= value <= 1)
    return rows, wrong


def main():
    parser = machines.step_parser(__doc__)
    machines.add_phase_flags(parser, model="filetype", rate=500, rounds=5, seconds=4)
    arguments = parser.parse_args()
    machine = machines.from_flags(arguments)
    servers = {kind: machines.Paused(machine.start_server(f"--allow-gpu-metrics={kind}")) for kind in ("true", "false")}
    parts = {kind: [] for kind in servers}
    try:
        for round_index in range(arguments.rounds):
            for kind, paused in servers.items():
                with paused as server:
                    parts[kind].append(machines.latency_phase(machine, server.grpc, arguments, round_index))
        with servers["true"] as server:
            machines.latency_phase(machine, server.grpc, arguments, arguments.rounds)  # So that the values are of now.
            rows, wrong = compare(machines.metrics(server), ask_nvidia_smi())
    finally:
        codes = [paused.stop() for paused in servers.values()]
    print(machines.table(("metric", "exported", "nvidia-smi"), rows))
    names = {"true": "read every second", "false": "off"}
    print(machines.table(("nv_gpu_*", *machines.LATENCY_COLUMNS, "p99 ms in the server"), [
        (*machines.latency_row(names[kind], parts[kind]), f"{machines.middle(parts[kind], 'server', 'total', 'p99_ms'):.3f}")
        for kind in parts]))
    print(*wrong, sep="\n")
    ratio = (machines.middle(parts["true"], "server", "total", "p99_ms") /
             machines.middle(parts["false"], "server", "total", "p99_ms"))
    machines.finish(machine, "gpu_metrics", not wrong and codes == [0, 0],
                    f"{len(rows)} values beside nvidia-smi's, {len(wrong)} wrong; p99 with them over without {ratio:.3f}",
                    {"rows": rows, "wrong": wrong, "ratio": ratio, "parts": parts})


if __name__ == "__main__":
    main()
