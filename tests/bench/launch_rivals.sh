#!/usr/bin/env bash
# Host cost of a launch: the raw driver call, Kiln, and the Python libraries that are installed, all
# pinned to one processor and one after the other in one run. Needs a GPU.
#   tests/bench/launch_rivals.sh [--bin DIR] [--cpu N] [--rounds N] [--out DIR] [--python PROGRAM]
# DIR of --bin holds kiln_launch_bench (default build/release/bin); the JSON documents go to --out.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

bin=$here/../../build/release/bin
cpu=2
rounds=41
out=
python=python3
while [ $# -gt 0 ]; do
  case $1 in
    --bin) bin=${2:?--bin needs a directory}; shift 2 ;;
    --cpu) cpu=${2:?--cpu needs a number}; shift 2 ;;
    --rounds) rounds=${2:?--rounds needs a number}; shift 2 ;;
    --out) out=${2:?--out needs a directory}; shift 2 ;;
    --python) python=${2:?--python needs a program}; shift 2 ;;
    *) echo "launch_rivals.sh: unknown argument $1; see its head" >&2; exit 2 ;;
  esac
done
if [ -z "$out" ]; then
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
fi
mkdir -p "$out"

# The harness takes a multiple of 4 and needs no more than the others do.
taskset -c "$cpu" "$bin/kiln_launch_bench" --rounds "$rounds" --json "$out/launch_kiln.json" >&2
documents=("$out/launch_kiln.json")
for library in cuda_core cupy triton; do
  document=$out/launch_$library.json
  # A library that is missing says so in its document.
  taskset -c "$cpu" "$python" "$here/rivals/launch_$library.py" --rounds "$rounds" \
    --json "$document" || true
  if [ -s "$document" ]; then documents+=("$document"); else echo "$library: no document" >&2; fi
done
"$python" "$here/rivals/compare_launches.py" "${documents[@]}"
