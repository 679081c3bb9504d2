#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
#
# Fetches NVIDIA Triton's server with its Python backend, as PyPI has it, and writes FOLDER/run, which starts it.
set -euo pipefail
usage() {
  cat <<'HELP'
usage: scripts/fetch_triton.sh FOLDER      nvidia-pytriton from PyPI (pinned) into FOLDER; FOLDER/run starts tritonserver
It needs glibc 2.35 and, for models in Python, the shared library of Debian's python3, which is installed where it is
missing, and numpy, which goes into FOLDER as well.
exit codes: 0 there, 1 failed, 2 usage
HELP
}
case "${1:-}" in
  --help|-h) usage; exit 0 ;;
  ''|-*) usage >&2; exit 2 ;;
esac
version=0.7.0
sha256=21f063ff93bb426d0c06b7a55e7eb9efcfe62c0dddd9a908e9877e18710128df
mkdir -p "$1"
folder=$(realpath "$1")
if [ -x "$folder/run" ] && [ "$(cat "$folder/version" 2>/dev/null)" = "$version" ]; then exit 0; fi
python=$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
if ! ldconfig -p | grep -q "libpython$python\.so\.1\.0"; then
  sudo=()
  [ "$(id -u)" = 0 ] || sudo=(sudo)
  "${sudo[@]}" apt-get update -q
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "libpython$python"
fi
/usr/bin/python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps numpy==1.26.4
"$folder/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
  --platform manylinux_2_35_x86_64 --dest "$folder" "nvidia-pytriton==$version"
wheel=$folder/nvidia_pytriton-$version-py3-none-manylinux_2_35_x86_64.whl
echo "$sha256  $wheel" | sha256sum --check --quiet
python3 -m zipfile -e "$wheel" "$folder/wheel"
rm "$wheel"
triton=$folder/wheel/pytriton/tritonserver
mv "$triton/python_backend_stubs/$python/triton_python_backend_stub" "$triton/backends/python/"
chmod +x "$triton/bin/tritonserver" "$triton/backends/python/triton_python_backend_stub"
cat >"$folder/run" <<RUN
#!/bin/sh
exec env LD_LIBRARY_PATH="$folder/wheel/nvidia_pytriton.libs" PATH="$folder/venv/bin:\$PATH" \\
  "$triton/bin/tritonserver" --backend-directory "$triton/backends" "\$@"
RUN
chmod +x "$folder/run"
echo "$version" >"$folder/version"
