#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Step parity: the small exported networks of tests/models against ONNX Runtime on the CPU, in every class and precision."""
import pathlib
import sys
import tempfile

import machine as machines
from command_line import CommandLine

sys.path.insert(0, str(machines.ROOT / "tests" / "models"))
import parity  # noqa: E402: the path is set above


def in_precision(repository, models, precision, folder):
    """The repository with that precision in every config.pbtxt, by links."""
    if precision == "fp32":
        return repository
    copy = pathlib.Path(folder) / precision
    for model in models:
        (copy / model).mkdir(parents=True)
        for entry in (repository / model).iterdir():
            if entry.name != "config.pbtxt":
                (copy / model / entry.name).symlink_to(entry.resolve())
        config = repository / model / "config.pbtxt"
        text = config.read_text() if config.exists() else ""
        (copy / model / "config.pbtxt").write_text(
            text + f'parameters {{ key: "sluice.precision" value {{ string_value: "{precision}" }} }}\n')
    return copy


def parse_flags():
    parser = machines.step_parser(__doc__)
    parser.add_argument("--repository", type=pathlib.Path, default=machines.ROOT / "tests" / "models" / "small",
                        help="of models (default: tests/models/small)")
    parser.add_argument("--only", default="", help="comma-separated beginnings of names (default: all)")
    parser.add_argument("--precisions", default="fp32,tf32,fp16,bf16", help="comma-separated (default: %(default)s)")
    return parser.parse_args()


def main():
    arguments = parse_flags()
    machine = machines.from_flags(arguments)
    models = parity.models_in(arguments.repository, arguments.only)
    rows, codes = [], []
    with tempfile.TemporaryDirectory(dir=machine.work) as folder:
        for precision in arguments.precisions.split(","):
            repository = in_precision(arguments.repository, models, precision, folder)
            server = machine.start_server("--strict-readiness=false", repository=repository)
            # In FP32 every class; below it the kernels are the same, and one shows them.
            classes = ("latency", "standard", "batch") if precision == "fp32" else ("latency",)
            try:
                some = parity.compare_all(CommandLine(machine, server.grpc), repository, models, classes, (1, 3), precision)
            finally:
                codes.append(server.stop())
            rows += [dict(row, model=f"{row['model']} {precision}") for row in some]
    parity.print_table(rows)
    wrong = sum(not row["right"] for row in rows)
    machines.finish(machine, "parity", bool(rows) and wrong == 0 and not any(codes),
                    f"{len(models)} models, {len(rows)} outputs, {wrong} wrong, the servers ended with {codes}", {"rows": rows})


if __name__ == "__main__":
    main()
