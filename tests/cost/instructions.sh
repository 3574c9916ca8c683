#!/usr/bin/env bash
# instructions.sh <cost_run>
# Counts the instructions that a master and two members execute for an all-reduce, with callgrind. Valgrind runs one thread
# at a time, so the count hardly depends on the machine: runs differ by less than 1 %. The bounds are 15 % above what
# gcc 12 gives, because compilers differ by less and a lost optimization costs more. Status 77: valgrind is not here.
set -euo pipefail
# Where the environment is empty, bash has a PATH of its own, but what it starts does not.
export PATH
program=$1
command -v valgrind >/dev/null || { echo "instructions: skipped: valgrind is not installed"; exit 77; }
# The kernels for AVX2 need a third of the instructions.
grep -qw avx2 /proc/cpuinfo || { echo "instructions: skipped: this processor has no AVX2"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

failed=0
# bound <bytes> <operations> <instructions of one operation at most>
bound() {
    local bytes=$1 operations=$2 most=$3 total each
    rm -f "$work"/counted*
    if ! valgrind --tool=callgrind --fair-sched=try --callgrind-out-file="$work/counted" \
        --zero-before=cost_begin --dump-before=cost_end "$program" "$bytes" "$operations" >"$work/log" 2>&1; then
        tail -n 20 "$work/log"
        echo "instructions: $program failed under valgrind"
        exit 1
    fi
    total=$(sed -n 's/^totals: \([0-9]*\).*/\1/p' "$work/counted.1")
    each=$((total / operations))
    if [ "$each" -gt "$most" ]; then
        failed=1
        echo "instructions: TOO MANY: $each for an all-reduce of $bytes bytes, the bound is $most"
    elif [ "$each" -lt $((most * 7 / 10)) ]; then
        failed=1
        echo "instructions: $each for an all-reduce of $bytes bytes are far below the bound of $most: lower it to 115 % of this"
    else
        echo "instructions: $each for an all-reduce of $bytes bytes, the bound is $most"
    fi
}
bound 4096 100 310000       # 267,000
bound 16777216 3 37000000   # 32,200,000: 1.92 per byte
exit $failed
