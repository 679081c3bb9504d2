#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
#
# Makes a CUDA toolkit folder from pinned PyPI wheels (scripts/cuda-requirements.txt): the compiler, cuBLAS and cuDNN,
# laid out as NVIDIA's own packages lay them out, so that nvcc, CMake and the loader find everything there.
set -euo pipefail
usage() {
  cat <<'HELP'
usage: scripts/setup_cuda.sh DIR [REQUIREMENTS]
  DIR           folder to make, as /usr/local/cuda; about 2 GB
  REQUIREMENTS  default scripts/cuda-requirements.txt
needs python3 with venv (or PYTHON with pip). Then: CUDACXX=DIR/bin/nvcc scripts/build.sh cuda
exit codes: 0 done, 1 failed, 2 usage
HELP
}
case "${1:-}" in
  --help|-h) usage; exit 0 ;;
  ''|-*) usage >&2; exit 2 ;;
esac
target=$1
requirements=${2:-$(dirname "$0")/cuda-requirements.txt}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  /usr/bin/python3 -m venv "$work/venv"
  python=$work/venv/bin/python
fi
"$python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps --no-compile --target "$work/wheels" \
  --requirement "$requirements"
mkdir -p "$target"
# Most wheels share nvidia/cu13; cuDNN has a folder of its own.
for folder in "$work"/wheels/nvidia/*/; do cp -a "$folder". "$target/"; done
mkdir -p "$target/licenses"
for info in "$work"/wheels/nvidia_*.dist-info; do
  [ ! -d "$info/licenses" ] || cp -a "$info/licenses" "$target/licenses/$(basename "$info" .dist-info)"
done
[ -e "$target/lib64" ] || ln -s lib "$target/lib64"
# Wheels have no links to link against.
for library in "$target"/lib/lib*.so.*; do
  link=${library%%.so.*}.so
  [ -e "$link" ] || ln -s "$(basename "$library")" "$link"
done
chmod +x "$target"/bin/* 2>/dev/null || true
if [ -x "$target/bin/nvcc" ]; then "$target/bin/nvcc" --version | tail -n 2; fi
