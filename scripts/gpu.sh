#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
#
# Checks the CUDA device on a machine with a GPU, which may be another machine than the one that builds.
set -euo pipefail
usage() {
  cat <<'HELP'
usage: scripts/gpu.sh bundle [BUILD]   put the programs of BUILD (default build/cuda) and their libraries, without
                                       libc, into build/gpu-bundle/bundle.tar.xz
       scripts/gpu.sh run [BUNDLE]     on a machine with a GPU: unpack it, run the conformance suite, then again
                                       under compute-sanitizer's memcheck, and print a table
exit codes: 0 done, 1 a check failed, 2 usage
HELP
}
bundle() {
  build=${1:-build/cuda}
  out=build/gpu-bundle
  rm -rf "$out"
  mkdir -p "$out/stage/lib"
  cp "$build/tests/conformance/conformance_cuda" "$build/gpu/cuda/libsluice_cuda_device.so" "$out/stage/"
  # libc and the loader belong to the machine that runs it.
  ldd "$out/stage/conformance_cuda" "$out/stage/libsluice_cuda_device.so" | awk '$2 == "=>" {print $3}' | sort -u |
    grep -vE '/(libc|libm|libpthread|libdl|librt|ld-linux[^/]*)\.so' | xargs -I{} cp -L {} "$out/stage/lib/"
  strip --strip-debug "$out/stage/conformance_cuda" "$out/stage/lib/"* 2>/dev/null || true
  tar -C "$out/stage" -cJf "$out/bundle.tar.xz" .
  rm -rf "$out/stage"
  ls -l "$out/bundle.tar.xz"
}
run() {
  bundle=${1:-build/gpu-bundle/bundle.tar.xz}
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  tar -C "$work" -xf "$bundle"
  export LD_LIBRARY_PATH=$work/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} REQUIRE_GPU=1
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
  date -u +%Y-%m-%dT%H:%M:%SZ
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,temperature.gpu --format=csv
  failed=0
  check() {
    name=$1
    shift
    if "$@" >"$work/$name.log" 2>&1; then result=passed; else result=FAILED failed=1; fi
    rows+=("$(printf '%-24s %-8s %s' "$name" "$result" "$(grep -E '^\[  (PASSED|SKIPPED|FAILED)  \] [0-9]+ test|ERROR SUMMARY' "$work/$name.log" | tr '\n' ';')")")
    [ "$result" = passed ] || { grep -vE '^\[ +(OK|RUN) +|^\[ RUN' "$work/$name.log" | tail -n 60; }
  }
  rows=()
  check conformance "$work/conformance_cuda"
  grep -iE 'priorit|clock offset|calibrat' "$work/conformance.log" | grep OK | sort -u || true
  if [ -n "$sanitizer" ]; then
    # Calls that the driver refuses are part of the suite (foreign memory, a size no device has), so only memory counts.
    check memcheck "$sanitizer" --tool memcheck --report-api-errors no --error-exitcode 1 --leak-check full "$work/conformance_cuda"
  else
    echo "compute-sanitizer was not found: memcheck is left out"
  fi
  printf '%s\n' "${rows[@]}"
  return "$failed"
}
cd "$(dirname "$0")/.."
case "${1:-}" in
  bundle) shift; bundle "$@" ;;
  run) shift; run "$@" ;;
  --help|-h) usage ;;
  *) usage >&2; exit 2 ;;
esac
