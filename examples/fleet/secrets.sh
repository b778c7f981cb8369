#!/bin/sh
# Makes the passwords of a fleet's servers, in this folder:
#
#   reader.password, builder.password  of Redis, each for KILN_REMOTE_PASSWORD
#   builder.netrc                      of nginx, for KILN_REMOTE_NETRC
#   kiln_users.acl, kiln_htpasswd      for the servers: digests alone
#
# usage: sh secrets.sh HOST...         the names by which builders reach nginx
set -euC  # C: what is there already is kept, and the script ends
[ $# -gt 0 ] || { echo "usage: sh secrets.sh HOST..." >&2; exit 2; }
umask 077

password() { openssl rand -hex 24; }
digest() { printf %s "$(cat "$1")" | sha256sum | cut -c1-64; }

password > reader.password
password > builder.password
web=$(password)
for host in "$@"; do echo "machine $host login builder password $web"; done > builder.netrc

umask 022  # the servers' users read these
echo "builder:$(printf '%s\n' "$web" | openssl passwd -apr1 -stdin)" > kiln_htpasswd
cat > kiln_users.acl <<END
user default off
user reader on #$(digest reader.password) ~kiln:* +mget
user builder on #$(digest builder.password) ~kiln:* +mget +set +get +del +eval +info
END
