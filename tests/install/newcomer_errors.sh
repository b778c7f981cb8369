#!/usr/bin/env bash
# What the two commands say when something is missing in the first minutes: one message with the cure
# and the documented exit code. Fake programs, first in PATH, play the machine that lacks something;
# nothing is installed or built.
# The bodies of the fake programs are for a shell of their own.
# shellcheck disable=SC2016
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
clone="$work/a clone"
failures=0 passed=0 skipped=0
nobody=65534

# fresh: a tree with the commands alone, and programs that play a machine with everything installed.
fresh() {
  rm -rf "$clone" "${work:?}/bin" "$work/toolkit" "$work/other"
  mkdir -p "$clone/examples" "$clone/tests" "$work/bin"
  cp "$repository"/examples/{setup,quickstart}.sh "$clone/examples/"
  cp "$repository/tests/run.sh" "$clone/tests/"
  program dpkg-query 'echo "install ok installed"'
  program apt-get 'echo "apt-get was called" >&2; exit 1'
  program cmake 'echo "cmake version 3.25.1"'
  program id 'echo 0'
  toolkit "$work/toolkit" 13000
  chmod -R a+rX "$work"
  environment=(PATH="$work/bin:/usr/bin:/bin" HOME=/nonexistent CUDA_HOME="$work/toolkit")
  launcher=()
}

# program NAME BODY
program() {
  printf '#!/bin/sh\n%s\n' "$2" >"$work/bin/$1"
  chmod 755 "$work/bin/$1"
}

# toolkit FOLDER VERSION
toolkit() {
  mkdir -p "$1/include" "$1/lib64"
  echo "#define CUDA_VERSION $2" >"$1/include/cuda.h"
  touch "$1/include/nvrtc.h" "$1/lib64/libnvrtc.so.13"
}

as_nobody() {
  rm "$work/bin/id"
  chmod a+rwx "$clone"
  if [ "$(id -u)" = 0 ]; then
    launcher+=(setpriv --reuid="$nobody" --regid="$nobody" --clear-groups)
  fi
}

# No toolkit is installed. Returns 1 where one is and cannot be hidden.
without_toolkit() {
  environment=("${environment[@]:0:2}")
  [ -e /usr/local/cuda ] || return 0
  unshare -m mount -t tmpfs none "$(realpath /usr/local/cuda)" 2>/dev/null || return 1
  # shellcheck disable=SC2016
  launcher=(unshare -m sh -c 'mount -t tmpfs none "$(realpath /usr/local/cuda)" && exec "$@"' sh)
}

# expect WHAT EXIT_CODE TEXT... -- COMMAND [ARGUMENT...]: the command, of the clone, ends with that
# code, and its only line on standard error holds the texts.
expect() {
  local what=$1 wanted=$2 code=0 text wrong='' texts=()
  shift 2
  while [ "$1" != -- ]; do texts+=("$1"); shift; done
  shift
  (cd / && "${launcher[@]}" env -i "${environment[@]}" "$clone/$1" "${@:2}") \
    >"$work/out" 2>"$work/err" </dev/null || code=$?
  [ $code = "$wanted" ] || wrong="exit code $code, not $wanted"
  [ "$(wc -l <"$work/err")" = 1 ] || wrong+="; standard error is not one line"
  for text in "${texts[@]}"; do
    grep -qF -e "$text" "$work/err" || wrong+="; no '$text'"
  done
  if [ -z "$wrong" ]; then
    passed=$((passed + 1))
    return
  fi
  failures=$((failures + 1))
  printf 'FAILED: %s: %s\n' "$what" "$wrong"
  sed 's/^/    out: /' "$work/out"
  sed 's/^/    err: /' "$work/err"
}

fresh
expect "an unknown argument" 2 "unknown argument --fast" "--full" -- tests/run.sh --fast
expect "a preset without a name" 2 "--preset needs a name" -- tests/run.sh --preset
expect "an argument to the quickstart" 2 "takes no argument, and got: please" -- \
  examples/quickstart.sh please

for command in examples/quickstart.sh tests/run.sh; do
  fresh
  program dpkg-query '[ "$4" != libgtest-dev ] && echo "install ok installed"'
  as_nobody
  expect "$command: not root, a package missing" 3 \
    "as root, run: apt-get update && apt-get install -y --no-install-recommends libgtest-dev" -- $command

  fresh
  program dpkg-query '[ "$4" != libgtest-dev ] && echo "install ok installed"'
  program apt-get 'echo "E: Unable to fetch some archives" >&2; exit 100'
  expect "$command: apt-get fails" 3 "apt-get failed (E: Unable to fetch some archives)" \
    "check the network" "apt-get install -y --no-install-recommends libgtest-dev" -- $command

  fresh
  program cmake 'echo "cmake version 3.22.1"'
  expect "$command: an old CMake" 3 "$work/bin/cmake is CMake 3.22.1, and 3.24 is the oldest" \
    "put a newer one" -- $command

  fresh
  program cmake 'case $1 in --version) echo "cmake version 3.25.1";; *) exit 1;; esac'
  expect "$command: CMake fails" 3 "could not configure build/release" -- $command

  fresh
  as_nobody
  chmod a-w "$clone"
  if [ "$(id -u)" != 0 ]; then chmod u-w "$clone"; fi
  expect "$command: a clone of somebody else" 3 "cannot write in $clone/build" -- $command
  chmod u+w "$clone"

  # What is wrong with a toolkit that is named is said, and the search goes on to one that serves.
  for wrong in "holds no cuda.h and nvrtc.h" "is CUDA 11.8, and 1" "holds no libnvrtc.so"; do
    fresh
    program cmake 'case $1 in --version) echo "cmake version 3.25.1";; *) exit 1;; esac'
    toolkit "$work/other" 11080
    case $wrong in
      *nvrtc.h) rm "$work/other/include/nvrtc.h" ;;
      *libnvrtc*) toolkit "$work/other" 13000; rm "$work/other/lib64/libnvrtc.so.13" ;;
    esac
    environment+=(CUDA_HOME="$work/other" CUDA_PATH="$work/toolkit")
    expect "$command: CUDA_HOME $wrong" 3 "could not configure" -- $command
    if ! grep -qF "passing over CUDA_HOME=$work/other: it $wrong" "$work/out" ||
       ! grep -qF "using the CUDA toolkit in $work/toolkit" "$work/out"; then
      failures=$((failures + 1))
      echo "FAILED: $command: CUDA_HOME $wrong: not said"
      cat "$work/out"
    fi
  done

  fresh
  if ! without_toolkit; then
    skipped=$((skipped + 3))
    echo "skipped: the cases with no toolkit, for the one in /usr/local/cuda cannot be hidden here"
    continue
  fi
  program python3 'echo "No module named pip" >&2; exit 1'
  expect "$command: no pip" 3 "has no pip" "install pip for it, or the CUDA toolkit" -- $command

  fresh
  without_toolkit
  program python3 '[ "$3" = --version ] || { echo "ERROR: No matching distribution found"; exit 1; }'
  expect "$command: pip fails" 3 "(ERROR: No matching distribution found)" "check the network" \
    "set CUDA_HOME" -- $command
  if [ -e "$clone/build/cuda" ]; then
    failures=$((failures + 1))
    echo "FAILED: $command: pip fails: build/cuda is left, as if it were whole"
  fi

  fresh
  without_toolkit
  program python3 'exit 0'
  expect "$command: wheels of another form" 3 "did not unpack" "build/cuda.part" -- $command
done

echo "$passed passed, $failures failed, $skipped skipped"
[ $failures = 0 ]
