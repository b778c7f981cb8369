#!/usr/bin/env bash
# How many instructions a launch takes, exactly: what Kiln adds to a direct cuLaunchKernelEx, and that
# it is the same for every number of arguments. Against the fake driver, so that the driver's own part
# is the same few instructions on both sides.
#   tests/launch_cost/count_instructions.sh [PROGRAM FAKE_DRIVER_FOLDER]
# Without arguments those of build/release. Exit codes: 0 passed, 1 failed, 2 usage, 77 skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. examples/setup.sh

# 76 by GCC 12, half of them the stand-in's answer whether the stream is being captured. At one a
# cycle and 2 GHz, a slow processor, 100 are 50 ns.
readonly most_added=100

[ $# = 0 ] || [ $# = 2 ] || fail 2 "give the program and the fake driver's folder, or nothing"
program=${1:-build/release/bin/kiln_launch_count}
fake_driver=${2:-build/release/fake_driver}
[ -x "$program" ] || fail 2 "$program is missing; build the target kiln_launch_count"
[ -e "$fake_driver/libcuda.so.1" ] || fail 2 "there is no libcuda.so.1 in $fake_driver"
if ! command -v valgrind >/dev/null; then
  say "skipped: valgrind is not installed"
  exit 77
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LD_LIBRARY_PATH=$fake_driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# First without valgrind, which would make compiling slow.
"$program" "$work/cache" >/dev/null || {
  code=$?
  [ $code = 77 ] || fail 1 "$program failed"
  exit 77
}
valgrind --tool=callgrind --callgrind-out-file="$work/count" \
  --toggle-collect=kiln_count_launch --toggle-collect=kiln_count_direct \
  --dump-after=kiln_count_report "$program" "$work/cache" >"$work/loops" 2>"$work/log" || {
  cat "$work/log" >&2
  fail 1 "valgrind failed"
}

declare -A first_total first_launches each
number=0
while read -r arguments way launches; do
  number=$((number + 1))
  key=$arguments.$way
  total=$(sed -n 's/^totals: //p' "$work/count.$number")
  [ "${total:-0}" -gt 0 ] || fail 1 "callgrind counted nothing in loop $number ($way)"
  if [ -z "${first_total[$key]:-}" ]; then
    first_total[$key]=$total first_launches[$key]=$launches
    continue
  fi
  # What two loops of different length differ by is launches alone.
  more_launches=$((launches - first_launches[$key]))
  more=$((total - first_total[$key]))
  [ $((more % more_launches)) = 0 ] ||
    fail 1 "$arguments arguments, $way: $more_launches launches more take $more instructions more, so that not all take the same"
  each[$key]=$((more / more_launches))
done <"$work/loops"

echo "Instructions of one launch:"
printf '%9s %8s %8s %10s\n' arguments launch direct difference
row='' faults=()
for arguments in 0 6 19 32; do
  launch=${each[$arguments.launch]:?} direct=${each[$arguments.direct]:?}
  difference=$((launch - direct))
  printf '%9d %8d %8d %10d\n' "$arguments" "$launch" "$direct" "$difference"
  row=${row:-$launch $direct}
  [ "$row" = "$launch $direct" ] ||
    faults+=("$arguments arguments take other instructions than none do")
  [ $difference -le $most_added ] ||
    faults+=("$arguments arguments: Kiln adds $difference instructions, and $most_added is the limit")
done
[ ${#faults[@]} = 0 ] || fail 1 "$(printf '%s; ' "${faults[@]}")"
