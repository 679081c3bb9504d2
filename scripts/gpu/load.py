#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Step load: what the latency class loses beside saturating work, by latency model, neighbour model and neighbour class.

One cell is a latency model beside a neighbour. Its rows, all in one run with the same schedule of arrivals:
  A/A       alone against alone: what the measurement itself moves
  one class everything sent as standard, on the product's server
  priority  classes, but the gate is off (--gate=off): priority streams only
  product   classes and the gate
R99 is p99 beside the neighbour over p99 alone, both from the server's own times (complete message to built response).
"keeps" is the neighbour's throughput over its throughput alone; W = keeps / (1 - U), where U is the share of the device
that the latency model takes alone: 1.0 is a perfect time-sharer.
"""
import contextlib
import time

import machine as machines

MODELS = {"filetype": "", "mlp24": ""}
# What keeps the device saturated: rows in a request, requests in flight.
NEIGHBOURS = {"resnet50": (16, 4), "gemm": (768, 6)}
R99_LIMIT = 1.10
W_LIMIT = 0.90


def latency_stream(model, rate):
    return f"name=latency,class=latency,model={model},rate={rate:.3f}"


def neighbour_stream(model, request_class, scale):
    batch, concurrency = NEIGHBOURS[model]
    return f"name=neighbour,class={request_class},model={model},concurrency={concurrency},batch={max(1, batch // scale)}"


def streams_of(document, phase, name):
    return [stream for part in document["phases"] if part["phase"] == phase
            for stream in part["streams"] if stream["stream"] == name]


def summary_of(document):
    return next(row for row in document["summary"]["latency"] if row["stream"] == "latency")


def rows_per_second(document, phase):
    """Of the neighbour, over all phases of that name."""
    streams = streams_of(document, phase, "neighbour")
    window = sum(stream["window_seconds"] for stream in streams)
    return sum(stream["rows_per_second"] * stream["window_seconds"] for stream in streams) / window if window else None


def server_p99(stream):
    return stream["server"]["total"].get("p99_ms") if stream["server"] else None


def errors_of(document):
    """Of the product; with everything in one class requests may well pile up until the phase ends."""
    return sum(sum(stream["errors"].values()) for part in document["phases"] for stream in part["streams"]
               if part["phase"] != "mixed-standard")


def ratio(above, below):
    return above / below if above and below else None


def microseconds(milliseconds):
    return None if milliseconds is None else 1e3 * milliseconds


def show(value, digits=3):
    return "-" if value is None else f"{value:.{digits}f}"


class Cell:
    """One latency model beside one neighbour at one rate."""

    def __init__(self, machine, servers, arguments, model, neighbour, neighbour_class, rate, label):
        self.machine, self.servers, self.arguments = machine, servers, arguments
        self.model, self.neighbour, self.neighbour_class = model, neighbour, neighbour_class
        self.rate, self.label = rate, label
        self.documents, self.rows = {}, []

    def load(self, server, phases, seconds):
        streams = [latency_stream(self.model, self.rate),
                   neighbour_stream(self.neighbour, self.neighbour_class, self.arguments.batch_scale)]
        return self.machine.load(server.grpc, streams, phases, seconds, self.arguments.warmup_seconds)

    def add(self, what, r99, p99_ms, streams, kept, share, limits):
        """One row: `p99_ms` is of all `streams` (phases) pooled; the other times are of the first one."""
        w = None if kept is None or share is None else kept / (1 - share)
        ok = limits is None or (r99 is not None and r99 <= limits[0] and (limits[1] is None or (w or 0) >= limits[1]))
        first = streams[0]["server"]
        self.rows.append({
            "latency": self.model, "load": self.label, "neighbour": self.neighbour, "class": self.neighbour_class,
            "what": what, "n": sum(stream["server"]["total"]["n"] for stream in streams),
            "p50_us": microseconds(first["total"].get("p50_ms")), "p99_us": microseconds(p99_ms), "r99": r99,
            "phase_p99_us": [microseconds(server_p99(stream)) for stream in streams], "keeps": kept, "u": share, "w": w,
            "within": None if limits is None else ok, "client_p99_ms": streams[0]["latency"].get("p99_ms"),
            "gpu_wait_p99_us": microseconds(first["gpu_wait"].get("p99_ms"))})

    def run(self, seconds, compare):
        """`compare`: also one class and priority streams only."""
        with contextlib.ExitStack() as stack:
            gated = stack.enter_context(self.servers["on"])
            middle = ["batch-alone", "mixed-standard"] if compare else []
            product = self.documents["product"] = self.load(gated, ["alone", "mixed", *middle, "mixed", "alone"], seconds)
        summary = summary_of(product)
        alone = streams_of(product, "alone", "latency")
        share = summary["gpu_share_alone"]
        batch_alone = rows_per_second(product, "batch-alone")
        self.add("A/A", ratio(server_p99(alone[1]), server_p99(alone[0])), summary["server_alone_p99_ms"], alone, None, share,
                 None)
        if compare:
            mixed = streams_of(product, "mixed-standard", "latency")
            self.add("one class", ratio(summary["server_mixed_standard_p99_ms"], summary["server_alone_p99_ms"]),
                     summary["server_mixed_standard_p99_ms"], mixed,
                     ratio(rows_per_second(product, "mixed-standard"), batch_alone), share, None)
            with self.servers["off"] as ungated:
                plain = self.documents["priority"] = self.load(ungated, ["mixed", "alone"], seconds)
            found = summary_of(plain)
            self.add("priority", found["server_isolation_ratio"], found["server_mixed_p99_ms"],
                     streams_of(plain, "mixed", "latency"), ratio(rows_per_second(plain, "mixed"), batch_alone),
                     found["gpu_share_alone"], None)
        w_limit = W_LIMIT if self.neighbour_class == "batch" and compare else None
        self.add("product", summary["server_isolation_ratio"], summary["server_mixed_p99_ms"],
                 streams_of(product, "mixed", "latency"), ratio(rows_per_second(product, "mixed"), batch_alone), share,
                 (R99_LIMIT, w_limit))


HEADER = ("latency", "load", "neighbour", "class", "row", "n", "p50 us", "p99 us", "R99", "keeps", "U", "W",
          "gpu wait p99", "client p99 ms", "")


def cells_of(row):
    return (row["latency"], row["load"], row["neighbour"], row["class"], row["what"], row["n"], show(row["p50_us"], 0),
            show(row["p99_us"], 0), show(row["r99"]), show(row["keeps"]), show(row["u"]), show(row["w"]),
            show(row["gpu_wait_p99_us"], 0), show(row["client_p99_ms"], 2),
            {None: "", True: "within", False: "OVER"}[row["within"]])


def calibrate(machine, servers, model, arguments):
    """Device time of one request alone, in seconds, from one in flight at a time."""
    with servers["on"] as server:
        document = machine.load(server.grpc, [f"name=latency,class=latency,model={model},concurrency=1"], ["mixed"],
                                min(1.5, arguments.seconds), arguments.warmup_seconds)
    # The median: a few that were disturbed must not lower the load.
    return streams_of(document, "mixed", "latency")[0]["server"]["device"]["p50_ms"] / 1e3


def parse_flags():
    parser = machines.step_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=2.5, help="of each phase at the utilisation (default: %(default)s)")
    parser.add_argument("--low-seconds", type=float, default=4, help="of each phase at the low rates (default: %(default)s)")
    parser.add_argument("--warmup-seconds", type=float, default=0.5)
    parser.add_argument("--utilisation", type=float, default=0.2, help="share of the device for the latency model")
    parser.add_argument("--low-rates", default="5,20", help="requests per second; empty for none")
    parser.add_argument("--latency-models", default=",".join(MODELS))
    parser.add_argument("--neighbours", default=",".join(NEIGHBOURS))
    parser.add_argument("--classes", default="batch,standard", help="of the neighbour at the utilisation; empty for none")
    parser.add_argument("--product-only", action="store_true", help="leave out one class, and priority streams only")
    parser.add_argument("--limit-seconds", type=float, default=360, help="no new cell after this (default: %(default)s)")
    parser.add_argument("--batch-scale", type=int, default=1, help="divide the neighbours' rows by this (small machines)")
    return parser.parse_args()


def plan(arguments, device_seconds):
    """Cells, the most important first, so that the limit cuts the least:
    (model, neighbour, class, rate, label, seconds, compare)."""
    models, neighbours = arguments.latency_models.split(","), arguments.neighbours.split(",")
    for neighbour_class in filter(None, arguments.classes.split(",")):
        for model in models:
            for neighbour in neighbours:
                rate = arguments.utilisation / device_seconds[model]
                yield (model, neighbour, neighbour_class, rate, f"{arguments.utilisation:.0%}", arguments.seconds,
                       neighbour_class == "batch" and not arguments.product_only)
    for rate in filter(None, arguments.low_rates.split(",")):
        for model in models:
            for neighbour in neighbours:
                yield model, neighbour, "batch", float(rate), f"{rate}/s", arguments.low_seconds, False


def main():
    arguments = parse_flags()
    machine = machines.from_flags(arguments)
    begin = time.monotonic()
    rows, documents, left_out = [], [], 0
    servers = {gate: machines.Paused(machine.start_server("--gate", gate)) for gate in ("on", "off")}
    try:
        device_seconds = {model: calibrate(machine, servers, model, arguments)
                          for model in arguments.latency_models.split(",")}
        print("\n".join(line for line in servers["on"].server.log().splitlines() if " model ready " in line))
        for model, seconds in device_seconds.items():
            print(f"{model}: {seconds * 1e6:.0f} us of the device for a request alone")
        for model, neighbour, neighbour_class, rate, label, seconds, compare in plan(arguments, device_seconds):
            if time.monotonic() - begin > arguments.limit_seconds:
                left_out += 1
                continue
            cell = Cell(machine, servers, arguments, model, neighbour, neighbour_class, rate, label)
            cell.run(seconds, compare)
            rows += cell.rows
            documents.append({"cell": cell.rows[0], "loads": cell.documents,
                              "errors": errors_of(cell.documents["product"])})
            for row in cell.rows:
                print(" ".join(map(str, cells_of(row))), flush=True)
    finally:
        codes = [server.stop() for server in servers.values()]
        print(machines.table(HEADER, [cells_of(row) for row in rows]))
    errors = sum(document["errors"] for document in documents)
    judged = [row for row in rows if row["within"] is not None]
    within = sum(row["within"] for row in judged)
    passed = within == len(judged) and errors == 0 and left_out == 0 and not any(codes)
    machines.finish(machine, "load", passed,
                    f"{within} of {len(judged)} product rows within R99 {R99_LIMIT} (batch: W {W_LIMIT}); {errors} errors, "
                    f"{left_out} cells left out for time, servers ended with {codes}",
                    {"device_seconds": device_seconds, "rows": rows, "cells": documents})


if __name__ == "__main__":
    main()
