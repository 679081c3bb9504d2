#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
#
# Part of scripts/gpu.sh: one archive with all that a machine with a GPU needs to run the checks of scripts/gpu/run.py.
# usage: scripts/gpu/bundle.sh [BUILD]
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build/cuda}
out=build/gpu-bundle
limit_bytes=$((60 * 1024 * 1024))
# Program, and whether the bundle is of no use without it.
programs=(sluice-server:needed sluice:needed conformance_cuda:optional kernels_cuda:optional overhead:optional pipeline:optional
  isolation:optional plans:optional cupti_self_check:optional libsluice_cuda_device.so:optional libsluice_cupti_watch.so:optional
  libsluice_cuda_trap.so:optional)
# libc and the loader belong to the machine that runs it; CUDA's large libraries do too, and are found there at run.
not_bundled='/(libc|libm|libpthread|libdl|librt|ld-linux[^/]*|libcublas[^/]*|libcudnn[^/]*|libnvrtc[^/]*|libnvJitLink[^/]*|libcuda|libcupti)\.so'

rm -rf "$out"
stage=$out/stage
mkdir -p "$stage/bin" "$stage/lib" "$stage/models/resnet50" "$stage/tests/interop"
for entry in "${programs[@]}"; do
  name=${entry%:*}
  path=$(find "$build" -name "$name" -type f -perm -u+x -print -quit)
  if [ -n "$path" ]; then
    cp "$path" "$stage/bin/"
  elif [ "${entry#*:}" = needed ]; then
    echo "bundle: $build has no $name; build it first" >&2
    exit 1
  else
    echo "bundle: $build has no $name: its step will be left out"
  fi
done
ldd "$stage"/bin/* | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u | grep -vE "$not_bundled" |
  xargs -I{} cp -L {} "$stage/lib/"
strip --strip-unneeded "$stage"/bin/* "$stage"/lib/*

cp -r scripts "$stage/"
cp tests/interop/*.py "$stage/tests/interop/"
mkdir -p "$stage/tests/models"
cp -r tests/models/errors.py tests/models/parity.py tests/models/small "$stage/tests/models/"
cp -rL models/filetype "$stage/models/"
cp models/resnet50/config.pbtxt "$stage/models/resnet50/"
cp CMakeLists.txt LICENSE "$stage/"
find "$stage" -name __pycache__ -prune -exec rm -rf {} +

tar -C "$stage" -cf - . | xz -T0 -6 >"$out/bundle.tar.xz"
rm -rf "$stage"
bytes=$(stat -c %s "$out/bundle.tar.xz")
echo "$out/bundle.tar.xz: $((bytes / 1024)) KiB"
((bytes <= limit_bytes)) || { echo "bundle: larger than $((limit_bytes >> 20)) MiB" >&2; exit 1; }
