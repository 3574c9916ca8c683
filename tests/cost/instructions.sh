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
# What copies with `rep movs` counts one instruction a byte; vector instructions tell more.
export GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=1000000000
# bound <tcp | shared> <bytes> <operations> <instructions of one operation at most>: between members of one host, by TCP or
# through shared memory
bound() {
    local way=$1 bytes=$2 operations=$3 most=$4 total each
    PCCL_SHARED_MEMORY=$([ "$way" = shared ] && echo 1 || echo 0)
    export PCCL_SHARED_MEMORY
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
        echo "instructions: TOO MANY: $each for an all-reduce of $bytes bytes ($way), the bound is $most"
    elif [ "$each" -lt $((most * 7 / 10)) ]; then
        failed=1
        echo "instructions: $each for an all-reduce of $bytes bytes ($way) are far below the bound of $most: lower it to 115 % of this"
    else
        echo "instructions: $each for an all-reduce of $bytes bytes ($way), the bound is $most"
    fi
}
bound tcp 4096 100 215000           # 186,500
bound tcp 16777216 3 55800000       # 48,500,000: 2.89 per byte; each member reduces all of it (pairwise)
bound tcp 67108864 1 149000000      # 129,300,000: 1.93 per byte; each member finishes a half (ring)
# 54,900,000 with the memcpy of glibc: a loop of 16-byte vectors copies to and from shared memory, and takes less time.
bound shared 16777216 3 70500000    # 61,300,000: 3.65 per byte, all copies included
exit $failed
