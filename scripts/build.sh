#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
#
# Configures and builds one preset of CMakePresets.json, through ccache where it is installed.
set -euo pipefail
usage() {
  cat <<'HELP'
usage: scripts/build.sh PRESET [TARGET...]
  PRESET  dev, release, asan, tsan or cuda; the build folder is build/PRESET
environment: SLUICE_CUDA=AUTO|ON|OFF overrides the preset's choice
exit codes: 0 built, 1 failed, 2 usage
HELP
}
case "${1:-}" in
  ''|-*) usage; [ "${1:-}" = --help ] || [ "${1:-}" = -h ] && exit 0; exit 2 ;;
esac
preset=$1
shift
cd "$(dirname "$0")/.."
options=()
if command -v ccache >/dev/null; then
  # Compiler output of one checkout serves another: paths are relative to the project.
  export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros
  options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
fi
[ -z "${SLUICE_CUDA:-}" ] || options+=("-DSLUICE_CUDA=$SLUICE_CUDA")
cmake --preset "$preset" "${options[@]}"
targets=()
for target in "$@"; do targets+=(--target "$target"); done
cmake --build --preset "$preset" "${targets[@]}"
