#!/usr/bin/env bash
# The newcomer's two commands on a fresh Debian 12: debootstrap's smallest system, a clone of HEAD in
# a path with blanks (a comma would break CMake's own run paths of shared libraries), no CUDA toolkit;
# then another clone with the host's toolkit. Each command runs twice, and the times are printed. By
# hand, as root; takes about 40 minutes and 3 GB below TMPDIR. Uses the host's apt mirror, proxies and
# pip configuration. Ubuntu is unrun.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

say() { printf 'fresh_debian.sh: %s\n' "$*"; }

# Within a mount namespace of its own: all mounts end with it.
inside() {
  local root=$1
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  local environment=(HOME=/root TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
  local name
  for name in $(compgen -e | grep -iE '^(https?_proxy|no_proxy|PIP_.*|SSL_CERT_FILE|REQUESTS_CA_BUNDLE)$'); do
    environment+=("$name=${!name}")
  done

  # timed WHAT COMMAND...
  timed() {
    local what=$1 log=$root/var/log/kiln TIMEFORMAT='%0R s, of them %0U + %0S s of processors'
    shift
    say "$what: $*"
    { time chroot "$root" env -i "${environment[@]}" "$@" >"$log" 2>&1; } 2>"$log.time" || {
      cat "$log"
      say "FAILED: $what"
      return 1
    }
    grep -E '^(quickstart|run)\.sh: |tests passed|Total Test time|Skipped\)' "$log" | sed 's/^/    /'
    times+=("$what: $(tail -n 1 "$log.time")")
    say "${times[-1]}"
  }

  local times=() toolkit
  for toolkit in no the; do
    local clone="/srv/kiln $toolkit toolkit"
    if [ $toolkit = the ]; then
      if [ ! -e /usr/local/cuda ]; then
        say "the host has no /usr/local/cuda: the second half is left out"
        break
      fi
      mkdir -p "$root/usr/local/cuda"
      mount --bind -o ro "$(realpath /usr/local/cuda)" "$root/usr/local/cuda"
    fi
    git clone -q --no-hardlinks . "$root$clone"
    timed "quickstart, $toolkit toolkit, first run" "$clone/examples/quickstart.sh"
    timed "quickstart, $toolkit toolkit, second run" "$clone/examples/quickstart.sh"
    timed "tests, $toolkit toolkit, first run" "$clone/tests/run.sh"
    timed "tests, $toolkit toolkit, second run" "$clone/tests/run.sh"
    if [ -n "$(git -C "$root$clone" status --porcelain)" ]; then
      say "FAILED: the clone holds files that git does not ignore"
      return 1
    fi
  done
  say "all passed"
  printf '    %s\n' "${times[@]}"
}

if [ "${1:-}" = --inside ]; then
  inside "$2"
  exit
fi
[ $# = 0 ] || { say "takes no argument" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { say "must run as root" >&2; exit 3; }
command -v debootstrap >/dev/null ||
  { say "debootstrap is missing; run: apt-get install debootstrap" >&2; exit 3; }

# $(REPO_URI) is apt's, not the shell's.
# shellcheck disable=SC2016
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' \
  'Component: main' | head -n 1)
[ -n "$mirror" ] || { say "apt knows no mirror of Debian bookworm; run apt-get update" >&2; exit 3; }

root=$(mktemp -d)
chmod 755 "$root" # some tests become another user
# Outside of the namespace nothing is mounted in it; all the same, stay on its file system.
trap 'rm -rf --one-file-system "$root"' EXIT
start=$SECONDS
say "debootstrap of bookworm into $root"
debootstrap --variant=minbase bookworm "$root" "$mirror" >"$root.log" 2>&1 ||
  { tail -n 5 "$root.log"; rm -f "$root.log"; exit 1; }
rm -f "$root.log"
say "$((SECONDS - start)) s"
apt-config dump | grep -E '^Acquire::(https?|ftp)::' >"$root/etc/apt/apt.conf.d/90host" || true
mkdir -p "$root/root/.config"
for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /usr/local/share/ca-certificates \
            /etc/ssl/certs/ca-certificates.crt "${HOME:-/root}/.config/pip"; do
  [ -e "$file" ] || continue
  case $file in
    */.config/pip) cp -rL "$file" "$root/root/.config/" ;;
    *)
      mkdir -p "$root$(dirname "$file")"
      cp -rL "$file" "$root$(dirname "$file")/"
      ;;
  esac
done
unshare --mount --propagation private "$0" --inside "$root"
