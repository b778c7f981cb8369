#!/usr/bin/env bash
# Sets up what is missing, builds the release preset and runs its tests.
#   tests/run.sh [--preset NAME]     NAME: release (default), asan, tsan
# Needs Debian or a system with the same packages; installs them when it runs as root.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=release
while [ $# -gt 0 ]; do
  case $1 in
    --preset) preset=${2:?--preset needs a name}; shift 2 ;;
    *) echo "tests/run.sh: unknown argument $1 (known: --preset NAME)" >&2; exit 2 ;;
  esac
done

packages=(cmake ninja-build g++ pkg-config libspdlog-dev libfmt-dev libcli11-dev libxxhash-dev
          nlohmann-json3-dev libgtest-dev libbenchmark-dev)
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" != 0 ]; then
    echo "tests/run.sh: missing packages: ${missing[*]}; run: apt-get install ${missing[*]}" >&2
    exit 3
  fi
  echo "installing: ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null
fi

cmake --preset "$preset"
cmake --build --preset "$preset"
# At least two at a time: many tests wait for processes, not for the processor.
jobs=$(nproc)
ctest --preset "$preset" -j "$((jobs > 2 ? jobs : 2))"
