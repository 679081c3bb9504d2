#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
#
# Checks and measures Sluice on a machine with a GPU, which may be another machine than the one that builds.
set -euo pipefail
usage() {
  cat <<'HELP'
usage: scripts/gpu.sh bundle [BUILD]          put the programs of BUILD (default build/cuda), their libraries without
                                              libc and CUDA's, and these scripts into build/gpu-bundle/bundle.tar.xz
       scripts/gpu.sh run [BUNDLE] [FLAGS]    on a machine with a GPU: unpack it and run the steps; one table at the end
       scripts/gpu.sh run --build DIR [FLAGS] the same with the programs of a build folder, without a bundle
       scripts/gpu.sh run --steps torch       graph replay against PyTorch (eager and torch.compile), outputs checked; 4 min,
                                              so only when named. --flags 'torch:--precision bf16 --networks resnet50,bert'
       scripts/gpu.sh run --help              the steps and their flags
environment: PYTHON (default python3, or .venv/bin/python when it is there), with numpy, onnx and onnxruntime for the steps that generate or compare models,
  and the packages of scripts/export-requirements.txt for the step torch
exit codes: 0 done, 1 a step failed, 2 usage
HELP
}
root=$(cd "$(dirname "$0")/.." && pwd)
run() {
  bundle= build=
  if [ "${1:-}" = --build ]; then
    build=$(realpath "${2:?--build needs a folder}")
    shift 2
  elif [ $# -gt 0 ] && [ "${1#-}" = "$1" ]; then
    bundle=$1
    shift
  fi
  python=${PYTHON:-python3}
  if [ -z "${PYTHON:-}" ] && [ -x "$root/.venv/bin/python" ]; then python=$root/.venv/bin/python; fi
  if [ -n "$build" ]; then
    exec "$python" "$root/scripts/gpu/run.py" --programs "$build" "$@"
  fi
  case " $* " in *' --help '*|*' -h '*) exec "$python" "$root/scripts/gpu/run.py" --help ;; esac
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  if [ -z "$bundle" ] && [ -d "$root/bin" ]; then
    programs=$root  # These scripts lie in an unpacked bundle.
  else
    tar -C "$work" -xf "${bundle:-$root/build/gpu-bundle/bundle.tar.xz}"
    programs=$work
  fi
  "$python" "$root/scripts/gpu/run.py" --programs "$programs" "$@"
}
case "${1:-}" in
  bundle) shift; exec bash "$root/scripts/gpu/bundle.sh" "$@" ;;
  run) shift; run "$@" ;;
  --help|-h) usage ;;
  *) usage >&2; exit 2 ;;
esac
