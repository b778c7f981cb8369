#!/usr/bin/env bash
# Builds and runs the outside project in project/ against Kiln, in one of the ways that users have.
#
#   tests/install/run.sh BUILD WAY
#
# BUILD is a built tree of Kiln with static libraries, WAY one of the functions named way_* below,
# or `all`. Prefixes have a blank in their path and are moved after the installation.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tree=$(cd "$here/../.." && pwd)
build=$(cd "${1:?the build tree}" && pwd)
work=$build/install_tests
jobs=$(nproc)

fail() { echo "tests/install/run.sh: $*" >&2; exit 1; }
cached() { sed -n "s/^$1:[^=]*=//p" "$build/CMakeCache.txt"; }
prefix() { echo "$work/moved prefix/$1"; }

CXX=$(cached CMAKE_CXX_COMPILER)
CMAKE_GENERATOR=$(cached CMAKE_GENERATOR)
export CXX CMAKE_GENERATOR
kiln_settings=(-DKILN_CUDA_INCLUDE_DIR="$(cached KILN_CUDA_INCLUDE_DIR)")
# With assertions and without debug information, which is a sixth of a compile.
fast_debug=(-DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG= -DCMAKE_UNITY_BUILD=ON
            -DCMAKE_UNITY_BUILD_BATCH_SIZE=0)

install_and_move() {  # KIND BUILD
  rm -rf "$work/first prefix/$1" "$(prefix "$1")"
  cmake --install "$2" --prefix "$work/first prefix/$1" >/dev/null
  mkdir -p "$work/moved prefix"
  mv "$work/first prefix/$1" "$(prefix "$1")"
}

way_install_static() {
  install_and_move static "$build"
  # Those that a program uses itself, with exceptions or of another version, are not to be ours.
  local foreign
  foreign=$(nm -C --defined-only "$(prefix static)"/lib/libkiln_*.a |
            grep -E '\b(nlohmann|spdlog)::' || true)
  [ -z "$foreign" ] || fail "the static libraries define"$'\n'"$foreign"
  # Nor is what does not throw to be taken for what does.
  foreign=$(nm -C --defined-only "$(prefix static)"/lib/libkiln_{runtime,cache}.a |
            grep -E '\bkiln_nlohmann::' || true)
  [ -z "$foreign" ] || fail "code without exceptions defines"$'\n'"$foreign"
  [ "$(cached KILN_BUILD_CLI)" = OFF ] || "$(prefix static)/bin/kiln" --version
}

way_install_shared() {
  # -z defs: each library is linked with everything that it uses.
  cmake -S "$tree" -B "$work/shared" "${kiln_settings[@]}" "${fast_debug[@]}" \
    -DBUILD_SHARED_LIBS=ON -DCMAKE_SHARED_LINKER_FLAGS=-Wl,-z,defs -DKILN_BUILD_EXAMPLES=OFF \
    -DKILN_BUILD_CLI=OFF -DKILN_BUILD_TESTS=OFF -DKILN_BUILD_BENCHMARKS=OFF >"$work/shared.log"
  cmake --build "$work/shared" -j "$jobs"
  install_and_move shared "$work/shared"
}

# What the libraries export: functions of Kiln's own that are not private, and weak instances of the
# standard library's templates.
way_exported_symbols() {
  local library symbols foreign
  for library in cache runtime kernels spdlog; do
    symbols=$(nm -DC --defined-only "$(prefix shared)/lib/libkiln_$library.so" | cut -d' ' -f2-)
    grep -q '^T kiln::' <<<"$symbols" || fail "libkiln_$library.so exports no function"
    # Weak are what the library takes of the standard one, and the templates that it offers.
    foreign=$(grep -vE '^(T kiln::|[WVu] (.*[ <(])?std::|W kiln::kernels::[a-z0-9_]*::Decode<)' \
      <<<"$symbols" || true)
    foreign+=$(grep -E '^T .*(State|Slot|Held|detail)::|nlohmann|fmt::|spdlog::' <<<"$symbols" || true)
    [ -z "$foreign" ] || fail "libkiln_$library.so exports"$'\n'"$foreign"
  done
}

run_outside() {  # PROGRAM
  local cache
  cache=$(mktemp -d)
  "$1" "$cache" "$here/project"
  rm -rf "$cache"
}

