#!/usr/bin/env bash
# Every shipped kernel through the oldest and the newest NVRTC that a pip user meets: 12.9, which is
# the last of CUDA 12, and the newest 13.x of today. The NVRTC of the build is what ctest uses anyway.
# Uses the tests that are built in build/release, and fetches the wheels into build/nvrtc.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. examples/setup.sh

tests=build/release/bin/kiln_cli_tests
[ -x "$tests" ] || fail 3 "$tests is missing; run: tests/run.sh"
python3 -m pip --version >/dev/null 2>&1 || install_packages python3 python3-pip

# compile_all VERSION FOLDER REQUIREMENT
compile_all() {
  install_wheels "$2" "$3"
  local report
  report=$(KILN_NVRTC=$PWD/$2 "$tests" --gtest_filter='NvrtcMatrix.*' 2>&1) ||
    { echo "$report" >&2; fail 1 "NVRTC of $3 does not compile every kernel"; }
  report=$(grep ' keys of ' <<<"$report") || fail 1 "NVRTC of $3: nothing was compiled"
  say "$3: $report"
  [[ $report == *"compiled by nvrtc $1."* ]] || fail 1 "another NVRTC than that of $3 was used"
}

mkdir -p build/nvrtc
rm -rf build/nvrtc/13 # what was the newest may not be any more
compile_all 12 build/nvrtc/12.9 nvidia-cuda-nvrtc-cu12==12.9.86
compile_all 13 build/nvrtc/13 'nvidia-cuda-nvrtc<14'

# One cache for both: each is a miss after the other, and hits again when its turn comes.
KILN_NVRTC=$PWD/build/nvrtc/12.9 KILN_OTHER_NVRTC=$PWD/build/nvrtc/13 \
  build/release/bin/kiln_issues_tests --gtest_filter='Trial.T13_AnotherRelease*' >&2 ||
  fail 1 "two releases of NVRTC do not share a cache"
say "two releases of NVRTC share a cache and are never mixed"
