#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
# What takes minutes and is not in CI: memory stays flat over 10,000 requests with large responses, under
# AddressSanitizer. usage: scripts/long.sh [REQUESTS]; exit codes: those of the test, 2 usage
set -euo pipefail
cd "$(dirname "$0")/.."
requests="${1:-10000}"
if ! [[ "$requests" =~ ^[0-9]+$ ]] || [ "$#" -gt 1 ]; then
  echo "usage: scripts/long.sh [REQUESTS]" >&2
  exit 2
fi
cmake --preset asan >/dev/null
cmake --build build/asan --target response_memory_test
# The quarantine keeps freed memory from view; a small one shows what is really held.
ASAN_OPTIONS="quarantine_size_mb=16${ASAN_OPTIONS:+:$ASAN_OPTIONS}" SLUICE_LONG_REQUESTS="$requests" \
  build/asan/tests/integration/response_memory_test --gtest_filter='*MemoryStaysFlat'
