#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Step uploads: what a latency model's clients feel while others upload large batch requests as fast as they can.

Three phases take turns: the latency stream alone, beside the uploads on a port of its own (--latency-port), and beside them
on the port they use. R99 is the middle p99 of a kind of phase over the middle p99 alone (client times). With eight CPUs or
more the server has half of them and the clients the rest.
"""
import json
import statistics
import subprocess

import machine as machines

R99_LIMIT = 2.0
ROW_BYTES = 602112  # of model copy
KINDS = ("alone", "own port", "shared port")


class Uploads:
    """A `sluice load` of its own that uploads until it is stopped."""

    def __init__(self, machine, url, connections, rows, seconds):
        self.log = machine.work / "uploads.json"
        stream = f"name=uploads,class=batch,model=copy,concurrency={connections},batch={rows}"
        command = ["load", "--url", url, "--phases", "batch-alone", "--phase-seconds", seconds, "--warmup-seconds", 0,
                   "--drain-seconds", 60, "--connections", min(connections, 64), "--threads", 4, "--json", self.log,
                   "--stream", stream]
        with machines.on_cpus(machine.client_cpus):
            self.process = subprocess.Popen([str(machine.program("sluice")), *map(str, command)], env=machine.environment,
                                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def finish(self):
        """Its stream's results."""
        _, errors = self.process.communicate()
        if self.process.returncode != 0:
            raise RuntimeError(f"uploads: {errors[-2000:]}")
        return json.loads(self.log.read_text())["phases"][0]["streams"][0]


def main():
    parser = machines.step_parser(__doc__)
    machines.add_phase_flags(parser, model="mlp24", rate=100, rounds=3, seconds=6)
    parser.add_argument("--connections", type=int, default=64, help="that upload, a request on each (default: %(default)s)")
    parser.add_argument("--megabytes", type=float, default=16, help="MiB of an upload (default: %(default)s)")
    arguments = parser.parse_args()
    machine = machines.from_flags(arguments)
    machine.server_cpus, machine.client_cpus = machines.split_cpus(client_share=0.5)
    rows = max(1, int(arguments.megabytes * (1 << 20) / ROW_BYTES))
    server = machine.start_server("--latency-port", "0")
    own = f"127.0.0.1:{server.ready['latency_port']}"
    parts, uploads = {kind: [] for kind in KINDS}, []

    def phase(kind, seed):
        url = own if kind == "own port" else server.grpc
        beside = None
        if kind != "alone":
            beside = Uploads(machine, server.grpc, arguments.connections, rows, arguments.seconds + 3)
        parts[kind].append(machines.latency_phase(machine, url, arguments, seed, warmup=2))
        if beside:
            uploads.append(beside.finish())

    try:
        for seed in range(arguments.rounds):
            for kind in KINDS:
                phase(kind, seed)
    finally:
        code = server.stop()
    r99 = {kind: machines.middle(parts[kind], "latency", "p99_ms") / machines.middle(parts["alone"], "latency", "p99_ms")
           for kind in KINDS}
    errors = sum(sum(part["errors"].values()) for kind in KINDS for part in parts[kind])
    print(machines.table(("phase", *machines.LATENCY_COLUMNS, "R99"),
                         [(*machines.latency_row(kind, parts[kind]), f"{r99[kind]:.3f}") for kind in KINDS]))
    rate = statistics.median(part["rows_per_second"] for part in uploads) * ROW_BYTES / 1e9
    refused = sum(sum(part["errors"].values()) for part in uploads)
    print(f"uploads: {arguments.connections} connections, {rows * ROW_BYTES / (1 << 20):.1f} MiB a request, {rate:.2f} GB/s, "
          f"{refused} refused; CPUs of the server {len(machine.server_cpus)}, of the clients {len(machine.client_cpus)}"
          f"{'' if machine.server_cpus != machine.client_cpus else ', the same'}")
    passed = errors == 0 and r99["own port"] <= R99_LIMIT and code == 0
    machines.finish(machine, "uploads", passed, f"R99 on a port of its own {r99['own port']:.3f} (limit {R99_LIMIT}), on the shared one "
                    f"{r99['shared port']:.3f}, {errors} errors", {"phases": parts, "uploads": uploads})


if __name__ == "__main__":
    main()
