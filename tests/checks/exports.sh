#!/usr/bin/env bash
# exports.sh <libpccl.so> <list> <headers>...
# The library shows exactly the functions of the list, its SONAME is libpccl.so.1, and the headers declare them all.
set -euo pipefail
export LC_ALL=C
library=$1 list=$2
shift 2
failed=0

want=$(grep -vE '^(#|$)' "$list" | sort -u)
# Version nodes are absolute symbols; the version of a name is stripped.
have=$(nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u)
extra=$(comm -13 <(printf '%s\n' "$want") <(printf '%s\n' "$have"))
missing=$(comm -23 <(printf '%s\n' "$want") <(printf '%s\n' "$have"))
[ -z "$extra" ] || { printf 'exports: shown but not on the list:\n%s\n' "$(printf '%s\n' "$extra" | c++filt | sed 's/^/  /')"; failed=1; }
[ -z "$missing" ] || { printf 'exports: on the list but not shown:\n%s\n' "$(printf '%s\n' "$missing" | sed 's/^/  /')"; failed=1; }

for name in $want; do
    grep -qE "(^|[^A-Za-z0-9_])$name[[:space:]]*\(" "$@" || { echo "exports: $name is not declared in $*"; failed=1; }
done
declared=$(grep -hE '^PCCL_EXPORT' "$@" | grep -oE '\bpccl[A-Za-z0-9_]+\(' | tr -d '(' | sort -u || true)
undefined=$(comm -13 <(printf '%s\n' "$want") <(printf '%s\n' "$declared") | grep . || true)
[ -z "$undefined" ] || { printf 'exports: declared in a header but not on the list:\n%s\n' "$undefined"; failed=1; }

soname=$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\].*/\1/p')
[ "$soname" = libpccl.so.1 ] || { echo "exports: SONAME is '$soname', not libpccl.so.1"; failed=1; }

[ "$failed" = 0 ] && echo "exports: $(printf '%s\n' "$have" | wc -l) functions, as listed"
exit $failed
