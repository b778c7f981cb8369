# shellcheck shell=bash
# What the newcomer's commands share: packages, CUDA's headers and NVRTC, the configured build.
# Sourced, after `set -euo pipefail`, with the working directory at the top of the repository. Every
# failure ends the script with one message that holds the cure.
#
# Tried on Debian 12. Ubuntu has the same packages, and 24.04 a CMake that is new enough; it is unrun.
# Writes below build/ only, but for the packages that apt-get installs.

readonly kiln_packages=(cmake ninja-build g++ pkg-config libspdlog-dev libfmt-dev libcli11-dev
                        libxxhash-dev libsodium-dev nlohmann-json3-dev libgtest-dev
                        libcurl4-openssl-dev libhiredis-dev libzstd-dev libcpp-httplib-dev)
# The part of the CUDA toolkit that Kiln needs, where no toolkit is installed.
readonly kiln_wheels=(nvidia-cuda-nvrtc==13.0.88 nvidia-cuda-runtime==13.0.96
                      nvidia-cuda-crt==13.0.88 nvidia-cuda-cccl==13.0.85)
readonly kiln_oldest_cuda=${kiln_needs_cuda:-12080} # as CUDA_VERSION in cuda.h
readonly kiln_oldest_cmake=3.24
readonly kiln_log=build/setup.log # what apt-get, pip and cmake said
kiln_name=${0##*/}                # what messages start with

say() { printf '%s: %s\n' "$kiln_name" "$*"; }

# fail CODE MESSAGE
fail() {
  printf '%s: %s\n' "$kiln_name" "$2" >&2
  exit "$1"
}

# The last line of the log that says something.
last_words() { grep -v '^[[:space:]]*$' "$kiln_log" | tail -n 1; }

# Installs those of the named packages that are missing.
install_packages() {
  if ! command -v dpkg-query >/dev/null; then
    say "no dpkg here: going on as if these Debian packages or their like were installed: $*"
    return
  fi
  local package missing=()
  for package in "$@"; do
    dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null | grep -q 'ok installed' ||
      missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  local command="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
  [ "$(id -u)" = 0 ] || fail 3 "packages are missing; as root, run: $command"
  say "installing by apt-get: ${missing[*]}"
  # What update cannot fetch matters only if the packages cannot be had.
  apt-get update -qq >"$kiln_log" 2>&1 </dev/null || true
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    -o DPkg::Lock::Timeout=120 "${missing[@]}" >>"$kiln_log" 2>&1 </dev/null ||
    fail 3 "apt-get failed ($(last_words)); see $PWD/$kiln_log, check the network and apt's sources, then run: $command"
}

# The folder of headers in the toolkit at $1, which holds NVRTC as well and is new enough; otherwise
# says what is wrong with it and returns 1.
toolkit_include() {
  local prefix=$1 include version
  for include in "$prefix"/include "$prefix"/targets/*-linux/include; do
    if [ ! -f "$include/nvrtc.h" ] || [ ! -f "$include/cuda.h" ]; then continue; fi
    version=$(sed -n 's/^#define CUDA_VERSION \([0-9]*\).*/\1/p' "$include/cuda.h" | head -n 1)
    if [ "${version:-0}" -lt "$kiln_oldest_cuda" ]; then
      echo "it is CUDA $((version / 1000)).$((version % 1000 / 10)), and $((kiln_oldest_cuda / 1000)).$((kiln_oldest_cuda % 1000 / 10)) is the oldest that serves"
      return 1
    fi
    if ! compgen -G "$prefix/lib64/libnvrtc.so.*" >/dev/null &&
       ! compgen -G "$prefix/lib/libnvrtc.so.*" >/dev/null &&
       ! compgen -G "$prefix/targets/*-linux/lib/libnvrtc.so.*" >/dev/null; then
      echo "it holds no libnvrtc.so"
      return 1
    fi
    echo "$include"
    return
  done
  echo "it holds no cuda.h and nvrtc.h"
  return 1
}

# Sets CUDA_HOME and kiln_cuda_include to an installed toolkit, or returns 1.
find_toolkit() {
  local place prefix
  for place in CUDA_HOME CUDA_PATH /usr/local/cuda; do
    case $place in
      /*) prefix=$place ;;
      *) prefix=${!place:-} ;;
    esac
    [ -n "$prefix" ] || continue
    if kiln_cuda_include=$(toolkit_include "$prefix"); then
      export CUDA_HOME=$prefix
      say "using the CUDA toolkit in $CUDA_HOME"
      return
    fi
    # That /usr/local/cuda is not there needs no word.
    if [ "$place" = "$prefix" ]; then
      [ ! -e "$prefix" ] || say "passing over $prefix: $kiln_cuda_include"
    else
      say "passing over $place=$prefix: $kiln_cuda_include"
    fi
  done
  return 1
}

# install_wheels FOLDER REQUIREMENT...: unpacks wheels of CUDA into FOLDER, which gets include/ and
# lib/. Does nothing where the very same are there.
install_wheels() {
  local folder=$1 stamp=$1/wheels.txt
  shift
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$*" ]; then return; fi
  say "unpacking by pip into $folder: $*"
  rm -rf "$folder" "$folder.part"
  # No dependencies: these name all that is needed. No cache: nothing is left in the home directory.
  PIP_USER=0 PIP_ROOT_USER_ACTION=ignore python3 -m pip install --no-input --disable-pip-version-check \
    --no-cache-dir --no-compile --no-deps --only-binary :all: --target "$folder.part" "$@" \
    >"$kiln_log" 2>&1 </dev/null ||
    fail 3 "pip could not install $* ($(last_words)); see $PWD/$kiln_log, check the network and pip's index, or install the CUDA toolkit 12.8 or newer and set CUDA_HOME to it"
  # The wheels of CUDA 13 share one folder; those of CUDA 12 have one each.
  local unpacked
  unpacked=$(compgen -G "$folder.part/nvidia/cu[0-9]*" || compgen -G "$folder.part/nvidia/cuda_nvrtc" || true)
  [ -d "$unpacked" ] ||
    fail 3 "the wheels $* did not unpack into a folder nvidia/cu<version>; see $PWD/$folder.part"
  echo "$*" >"$unpacked/wheels.txt"
  mv "$unpacked" "$folder"
  rm -rf "$folder.part"
}

# Everything: packages, then CUDA_HOME and kiln_cuda_include.
set_up() {
  if ! mkdir -p build 2>/dev/null || [ ! -w build ]; then
    fail 3 "cannot write in $PWD/build; clone the repository to where you can"
  fi
  local packages=("${kiln_packages[@]}") with_wheels=no
  if ! find_toolkit; then
    with_wheels=yes
    python3 -m pip --version >/dev/null 2>&1 || packages+=(python3 python3-pip)
  fi
  install_packages "${packages[@]}"
  check_cmake
  [ $with_wheels = yes ] || return 0
  python3 -m pip --version >/dev/null 2>&1 ||
    fail 3 "no CUDA toolkit was found, and $(command -v python3 || echo python3) has no pip to fetch its wheels with; install pip for it, or the CUDA toolkit 12.8 or newer and set CUDA_HOME to it"
  install_wheels build/cuda "${kiln_wheels[@]}"
  export CUDA_HOME=$PWD/build/cuda
  kiln_cuda_include=$(toolkit_include "$CUDA_HOME") ||
    fail 3 "the wheels in $CUDA_HOME do not serve: $kiln_cuda_include; remove $CUDA_HOME and run this again"
  say "using the CUDA wheels in $CUDA_HOME (for commands of your own: export CUDA_HOME=\"$CUDA_HOME\")"
}

check_cmake() {
  command -v cmake >/dev/null ||
    fail 3 "no cmake in PATH; install CMake $kiln_oldest_cmake or newer"
  local version
  version=$(cmake --version | sed -n 's/^cmake version //p')
  printf '%s\n' "$kiln_oldest_cmake" "$version" | sort -V -C ||
    fail 3 "$(command -v cmake) is CMake $version, and $kiln_oldest_cmake is the oldest that serves; put a newer one before it in PATH (such as the one of: python3 -m pip install cmake)"
}

# configure PRESET
configure() {
  say "configuring build/$1"
  # An old build with another compiler would lose all other settings: those of clang start afresh.
  local fresh=()
  [ "$1" = release ] || grep -q '^CMAKE_CXX_COMPILER:.*clang++$' "build/$1/CMakeCache.txt" 2>/dev/null ||
    fresh=(--fresh)
  cmake "${fresh[@]}" --preset "$1" -DKILN_CUDA_INCLUDE_DIR="$kiln_cuda_include" >"$kiln_log" 2>&1 || {
    cat "$kiln_log" >&2
    fail 3 "cmake could not configure build/$1; what it said stands above. If it is an old build of another folder, remove build/$1"
  }
}

# number_of NAME JSON: the number, or true or false, that the first member NAME holds.
number_of() {
  [[ $2 =~ \"$1\":\ *([a-z0-9]+) ]] || return 1
  echo "${BASH_REMATCH[1]}"
}
