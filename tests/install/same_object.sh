#!/usr/bin/env bash
# A compiler launcher for Kiln inside another project's tree: where the command is that of Kiln's own
# build, and the source the same, it takes the object of that build, and otherwise compiles.
#
#   same_object.sh BUILD COMPILER ARGUMENT...
set -euo pipefail
build=$1
shift
inside=_deps/kiln-build/
object='' source='' dependencies=''
for ((i = 1; i < $#; ++i)); do
  next=$((i + 1))
  case ${!i} in
    -o) object=${!next} ;;
    -c) source=${!next} ;;
    -MF) dependencies=${!next} ;;
  esac
done
other=$build/${object#"$inside"}
# command_of TREE OBJECT: what both builds name alike, without the one flag that users do not get.
command_of() {
  local line
  line=$(grep -F -e " -o $2 -c " "$1/compile_commands.json") || return 1
  line=${line//"$1/$inside"/} line=${line//"$1/"/} line=${line//"$inside"/}
  echo "${line/ -Werror / }"
}
# Sources in the tree have one name in both builds; what is generated must have one text.
other_source=${source/"$PWD/$inside"/"$build/"}
if [[ $object == "$inside"* && -n $dependencies && -f $other ]] &&
   mine=$(command_of "$PWD" "$object") &&
   theirs=$(command_of "$build" "${object#"$inside"}") &&
   [ "$mine" = "$theirs" ] && cmp -s "$source" "$other_source"; then
  cp "$other" "$object"
  # Taken again when that build has made it anew.
  echo "${object// /\\ }: ${other// /\\ }" >"$dependencies"
  exit
fi
exec "$@"
