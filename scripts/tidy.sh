#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs clang-tidy on C++ files: those given, or those that differ from a commit (default HEAD~1). Needs build/dev.
set -euo pipefail
if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
  echo "usage: scripts/tidy.sh [--since COMMIT | FILE...]"
  echo "exit codes: 0 nothing that is an error, 1 errors, 2 usage"
  exit 0
fi
cd "$(dirname "$0")/.."
if [ "${1:-}" = --since ] || [ $# = 0 ]; then
  mapfile -t files < <(git diff --name-only --diff-filter=d "${2:-HEAD~1}" -- '*.cc')
else
  files=("$@")
fi
((${#files[@]})) || { echo "tidy: no changed C++ file"; exit 0; }
printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -n 1 clang-tidy -p build/dev --quiet
