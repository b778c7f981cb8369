#!/usr/bin/env bash
# From a fresh clone to a filled cache, and to a checked launch where there is a GPU:
#   examples/quickstart.sh
# Asks nothing and takes no argument. Installs missing Debian packages when it runs as root; all else
# that it writes is below build/. A second run finds everything done.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. examples/setup.sh

[ $# = 0 ] || fail 2 "takes no argument, and got: $*"
set_up
configure release
say "building the kiln command and the embedding example"
cmake --build --preset release --target kiln_cli kiln_embed

cache=build/quickstart-cache
prewarm=(build/release/bin/kiln prewarm --model deepseek-v4.1-flash --tp 4 --kv nvfp4
         "--arch=sm_90a,sm_100a" --cache-dir "$cache")

say "filling a cache, with no need of a GPU: ${prewarm[*]}"
"${prewarm[@]}"

say "listing it: build/release/bin/kiln cache ls --cache-dir $cache"
build/release/bin/kiln cache ls --cache-dir "$cache"

say "the same prewarm again, which must find everything"
report=$("${prewarm[@]}" --json)
requested=$(number_of requested "$report")
hits=$(number_of hits "$report")
nvrtc_loaded=$(number_of nvrtc_loaded "$report")
say "$hits of $requested kernels were hits; NVRTC loaded: $nvrtc_loaded"
if [ "$requested" = 0 ] || [ "$hits" != "$requested" ] || [ "$nvrtc_loaded" != false ]; then
  fail 1 "the second prewarm compiled what the first should have stored in $cache"
fi

say "launching from that cache where there is a GPU: build/release/bin/kiln_embed"
KILN_CACHE_DIR=$cache build/release/bin/kiln_embed
say "done"
