#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
#
# Writes the model repositories that scripts/gpu.sh serves: generated where they are needed, because they are large.
set -euo pipefail
usage() {
  cat <<'HELP'
usage: scripts/generate_gpu_models.sh OUT [--small] [--pipeline] [--isolation]
  writes OUT/models  filetype, resnet50, mlp24 (latency, batch 1), gemm (batch work), copy (large inputs)
         OUT/probes  probe_1k, probe_64k, probe_600k (bench/overhead)
  --pipeline  also OUT/pipeline for bench/pipeline: resnet50 for 256 rows, bert12 (12 blocks of 768 -> 3072 -> 768), gemm,
              copy, fill (large outputs), chain24 (mlp24 with an input of 602,112 bytes)
  --isolation also OUT/isolation for bench/isolation: latency models of batch 1 (resnet50_b1 and bert_b1, in fp16, mlp24), and
              batch work (gemm, copy, mem: bound by memory, long: one product of some 10 ms on an H200)
  --small     shallow mlp24, gemm, bert12 and chain24, and everything in OUT/isolation, for trying the scripts on a small
              machine
environment: PYTHON (default python3, or .venv/bin/python when it is there), with onnx and numpy;
  EXPORT_PYTHON (default PYTHON), with what scripts/export_models.py needs; without it bert_b1 is left out;
  MLP_WIDTH (1280), GEMM_WIDTH (512), GEMM_LAYERS (64), GEMM_BUCKETS (1,768), RESNET_BUCKETS (as in models/resnet50);
  of --pipeline: BERT_BUCKETS (64,128,256,512,1024), PIPELINE_RESNET_BUCKETS (1,2,4,32);
  of --isolation: MEM_BUCKETS (4,8,16), LONG_BUCKETS (4,8,16,32,4096)
exit codes: 0 written, 1 failed, 2 usage
HELP
}
out= small=0 pipeline=0 isolation=0
for argument in "$@"; do
  case "$argument" in
    --small) small=1 ;;
    --pipeline) pipeline=1 ;;
    --isolation) isolation=1 ;;
    --help|-h) usage; exit 0 ;;
    -*) usage >&2; exit 2 ;;
    *) out=$argument ;;
  esac
done
[ -n "$out" ] || { usage >&2; exit 2; }
root=$(cd "$(dirname "$0")/.." && pwd)
if [ -z "${PYTHON:-}" ]; then
  PYTHON=python3
  [ ! -x "$root/.venv/bin/python" ] || PYTHON=$root/.venv/bin/python
fi
mlp_layers=24 mlp_width=${MLP_WIDTH:-1280} gemm_layers=${GEMM_LAYERS:-64} gemm_width=${GEMM_WIDTH:-512}
bert_layers=12 bert_width=768
if ((small)); then mlp_layers=6 mlp_width=256 gemm_layers=4 gemm_width=256 bert_layers=2 bert_width=64; fi
generate() { "$PYTHON" "$root/scripts/generate_mlp.py" "$@"; }

mkdir -p "$out/models" "$out/probes"
cp -rL "$root/models/filetype" "$out/models/"
if [ -e "$root/models/resnet50/1/model.onnx" ]; then
  cp -rL "$root/models/resnet50" "$out/models/"
else
  mkdir -p "$out/models/resnet50"
  cp "$root/models/resnet50/config.pbtxt" "$out/models/resnet50/"
  "$PYTHON" "$root/scripts/generate_resnet50.py" --output "$out/models/resnet50/1/model.onnx"
fi
if [ -n "${RESNET_BUCKETS:-}" ]; then
  sed -i "s/\(sluice.buckets\" value { string_value: \"\)[^\"]*/\1$RESNET_BUCKETS/" "$out/models/resnet50/config.pbtxt"
fi
generate --kind mlp --name mlp24 --layers "$mlp_layers" --width "$mlp_width" --outputs 16 --default-class latency \
  --output "$out/models"
# 768 rows of 512 columns take an H200 about 20 us a layer in fp32.
# Narrow at both ends, so that the wire is not what it measures.
generate --kind mlp --name gemm --layers "$((gemm_layers + 1))" --width "$gemm_width" --features 64 --outputs 16 \
  --batch-symbolic --max-batch-size 1024 --buckets "${GEMM_BUCKETS:-1,768}" --default-class batch --output "$out/models"
