#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
#
# Fetches NVIDIA's perf_analyzer, a client that exists in binary form only, and writes FOLDER/run, which starts it.
set -euo pipefail
usage() {
  cat <<'HELP'
usage: scripts/fetch_perf_analyzer.sh FOLDER      perf_analyzer from PyPI (pinned) into FOLDER; FOLDER/run starts it
It needs glibc 2.38. Where the machine's is older (Debian 12 has 2.36), Debian 13's C and C++ libraries are put beside it,
fetched and verified by apt without touching the system, and nothing else uses them.
exit codes: 0 there, 1 failed, 2 usage
HELP
}
case "${1:-}" in
  --help|-h) usage; exit 0 ;;
  ''|-*) usage >&2; exit 2 ;;
esac
version=2.60.0
sha256=23ef56b107ae9233e5cf09fbdf508dd9b936a52f1bae2f63f53c8117087b3f25
mkdir -p "$1"
folder=$(realpath "$1")
if [ -x "$folder/run" ] && [ "$(cat "$folder/version" 2>/dev/null)" = "$version" ]; then exit 0; fi
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --only-binary :all: --python-version 3.12 \
  --platform manylinux_2_38_x86_64 --dest "$folder" "perf-analyzer==$version"
wheel=$folder/perf_analyzer-$version-py3-none-manylinux_2_38_x86_64.whl
echo "$sha256  $wheel" | sha256sum --check --quiet
python3 -m zipfile -e "$wheel" "$folder/wheel"
program=$folder/wheel/perf_analyzer/bin/perf_analyzer
chmod +x "$program"
glibc=$(getconf GNU_LIBC_VERSION | cut -d' ' -f2)
if [ "$(printf '%s\n2.38\n' "$glibc" | sort -V | head -1)" = 2.38 ]; then
  printf '#!/bin/sh\nexec "%s" "$@"\n' "$program" >"$folder/run"
else
  # From where this machine has its own packages.
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $(. /etc/os-release && echo "$VERSION_CODENAME")" |
    sort -u | head -1)
  [ -n "$mirror" ] || { echo 'fetch_perf_analyzer: apt knows no repository; run apt-get update' >&2; exit 1; }
  mkdir -p "$folder/apt/state/lists/partial" "$folder/apt/cache/archives/partial" "$folder/root"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" >"$folder/apt/trixie.list"
  options=(-q -o "Dir::Etc::sourcelist=$folder/apt/trixie.list" -o Dir::Etc::sourceparts=- -o "Dir::State=$folder/apt/state"
    -o "Dir::Cache=$folder/apt/cache" -o APT::Sandbox::User="$(id -un)")
  apt-get "${options[@]}" update
  (cd "$folder/apt" && apt-get "${options[@]}" download libc6 libstdc++6 libgcc-s1)
  for package in "$folder"/apt/*.deb; do dpkg-deb -x "$package" "$folder/root"; done
  libraries=$folder/root/usr/lib/x86_64-linux-gnu
  printf '#!/bin/sh\nexec "%s/ld-linux-x86-64.so.2" --library-path "%s:/usr/lib/x86_64-linux-gnu" "%s" "$@"\n' \
    "$libraries" "$libraries" "$program" >"$folder/run"
  rm -rf "$folder/apt"
fi
chmod +x "$folder/run"
echo "$version" >"$folder/version"
