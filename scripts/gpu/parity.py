#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Step parity: the small exported networks of tests/models, in every class, against ONNX Runtime on the CPU."""
import pathlib
import sys

import machine as machines
from command_line import CommandLine

sys.path.insert(0, str(machines.ROOT / "tests" / "models"))
import parity  # noqa: E402: the path is set above


def parse_flags():
    parser = machines.step_parser(__doc__)
    parser.add_argument("--repository", type=pathlib.Path, default=machines.ROOT / "tests" / "models" / "small",
                        help="of models (default: tests/models/small)")
    parser.add_argument("--only", default="", help="comma-separated beginnings of names (default: all)")
    return parser.parse_args()


def main():
    arguments = parse_flags()
    machine = machines.from_flags(arguments)
    models = parity.models_in(arguments.repository, arguments.only)
    server = machine.start_server("--strict-readiness=false", repository=arguments.repository)
    try:
        rows = parity.compare_all(CommandLine(machine, server.grpc), arguments.repository, models,
                                  ("latency", "standard", "batch"), (1, 3))
    finally:
        code = server.stop()
    parity.print_table(rows)
    wrong = sum(not row["right"] for row in rows)
    machines.finish(machine, "parity", bool(rows) and wrong == 0 and code == 0,
                    f"{len(models)} models, {len(rows)} outputs, {wrong} wrong, the server ended with {code}", {"rows": rows})


if __name__ == "__main__":
    main()
