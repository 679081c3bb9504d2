#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""The host device against ONNX Runtime on the CPU, the same model, the same input and the same number of threads.

Both take turns in rounds within one run, the other idle meanwhile. Sluice's time is the server's own, from the complete
message to the built response, its copies included; ONNX Runtime's is one call of run(). The answers are compared first.
A/A is the second half of each side's rounds over the first: how far the machine moved.
exit codes: 0 all within the limit, 1 one is over it, or answers differ, 2 usage
"""
import argparse
import json
import pathlib
import statistics
import sys
import time

import numpy as np
import onnxruntime
import tritonclient.grpc as tritonclient

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "models"), str(ROOT / "tests" / "interop")]
import parity  # noqa: E402: the path is set above
import server_process  # noqa: E402: likewise

HEADER = ("model", "rows", "n", "sluice ms p50", "of it compute", "p90", "onnxruntime ms p50", "p90", "ratio", "A/A sluice",
          "A/A onnxruntime", "")


class Peer:
    def __init__(self, path, threads, rows, seed=11):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Its threads spin for a while after a run, and would take Sluice's turn's CPUs.
        options.add_session_config_entry("session.intra_op.allow_spinning", "1")
        options.add_session_config_entry("session.force_spinning_stop", "1")
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.values = parity.inputs_of(self.session, rows, np.random.RandomState(seed))

    def run(self):
        begin = time.perf_counter()
        outputs = self.session.run(None, self.values)
        return (time.perf_counter() - begin) * 1e3, outputs


class Server:
    def __init__(self, client, model, values):
        self.client, self.model, self.values = client, model, values

    def run(self):
        tensors = []
        for name, value in self.values.items():
            tensors.append(tritonclient.InferInput(name, list(value.shape), "INT64" if value.dtype == np.int64 else "FP32"))
            tensors[-1].set_data_from_numpy(value)
        reply = self.client.infer(self.model, tensors, parameters={"sluice_timings": True}, client_timeout=120)
        timings = reply.get_response().parameters
        return timings["sluice_total_us"].int64_param / 1e3, timings["sluice_compute_us"].int64_param / 1e3, reply


def measure(arguments, client, model, rows):
    peer = Peer(arguments.models / model / "1" / "model.onnx", arguments.threads, rows)
    server = Server(client, model, peer.values)
    expected = peer.run()[1]
    reply = server.run()[2]
    right = all(parity.share_of_allowed(reply.as_numpy(output.name), value) <= 1
                for output, value in zip(peer.session.get_outputs(), expected))
    sluice, compute, other = [], [], []
    for _ in range(arguments.rounds):
        for side in (0, 1):
            until = time.monotonic() + arguments.seconds
            first = True
            while time.monotonic() < until:
                took = server.run() if side == 0 else peer.run()
                if not first:  # The first of a turn finds the other's data in the caches.
                    (sluice if side == 0 else other).append(took[0])
                    if side == 0:
                        compute.append(took[1])
                first = False
        print(f"{model}, {rows} rows: {statistics.median(sluice):.2f} ms, {statistics.median(other):.2f} ms", file=sys.stderr,
              flush=True)
    halves = [statistics.median(side[len(side) // 2:]) / statistics.median(side[:len(side) // 2]) for side in (sluice, other)]
    ratio = statistics.median(sluice) / statistics.median(other)
    return {"model": model, "rows": rows, "n": min(len(sluice), len(other)), "sluice_ms": statistics.median(sluice),
            "compute_ms": statistics.median(compute), "sluice_p90_ms": float(np.quantile(sluice, 0.9)),
            "onnxruntime_ms": statistics.median(other), "onnxruntime_p90_ms": float(np.quantile(other, 0.9)), "ratio": ratio,
            "aa_sluice": halves[0], "aa_onnxruntime": halves[1], "right": right, "within": right and ratio <= arguments.limit}


def cells(row):
    return (row["model"], row["rows"], row["n"], f"{row['sluice_ms']:.2f}", f"{row['compute_ms']:.2f}",
            f"{row['sluice_p90_ms']:.2f}", f"{row['onnxruntime_ms']:.2f}", f"{row['onnxruntime_p90_ms']:.2f}",
            f"{row['ratio']:.3f}", f"{row['aa_sluice']:.3f}", f"{row['aa_onnxruntime']:.3f}",
            "WRONG" if not row["right"] else "within" if row["within"] else "OVER")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="path of sluice-server, of a release build")
    parser.add_argument("--models", type=pathlib.Path, required=True, help="model repository, as of scripts/export_models.py")
    parser.add_argument("--only", default="", help="comma-separated beginnings of names (default: all)")
    parser.add_argument("--rows", default="1", help="of a request, comma-separated (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="of each side (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=2, help="of each turn (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=1.15, help="of Sluice's median over the peer's (default: %(default)s)")
    parser.add_argument("--json", type=pathlib.Path, help="write the rows to this file")
    arguments = parser.parse_args()
    models = parity.models_in(arguments.models, arguments.only)
    server = server_process.ServerProcess(arguments.server, "--devices", "host", "--host-threads", str(arguments.threads),
                                          "--strict-readiness=false", repository=arguments.models)
    try:
        with tritonclient.InferenceServerClient(server.grpc) as client:
            rows = [measure(arguments, client, model, count) for model in models
                    for count in map(int, arguments.rows.split(","))]
    finally:
        code = server.stop()
    table = [HEADER] + [tuple(map(str, cells(row))) for row in rows]
    widths = [max(len(line[i]) for line in table) for i in range(len(HEADER))]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))
    return 0 if rows and code == 0 and all(row["within"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
