#!/usr/bin/env bash
# Sets up what is missing, builds everything and runs the tests; see --help.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# The tests' stand-in driver is written against these headers; the library takes those of 12.8.
kiln_needs_cuda=13000
. examples/setup.sh

usage() {
  cat <<'END'
tests/run.sh [--preset NAME] [--full] [--gpu]
  --preset NAME  release (default), asan or tsan: the presets of CMakePresets.json
  --full         the long harnesses as well: other NVRTC versions, other processors, shared libraries
                 and Kiln in another project's tree, and the faults of tests/faults in their whole
                 number
  --gpu          fail, with the reason, if a test of the GPU was skipped
Installs missing Debian packages when it runs as root; all else that it writes is below build/.
Exit codes: 0 passed, 1 a test or harness failed, 2 usage, 3 the machine lacks something.
END
}

preset=release full=no gpu=no
while [ $# -gt 0 ]; do
  case $1 in
    --preset)
      [ $# -ge 2 ] || fail 2 "--preset needs a name: release, asan or tsan"
      preset=$2
      shift
      ;;
    --full) full=yes ;;
    --gpu) gpu=yes ;;
    --help | -h) usage; exit ;;
    *) fail 2 "unknown argument $1 (known: --preset NAME, --full, --gpu, --help)" ;;
  esac
  shift
done

case $preset in
  release | asan | tsan) ;;
  *) fail 2 "unknown preset $preset (known: release, asan, tsan)" ;;
esac

# One more at a time than there are processors: many tests wait for processes.
jobs=$(($(nproc) + 1))

set_up
# Some tests trace system calls, count instructions, start servers or reach a quota, and are skipped
# without them.
[ "$(id -u)" != 0 ] || install_packages locales strace valgrind redis-server nginx-light openssl btrfs-progs
# The other presets build with clang; the sanitizers' part of it is a package of its own.
if [ "$preset" != release ]; then
  command -v clang++ >/dev/null || install_packages clang
  clang++ -fsanitize=address -x c++ - -o build/clang_probe <<<'int main() {}' 2>/dev/null ||
    install_packages "libclang-rt-$(clang++ -dumpversion | cut -d. -f1)-dev"
fi
configure "$preset"
say "building build/$preset"
cmake --build --preset "$preset"

if [ $full = yes ]; then
  for harness in tests/install/nvrtc_matrix.sh tests/install/aarch64.sh; do
    say "running $harness"
    "$harness" || fail 1 "$harness failed"
  done
fi

# The tests of the GPU first and apart, so that what they say of the machine is seen, and the summary
# of all others stands last.
gpu_log=build/$preset/gpu_tests.log
say "running the tests of the GPU"
ctest --preset "$preset" -L gpu -V -j "$jobs" >"$gpu_log" || {
  cat "$gpu_log"
  fail 1 "tests of the GPU failed"
}
total=$(grep -c '^ *[0-9]*/[0-9]* Test ' "$gpu_log" || true)
skipped=$(grep -c '\*\*\*Skipped' "$gpu_log" || true)
say "of $total tests of the GPU in this preset, $((total - skipped)) passed and $skipped were skipped"
sed -n '/: Skipped$/{n;s/^[0-9]*: //p}' "$gpu_log" | sort | uniq -c | while read -r count reason; do
  say "skipped $count: $reason"
done
if [ $gpu = yes ] && { [ "$skipped" != 0 ] || [ "$total" = 0 ]; }; then
  fail 1 "--gpu was asked for, and $skipped of $total tests of the GPU did not run"
fi

other=gpu
# The long form of tests/faults takes minutes, as does another build of Kiln.
if [ $full = yes ]; then export KILN_FULL=1; else other+='|rebuild'; fi
say "running all other tests"
ctest --preset "$preset" -LE "$other" -j "$jobs"
