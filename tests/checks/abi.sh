#!/usr/bin/env bash
# abi.sh <libpccl.so> <include folder> <baseline> [--write]
# The library's binary interface (functions, layouts, values) against the one kept in the tree: additions are said, anything
# that would break a program built before fails. --write makes the present one the baseline.
set -euo pipefail
library=$1 headers=$2 baseline=$3
command -v abidw >/dev/null || { echo "abi: skipped: abidw is not here (package abigail-tools)"; exit 77; }
# Only what functions of the interface use; places in files would change with every edit.
describe() {
    abidw --headers-dir "$headers" --drop-private-types --exported-interfaces-only --no-corpus-path --no-comp-dir-path \
        --no-show-locs "$library"
}
if [ "${4:-}" = --write ]; then
    describe >"$baseline"
    echo "abi: baseline written"
    exit 0
fi
present=$(mktemp --suffix=.abi)
trap 'rm -f "$present"' EXIT
describe >"$present"
status=0
abidiff "$baseline" "$present" || status=$?
# Bits of abidiff: 1 error, 2 usage, 4 some change, 8 a change that breaks.
[ $((status & 11)) = 0 ] || { echo "abi: programs that were built before would break, or the check itself failed"; exit 1; }
[ "$status" = 0 ] && echo "abi: as in the baseline" ||
    { echo "abi: additions; write them down with tests/checks/abi.sh ... --write"; exit 1; }