with_cmake() {  # NAME WAY settings...
  local name=$1 way=$2
  shift 2
  cmake -S "$here/project" -B "$work/$name" -DWAY="$way" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON \
    "$@" >"$work/$name.log" || { cat "$work/$name.log"; return 1; }
  cmake --build "$work/$name" -j "$jobs"
  run_outside "$work/$name/outside"
  "$work/$name/embedding"
}

way_find_package_static() {
  with_cmake find_package_static find_package -DCMAKE_PREFIX_PATH="$(prefix static)" \
    -DCMAKE_CXX_STANDARD=17
  # The example that the README names.
  cmake -S "$tree/examples/outside_project" -B "$work/example" \
    -DCMAKE_PREFIX_PATH="$(prefix static)" >"$work/example.log"
  cmake --build "$work/example" -j "$jobs"
  KILN_CACHE_DIR=$work/example/cache "$work/example/outside_project"
}

way_find_package_shared() {
  with_cmake find_package_shared find_package -DCMAKE_PREFIX_PATH="$(prefix shared)" \
    -DCMAKE_CXX_STANDARD=23 -DCMAKE_CXX_VISIBILITY_PRESET=hidden
}

with_pkgconfig() {  # KIND libraries...
  local folder=$work/pkgconfig_$1 root
  root=$(prefix "$1")
  rm -rf "$folder"
  mkdir -p "$folder"
  # What kiln_embed_sources does where there is CMake.
  {
    echo '#include <kiln/runtime.hpp>'
    echo 'namespace outside { inline std::vector<kiln::SourceText> embedded_sources() { return {'
    for file in kernels/twice.cu kernels/twice.hpp; do
      echo "{\"outside/$file\", R\"kiln_source($(cat "$here/project/$file"; echo x)"
    done | sed 's/^x$/)kiln_source"},/'
    echo '}; } }'
  } >"$folder/embedded_sources.hpp"
  local flags=(--cflags --libs kiln-kernels kiln-spdlog)
  [ "$1" = shared ] || flags=(--static "${flags[@]}")
  # Through eval, because pkg-config escapes the blank.
  eval "\"\$CXX\" -std=c++20 -fno-exceptions -fno-rtti -Wall -Wextra -Wpedantic -Wconversion \
    -Wshadow -Werror -I\"\$folder\" \"\$here/project/main.cpp\" \"\$here/project/functions.cpp\" \
    -o \"\$folder/outside\" $(PKG_CONFIG_PATH="$root/lib/pkgconfig" pkg-config "${flags[@]}")"
  LD_LIBRARY_PATH="$root/lib:${LD_LIBRARY_PATH:-}" run_outside "$folder/outside"
}

way_pkgconfig_static() { with_pkgconfig static; }
way_pkgconfig_shared() { with_pkgconfig shared; }

# Kiln's own build has compiled all this: what has the same commands here is taken from there. The two
# share a build folder, so that the second one only configures and links anew.
in_tree() {  # WAY
  local settings=() name
  for name in CMAKE_BUILD_TYPE CMAKE_CXX_FLAGS CMAKE_UNITY_BUILD CMAKE_UNITY_BUILD_BATCH_SIZE; do
    settings+=(-D"$name=$(cached $name)")
  done
  cmake --build "$build" --target kiln_kernels kiln_spdlog
  with_cmake in_tree "$1" "${kiln_settings[@]}" "${settings[@]}" -DKILN_TREE="$tree" \
    -DCMAKE_CXX_COMPILER_LAUNCHER="$here/same_object.sh;$build" -DCMAKE_CXX_STANDARD=17
}

way_add_subdirectory() {
  in_tree add_subdirectory
  # Nothing of Kiln's own flags reaches its users, nor the tree itself.
  local command
  command=$(grep -o '"command": ".*[^_]main\.cpp' "$work/in_tree/compile_commands.json")
  ! grep -E -e '-W|-fno-|-fvisibility|-I[^ ]*'"$tree"' ' <<<"$command" || fail "a leak of flags"
}

way_fetch_content() { in_tree fetch_content; }

mkdir -p "$work"
if [ "${2:?the way}" = all ]; then
  ways=(install_static install_shared exported_symbols find_package_static find_package_shared
        pkgconfig_static pkgconfig_shared add_subdirectory fetch_content)
else
  ways=("$2")
fi
for way in "${ways[@]}"; do
  declare -F "way_$way" >/dev/null || fail "unknown way $way"
  echo "== $way"
  "way_$way"
done