generate --kind copy --batch-symbolic --max-batch-size 64 --buckets 1,16 --default-class batch --output "$out/models"
for size in 1k:256 64k:16384 600k:150528; do
  generate --kind probe --name "probe_${size%:*}" --features "${size#*:}" --batch-symbolic --max-batch-size 1 \
    --default-class latency --output "$out/probes"
done

write_pipeline() {
  mkdir -p "$out/pipeline"
  cp -rL "$out/models/resnet50" "$out/models/gemm" "$out/models/copy" "$out/pipeline/"
  sed -i "s/^max_batch_size: .*/max_batch_size: 256/
    s/\(sluice.buckets\" value { string_value: \"\)[^\"]*/\1${PIPELINE_RESNET_BUCKETS:-1,2,4,32}/" \
    "$out/pipeline/resnet50/config.pbtxt"
  # Several plans of each, so that the batch class has row counts to choose from, and the uncut rows something larger.
  generate --kind ffn --name bert12 --layers "$bert_layers" --width "$bert_width" --batch-symbolic --max-batch-size 4096 \
    --buckets "${BERT_BUCKETS:-64,128,256,512,1024}" --default-class batch --output "$out/pipeline"
  generate --kind fill --batch-symbolic --max-batch-size 64 --buckets 1,16 --default-class batch --output "$out/pipeline"
  generate --kind mlp --name chain24 --layers "$mlp_layers" --width "$mlp_width" --slice-of 150528 --outputs 16 \
    --default-class latency --output "$out/pipeline"
}

# FOLDER/config.pbtxt of a network that serves latency requests of one row, in half precision.
write_latency_config() {
  cat >"$1/config.pbtxt" <<'CONFIG'
platform: "sluice_onnx"
max_batch_size: 1
parameters { key: "sluice.buckets" value { string_value: "1" } }
parameters { key: "sluice.default_class" value { string_value: "latency" } }
parameters { key: "sluice.precision" value { string_value: "fp16" } }
CONFIG
}

write_bert() {
  local python=${EXPORT_PYTHON:-$PYTHON} network=bert_ts17_sdpa
  if ! "$python" -c 'import onnx, torch, transformers' 2>/dev/null; then
    echo "bert_b1: left out, since $python has no onnx, torch and transformers (EXPORT_PYTHON)"
    return
  fi
  "$python" "$root/scripts/export_models.py" "$out/exported" --models "$network" $( ((small)) && echo --small)
  rm -rf "$out/isolation/bert_b1"
  mv "$out/exported/$network" "$out/isolation/bert_b1"
  rmdir "$out/exported"
  write_latency_config "$out/isolation/bert_b1"
}

write_isolation() {
  mkdir -p "$out/isolation/resnet50_b1/1"
  local resnet=$out/isolation/resnet50_b1 mem_width=2048 mem_buckets=${MEM_BUCKETS:-4,8,16}
  local long_width=2048 long_buckets=${LONG_BUCKETS:-4,8,16,32,4096}
  if ((small)); then
    mem_width=64 long_width=128
    "$PYTHON" "$root/scripts/generate_resnet50.py" --small --output "$resnet/1/model.onnx"
  else
    ln -f "$out/models/resnet50/1/model.onnx" "$resnet/1/model.onnx"
  fi
  write_latency_config "$resnet"
  cp -rL "$out/models/mlp24" "$out/models/gemm" "$out/models/copy" "$out/isolation/"
  # 16 MiB a row. Of fewer than four rows an H200's second-level cache (50 MB) holds much of what is read and written, and
  # memory is no longer what bounds them.
  generate --kind mem --layers 12 --width "$mem_width" --features 64 --outputs 16 --batch-symbolic --max-batch-size 16 \
    --buckets "$mem_buckets" --default-class batch --output "$out/isolation"
  # A batch has at most 4096 rows, so each row is 16 lines of the product: 65,536 of them are 0.55 TFLOP. The small plans
  # are what cut requests run as, 64 to 512 lines at a time.
  generate --kind long --lines 16 --width "$long_width" --features 64 --outputs 16 --batch-symbolic --max-batch-size 4096 \
    --buckets "$long_buckets" --default-class batch --output "$out/isolation"
  write_bert
}

((!pipeline)) || write_pipeline
((!isolation)) || write_isolation
