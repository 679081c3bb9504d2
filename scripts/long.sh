#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
#
# What takes minutes and is not in CI, in parts that can be chosen. Installs and builds what they need.
set -euo pipefail
parts=(sim memory bad-input cancel fuzz soak kserve perf_analyzer)
usage() {
  cat <<'HELP'
usage: scripts/long.sh [PART...] [OPTIONS]      without a part: all of them
  sim            the scheduler and the gate in virtual time; a failure prints the command that replays it
  memory         stays flat over requests with large responses, under AddressSanitizer
  bad-input      and over bad requests of every kind
  cancel         requests that are cancelled around completion, over the wire and behind it
  fuzz           each fuzzer of tests/fuzz
  soak           the latency class beside batch work on the host device: its p99 and the server's memory must not grow
  kserve         KServe's own Python client against the server; installs it into build/kserve-client (450 MB)
  perf_analyzer  NVIDIA's tool in all its modes against the server; fetches it into build/perf_analyzer (70 MB)
options:
  --seeds N     sim: seeds 1 to N (default 10000)
  --random N    sim: and as many random ones (default 0)
  --requests N  memory, bad-input, cancel: how many (default 10000, 100000, 1000000)
  --minutes N   fuzz (each of four) and soak: how long (default 10 and 30)
exit codes: 0 all passed, 1 a part failed, 2 usage
HELP
}
chosen=()
seeds=10000 random=0 requests= minutes=
while (($#)); do
  case "$1" in
    --help|-h) usage; exit 0 ;;
    --seeds|--random|--requests|--minutes)
      [[ "${2:-}" =~ ^[0-9]+$ ]] || { usage >&2; exit 2; }
      printf -v "${1#--}" %s "$2"
      shift ;;
    *)
      [[ " ${parts[*]} " == *" $1 "* ]] || { usage >&2; exit 2; }
      chosen+=("$1") ;;
  esac
  shift
done
((${#chosen[@]})) || chosen=("${parts[@]}")
cd "$(dirname "$0")/.."

# Each part is a function. Its commands are joined by &&, since `set -e` does not hold inside.
run_sim() {
  local program=build/dev/tests/sim/scheduler_sim_test
  bash scripts/build.sh dev scheduler_sim_test &&
    { ((seeds == 0)) || "$program" --first=1 --runs="$seeds"; } &&
    { ((random == 0)) || "$program" --runs="$random"; }
}
run_memory() {
  # The quarantine keeps freed memory from view; a small one shows what is really held.
  bash scripts/build.sh asan response_memory_test &&
    ASAN_OPTIONS="quarantine_size_mb=16${ASAN_OPTIONS:+:$ASAN_OPTIONS}" SLUICE_LONG_REQUESTS="${requests:-10000}" \
      build/asan/tests/integration/response_memory_test --gtest_filter='*MemoryStaysFlat'
}
run_bad-input() {
  bash scripts/build.sh asan bad_input_test &&
    ASAN_OPTIONS="quarantine_size_mb=16${ASAN_OPTIONS:+:$ASAN_OPTIONS}" SLUICE_LONG_REQUESTS="${requests:-100000}" \
      build/asan/tests/integration/bad_input_test --gtest_filter='*MemoryStaysFlat'
}
run_cancel() {
  bash scripts/build.sh asan cancel_race_test && bash scripts/build.sh tsan cancel_race_test &&
    SLUICE_LONG_REQUESTS="${requests:-1000000}" build/asan/tests/integration/cancel_race_test &&
    SLUICE_LONG_REQUESTS="${requests:-1000000}" \
      TSAN_OPTIONS="ignore_noninstrumented_modules=1:suppressions=$PWD/tests/support/tsan.supp" \
      build/tsan/tests/integration/cancel_race_test --gtest_filter='*BehindTheWire'
}
run_fuzz() {
  local fuzzers=(infer_request bytes_tensor config onnx) name log summary='' status=0
  bash scripts/build.sh asan "${fuzzers[@]/#/fuzz_}" || return 1
  for name in "${fuzzers[@]}"; do
    log=build/asan/tests/fuzz/$name.log
    local result=nothing
    bash tests/fuzz/run.sh "$name" "build/asan/tests/fuzz/fuzz_$name" $((${minutes:-10} * 60)) >"$log" 2>&1 ||
      { result="see $log" status=1; }
    summary+=$(printf '\n%-14s %10s %7s %s' "$name" \
      "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" \
      "$(grep -o ' cov: [0-9]*' "$log" | tail -1 | tr -dc 0-9)" "$result")
  done
  printf '%-14s %10s %7s %s%s\n' fuzzer inputs covers found "$summary"
  return "$status"
}
run_soak() {
  bash scripts/build.sh dev sluice-server sluice &&
    bash scripts/gpu.sh run --build build/dev --devices host --small-models --steps soak \
      --limit-seconds $((${minutes:-30} * 60 + 300)) --flags "soak:--minutes ${minutes:-30} --rate 100 --batch 64"
}

run_kserve() {
  bash scripts/build.sh dev sluice-server &&
    { [ -x build/kserve-client/bin/python ] || python3 -m venv build/kserve-client; } &&
    build/kserve-client/bin/pip install --quiet --disable-pip-version-check --no-deps \
      --requirement scripts/kserve-requirements.txt &&
    build/kserve-client/bin/python tests/interop/kserve_test.py --server build/dev/server/sluice-server
}
run_perf_analyzer() {
  bash scripts/build.sh dev sluice-server && bash scripts/fetch_perf_analyzer.sh build/perf_analyzer &&
    python3 tests/interop/perf_analyzer_modes.py --server build/dev/server/sluice-server \
      --perf-analyzer build/perf_analyzer/run
}

bash scripts/setup.sh --tests
table=$(printf '%-14s %-7s %s' part result seconds)
failed=0
for part in "${chosen[@]}"; do
  echo "== $part"
  start=$SECONDS result=passed
  "run_$part" || result=FAILED failed=1
  table+=$(printf '\n%-14s %-7s %7d' "$part" "$result" $((SECONDS - start)))
done
printf '== long\n%s\n' "$table"
exit "$failed"
