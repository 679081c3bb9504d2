#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
#
# From a bare Debian 12 machine to the main job on real input: installs, builds, serves models/, names the types of real
# files, runs a latency class and a batch class at once, and reads the p99 by class and the contended ratio from /metrics.
set -euo pipefail
usage() {
  cat <<'HELP'
usage: scripts/demo.sh [--build DIR] [--seconds N]
  --build DIR  use the programs built there instead of building the release preset
  --seconds N  length of each load phase (default 10)
exit codes: 0 every step worked, 1 one did not, 2 usage
HELP
}
build= seconds=10
while (($#)); do
  case "$1" in
    --build) build=${2:?--build needs a folder}; shift ;;
    --seconds) seconds=${2:?--seconds needs a number}; shift ;;
    --help|-h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done
cd "$(dirname "$0")/.."
step() { printf '\n== %s\n' "$*"; }

step "setup"
bash scripts/setup.sh
if [ -z "$build" ]; then
  step "build"
  build=build/release
  # The CUDA device is built only where a driver is present.
  if [ -e /proc/driver/nvidia/version ]; then export SLUICE_CUDA=AUTO; else export SLUICE_CUDA=OFF; fi
  bash scripts/build.sh release sluice-server sluice filetype
fi
server=$build/server/sluice-server sluice=$build/client/sluice filetype=$build/examples/filetype/filetype

work=$(mktemp -d)
server_pid=
cleanup() {
  status=$?
  [ -z "$server_pid" ] || kill -KILL "$server_pid" 2>/dev/null || true
  [ "$status" = 0 ] || { echo "demo: failed; the server's log:"; tail -n 40 "$work/log" 2>/dev/null; } >&2
  rm -rf "$work"
  exit "$status"
}
trap cleanup EXIT

step "start the server on models/"
mkfifo "$work/ready"
"$server" --model-repository models --address 127.0.0.1 --grpc-port 0 --metrics-port 0 >"$work/ready" 2>"$work/log" &
server_pid=$!
read -r ready <"$work/ready" || { echo "the server ended before it was ready" >&2; exit 1; }
echo "$ready"
field() { .venv/bin/python -c 'import json,sys; print(json.loads(sys.argv[1])[sys.argv[2]])' "$ready" "$1"; }
[ "$(field event)" = ready ] || { echo "not every model is ready" >&2; exit 1; }
url=127.0.0.1:$(field grpc_port) metrics=http://127.0.0.1:$(field metrics_port)/metrics
"$sluice" status --url "$url"
"$sluice" inspect filetype --url "127.0.0.1:$(field metrics_port)"

step "what are these files?"
gzip -c README.md >"$work/archive.gz"
tar -cf "$work/archive.tar" README.md LICENSE
# Expected type, then the file.
files=(
  "markdown README.md" "txt LICENSE" "cmake CMakeLists.txt" "shell scripts/demo.sh" "python scripts/generate_resnet50.py"
  "cpp server/server.cc" "json CMakePresets.json" "dockerfile Dockerfile" "yaml deploy/prometheus/prometheus.yml"
  "proto proto/inference.proto" "elf $server" "onnx models/filetype/1/model.onnx" "gzip $work/archive.gz"
  "tar $work/archive.tar"
)
paths=()
for entry in "${files[@]}"; do paths+=("${entry#* }"); done
"$filetype" --url "$url" "${paths[@]}"
"$filetype" --url "$url" --json "${paths[@]}" >"$work/types.json"
printf '%s\n' "${files[@]}" | .venv/bin/python -c '
import json, sys
found = {row["file"]: row["type"] for row in json.load(open(sys.argv[1]))}
expected = dict(reversed(line.rstrip("\n").split(" ", 1)) for line in sys.stdin)
wrong = [f"{file}: expected {kind}, got {found.get(file)}" for file, kind in expected.items() if found.get(file) != kind]
print(f"{len(expected) - len(wrong)} of {len(expected)} are right")
sys.exit("\n".join(wrong) or 0)' "$work/types.json"

step "two classes at once: an online model with a latency promise, and batch work that fills the rest"
"$sluice" load --url "$url" --stream class=latency,model=filetype,rate=8 \
  --stream class=batch,model=resnet50,concurrency=2,batch=4 --phase-seconds "$seconds" --warmup-seconds 1 \
  --compare-standard --seed 1

step "what Prometheus would scrape"
# Saved first: a scrape cut short by a closed pipe is an error.
.venv/bin/python scripts/read_metrics.py "$metrics"

step "stop"
kill -TERM "$server_pid"
wait "$server_pid"
server_pid=
tail -n 2 "$work/log"
echo "demo: done in $SECONDS s"
