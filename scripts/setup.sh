#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
#
# Installs what Sluice needs on Debian 12: packages from Debian, Python peers from PyPI in a virtual environment (.venv),
# and the generated model models/resnet50. Does nothing for what is there already, so it is cheap to repeat.
set -euo pipefail
usage() {
  cat <<'HELP'
usage: scripts/setup.sh [--tests] [--no-models]
  --tests      also what the tests need (GoogleTest, clang and its sanitizers, promtool, ONNX files)
  --no-models  no Python environment and no generated model: only what compiling needs
exit codes: 0 done, 1 failed, 2 usage
HELP
}
tests=0 models=1
for argument in "$@"; do
  case "$argument" in
    --tests) tests=1 ;;
    --no-models) models=0 ;;
    --help|-h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done
cd "$(dirname "$0")/.."

packages=(g++ cmake ninja-build git ca-certificates ccache libgrpc++-dev libssl-dev protobuf-compiler-grpc libprotobuf-dev
  protobuf-compiler libabsl-dev prometheus-cpp-dev libdnnl-dev libcli11-dev nlohmann-json3-dev)
((models || tests)) && packages+=(python3 python3-venv)
((tests)) && packages+=(libgtest-dev libgmock-dev clang libclang-rt-14-dev clang-format clang-tidy libonnx-testdata openssl
  prometheus)
missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
if ((${#missing[@]})); then
  echo "setup: installing ${missing[*]}"
  sudo=()
  [ "$(id -u)" = 0 ] || sudo=(sudo)
  "${sudo[@]}" apt-get update -q
  # Debian's prometheus package starts a service; policy-rc.d is left alone, the tests use only promtool.
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
fi

((models || tests)) || exit 0
stamp=.venv/requirements.sha256
wanted=$(sha256sum <scripts/requirements.txt)
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
  echo "setup: Python environment .venv"
  /usr/bin/python3 -m venv --clear .venv
  .venv/bin/pip install --quiet --disable-pip-version-check --no-deps --requirement scripts/requirements.txt
  printf '%s\n' "$wanted" >"$stamp"
fi
model=models/resnet50/1/model.onnx
if [ ! -e "$model" ] || [ scripts/generate_resnet50.py -nt "$model" ]; then
  echo "setup: generating $model"
  .venv/bin/python scripts/generate_resnet50.py --output "$model"
fi
