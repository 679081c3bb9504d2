#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
#
# Makes a fuzzer's seeds and runs it for some seconds. What it learns stays in corpus/ beside the program for the next
# run, and a finding in findings/.
set -euo pipefail
usage() {
  cat <<'HELP'
usage: tests/fuzz/run.sh NAME PROGRAM SECONDS
  NAME  infer_request, bytes_tensor, config or onnx
exit codes: 0 nothing found, 2 usage, others: a finding, with the command that replays it
HELP
}
[ $# = 3 ] && [[ $3 =~ ^[1-9][0-9]*$ ]] || { usage >&2; exit 2; }
name=$1 program=$2 seconds=$3
source=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(dirname "$program")
seeds=$folder/seeds/$name corpus=$folder/corpus/$name findings=$folder/findings
rm -rf "$seeds"
mkdir -p "$seeds" "$corpus" "$findings"
options=(-rss_limit_mb=2048 -timeout=60 -max_len=4096)
case "$name" in
  infer_request)
    for text in "$source/tests/fuzz/seeds/infer_request"/*.txtpb; do
      seed=$seeds/$(basename "$text" .txtpb)
      printf '\0' >"$seed"  # no cuts
      protoc --encode=inference.ModelInferRequest --proto_path="$source/proto" inference.proto <"$text" >>"$seed"
    done ;;
  bytes_tensor) ;;
  config)
    cp "$source"/tests/fuzz/seeds/config/*.pbtxt "$seeds"
    for model in resnet50 filetype; do cp "$source/models/$model/config.pbtxt" "$seeds/$model.pbtxt"; done ;;
  onnx)
    options+=(-max_len=65536 -malloc_limit_mb=512)
    # Ours, and those of Debian's libonnx-testdata; larger files only slow it down.
    find "$source/tests/models/small" /usr/share/libonnx-testdata -name '*.onnx' -size -64k -print0 |
      xargs -0 cp --backup=numbered --target-directory="$seeds" ;;  # many have the same name
  *) usage >&2; exit 2 ;;
esac
"$program" -max_total_time="$seconds" -print_final_stats=1 -artifact_prefix="$findings/$name-" "${options[@]}" \
  "$corpus" "$seeds"
