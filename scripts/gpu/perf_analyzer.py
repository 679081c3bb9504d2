#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Step perf_analyzer: NVIDIA's tool against the server in every mode of tests/interop/perf_analyzer_modes.py."""
import machine as machines

import perf_analyzer_modes


def main():
    parser = machines.step_parser(__doc__)
    parser.add_argument("--perf-analyzer", required=True, help="its path, or FOLDER/run of scripts/fetch_perf_analyzer.sh")
    parser.add_argument("--model", default="filetype", help="of the repository (default: %(default)s)")
    arguments = parser.parse_args()
    machine = machines.from_flags(arguments)
    server = machine.start_server(*perf_analyzer_modes.SERVER_FLAGS)
    try:
        rows, failed = perf_analyzer_modes.run_modes(arguments.perf_analyzer, server, arguments.model)
    finally:
        code = server.stop()
    modes = len(perf_analyzer_modes.MODES)
    machines.finish(machine, "perf_analyzer", failed == 0 and code == 0, f"{modes - failed} of {modes} modes", {"rows": rows})


if __name__ == "__main__":
    main()
