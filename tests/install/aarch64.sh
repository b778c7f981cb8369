#!/usr/bin/env bash
# Builds Kiln for 64-bit ARM with Debian's cross compiler and runs the tests that need neither a
# device nor NVRTC under QEMU. Installs what is missing when it runs as root.
set -euo pipefail
cd "$(dirname "$0")/../.."

missing=()
for package in g++-aarch64-linux-gnu qemu-user googletest; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" != 0 ]; then
    echo "tests/install/aarch64.sh: run: apt-get install ${missing[*]}" >&2
    exit 3
  fi
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null
fi

cmake --preset aarch64
# The command as well: it must link, and run as far as a program without NVRTC gets.
cmake --build --preset aarch64 \
  --target kiln_cli kiln_cache_tests kiln_runtime_tests kiln_kernel_src_tests
ctest --preset aarch64 -j "$(nproc)" -R '^(cache|runtime|kernel_src)\.'
qemu-aarch64 -L /usr/aarch64-linux-gnu build/aarch64/bin/kiln --version
