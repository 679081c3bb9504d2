#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Step networks: exported ResNet-50 and BERT-base in one server, and beside each other.

Exported with seeded random weights: ResNet-50 for the latency class (a row at a time) and for the batch class, BERT for the
batch class. A server loads them untuned: how long each took until it was ready, and what device memory holds, where the
weights of a model are counted once, however many lanes use it. Then bench/pipeline's case chain for each batch model: R99
and W of the latency model beside it, from submission to answer, printed and not judged.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import time

import machine as machines

EXPORTED = {"resnet50": "resnet50_ts17", "bert": "bert_ts17_sdpa"}
# Model: (network, class, buckets, rows of a request of the batch class).
MODELS = {"resnet50_latency": ("resnet50", "latency", "1", 1),
          "resnet50_batch": ("resnet50", "batch", "1,2,4,8,16,32,64", 64),
          "bert_batch": ("bert", "batch", "1,2,4,8,16,32", 32)}
LATENCY = "resnet50_latency"
MOST_READY_SECONDS = 5
CONFIG = """max_batch_size: {most}
parameters {{ key: "sluice.buckets" value {{ string_value: "{buckets}" }} }}
parameters {{ key: "sluice.precision" value {{ string_value: "{precision}" }} }}
parameters {{ key: "sluice.default_class" value {{ string_value: "{name}" }} }}
"""


def write_repository(machine, arguments):
    exported = machine.work / "networks-exported"
    command = [sys.executable, str(machines.ROOT / "scripts" / "export_models.py"), str(exported), "--models",
               ",".join(EXPORTED.values()), *(["--small"] if arguments.small else [])]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    repository = machine.work / "networks"
    shutil.rmtree(repository, ignore_errors=True)
    for name, (network, request_class, buckets, _) in MODELS.items():
        folder = repository / name / "1"
        folder.mkdir(parents=True)
        os.link(exported / EXPORTED[network] / "1" / "model.onnx", folder / "model.onnx")
        (folder.parent / "config.pbtxt").write_text(CONFIG.format(
            most=buckets.split(",")[-1], buckets=buckets, precision=arguments.precision, name=request_class))
    return repository


def load(machine, repository):
    """[(model, seconds until ready, weights, slots, micro-batch rows)], {kind: bytes in use}."""
    server = machine.start_server(repository=repository)
    try:
        rows = []
        for line in server.log().splitlines():
            if " model ready " not in line:
                continue
            fields = dict(re.findall(r"(\w+)=(\S+)", line))
            rows.append((fields["model"], float(fields["seconds"]), int(fields["weight_bytes"]), int(fields["slot_bytes"]),
                         int(fields["batch_rows"])))
        device = machine.devices.split(",")[0]
        memory = {labels: value for (family, labels), value in machines.metrics(server).items()
                  if family == "sluice_device_memory_bytes" and device in labels}
        return rows, memory
    finally:
        server.stop()


def chain(machine, arguments, repository, neighbour):
    result = machine.work / f"networks-{neighbour}.json"
    command = [str(machine.program("pipeline")), "--models", str(repository), "--device", machine.devices.split(",")[0],
               "--cases", "chain", "--chain-model", LATENCY, "--neighbour-model", f"{neighbour}:{MODELS[neighbour][3]}",
               "--rounds", str(arguments.rounds), "--seconds", str(arguments.seconds), "--limit-seconds", "120",
               "--json", str(result), *machine.module_flags(), *(["--quick"] if arguments.small else [])]
    done = subprocess.run(command, env=machine.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=240)
    (machine.work / f"networks-{neighbour}.log").write_text(done.stdout)
    print(done.stdout, flush=True)
    return json.loads(result.read_text())["cases"][0] if result.exists() else None


def parse_flags():
    parser = machines.step_parser(__doc__)
    parser.add_argument("--precision", default="fp16", help="of all three (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1, help="of each phase (default: %(default)s)")
    parser.add_argument("--small", action="store_true", help="small networks and short phases, for trying the step")
    return parser.parse_args()


def main():
    arguments = parse_flags()
    machine = machines.from_flags(arguments)
    if machine.program("pipeline") is None:
        machines.finish(machine, "networks", False, "the program pipeline is not there")
    begin = time.monotonic()
    repository = write_repository(machine, arguments)
    print(f"exported in {time.monotonic() - begin:.0f} s", flush=True)
    rows, memory = load(machine, repository)
    print(machines.table(("model", "ready after s", "weight bytes", "slot bytes", "micro-batch rows"), rows))
    print(f"weights of all models: {sum(row[2] for row in rows)} bytes")
    for labels, value in sorted(memory.items()):
        print(f"sluice_device_memory_bytes{labels} {value:.0f}")
    documents = {name: chain(machine, arguments, repository, name) for name in MODELS if name != LATENCY}
    ready = {row[0]: row[1] for row in rows}
    measured = sum(document is not None and document["submitted"] == document["answered"] for document in documents.values())
    on_time = not machine.cuda or ready.get(LATENCY, MOST_READY_SECONDS) < MOST_READY_SECONDS
    machines.finish(machine, "networks", on_time and measured == len(documents) and len(rows) == len(MODELS),
                    f"{len(rows)} of {len(MODELS)} models ready, {LATENCY} after {ready.get(LATENCY, float('nan')):.1f} s (limit "
                    f"{MOST_READY_SECONDS}); {measured} of {len(documents)} pairs measured",
                    {"models": rows, "memory": {labels: value for labels, value in memory.items()}, "pairs": documents})


if __name__ == "__main__":
    main()
