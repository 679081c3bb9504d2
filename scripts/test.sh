#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
#
# Installs what is missing, builds, and runs every test that needs no GPU: unit, conformance, simulation, fault,
# integration, and interop with the real clients.
set -euo pipefail
if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
  cat <<'HELP'
usage: scripts/test.sh [CTEST ARGUMENTS...]      for example: scripts/test.sh -L unit
exit codes: 0 all passed, otherwise not
HELP
  exit 0
fi
cd "$(dirname "$0")/.."
bash scripts/setup.sh --tests
bash scripts/build.sh dev
ctest --preset dev "$@"
