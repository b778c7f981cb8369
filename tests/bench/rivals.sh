#!/usr/bin/env bash
# Our cold compiles and hits beside those of other caches, in one run on one machine. Rivals that
# are not installed are skipped, with the reason.
#   tests/bench/rivals.sh [--build DIR] [--python PROGRAM] [--json FILE]
# DIR: build/release if not given; PROGRAM: python3, with the rivals' packages; FILE - is the
# standard output.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=build/release python=python3 json=/dev/null
while [ $# -gt 0 ]; do
  case $1 in
    --build) build=${2:?--build needs a directory}; shift 2 ;;
    --python) python=${2:?--python needs a program}; shift 2 ;;
    --json) json=${2:?--json needs a file}; shift 2 ;;
    *) echo "tests/bench/rivals.sh: unknown argument $1" \
            "(known: --build DIR, --python PROGRAM, --json FILE)" >&2; exit 2 ;;
  esac
done
[ "$json" = - ] && json=/dev/stdout

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$build/bin/kiln_rivals_bench" --json "$work/ours.json" >&2
rows=()
for script in cuda_core cupy_raw_module cupy_disk_cache triton_kernel ccache_hit; do
  if "$python" "tests/bench/rivals/$script.py" >"$work/$script.json" 2>"$work/why"; then
    rows+=("$work/$script.json")
  else
    echo "skipped $script: $(tail -n 1 "$work/why")" >&2
  fi
done
"$python" tests/bench/rivals/merge.py "$work/ours.json" "${rows[@]}" >"$json"
