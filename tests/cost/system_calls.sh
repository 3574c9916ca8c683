#!/usr/bin/env bash
# system_calls.sh <cost_run>
# Counts the system calls of a master and two members for an all-reduce, with strace. Calls that send are as many as frames
# and slices demand, whatever the load, so their bound is near what was seen: by TCP 4, 37.2 and 344, through shared memory 25
# and 153. How often a thread wakes up, and how much a read finds, depend on the scheduler: the bound of all calls is 1.5
# times what was seen (31, 123 and 763; 108 and 630).
# Under strace a path over loopback is sometimes a long one. Two members then reduce pairwise: 1 MiB by TCP takes 32.8 calls
# that send, and along the ring 37.2; 16 MiB take 344, and along the ring 275. The bounds allow both.
# How much own input is in flight on a short path depends on how long slices wait, so 16 MiB of them take more or fewer words.
# Status 77: strace is not here, or may not trace.
set -euo pipefail
# Where the environment is empty, bash has a PATH of its own, but what it starts does not.
export PATH
program=$1
command -v strace >/dev/null || { echo "system_calls: skipped: strace is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
strace -f -qq -o "$work/trace" true 2>/dev/null || { echo "system_calls: skipped: processes may not be traced here"; exit 77; }

failed=0
# bound <tcp | shared> <bytes> <operations> <most calls that send> <most calls>: of one operation
bound() {
    local way=$1 bytes=$2 operations=$3
    PCCL_SHARED_MEMORY=$([ "$way" = shared ] && echo 1 || echo 0)
    export PCCL_SHARED_MEMORY
    if ! strace -f -qq -o "$work/trace" "$program" "$bytes" "$operations" >"$work/log" 2>&1; then
        tail -n 20 "$work/log"
        echo "system_calls: $program failed under strace"
        exit 1
    fi
    awk -v bytes="$bytes" -v operations="$operations" -v way="$way" -v sends_most="$4" -v all_most="$5" '
        /write\(-77, "begin"/ { on = 1; next }
        /write\(-77, "end"/ { on = 0; seen = 1 }
        on && /^[0-9]+ +[a-z0-9_]+\(/ {
            name = $2
            sub(/\(.*/, "", name)
            ++count[name]
            ++all
            if (name ~ /^(sendmsg|sendmmsg|sendto|write|writev)$/) ++sends
        }
        END {
            if (!seen) { print "system_calls: the marks are not in the trace"; exit 1 }
            many = sends > sends_most * operations || all > all_most * operations
            printf "system_calls: %s%.1f calls that send (at most %s), %.1f calls (at most %s) for an all-reduce of %d bytes (%s)\n", \
                many ? "TOO MANY: " : "", sends / operations, sends_most, all / operations, all_most, bytes, way
            if (many) for (name in count) printf "  %-16s %.1f\n", name, count[name] / operations
            exit many
        }' "$work/trace" || failed=1
}
bound tcp 4096 200 4.7 47
bound tcp 1048576 40 43 190
bound tcp 16777216 8 405 1160
bound shared 1048576 40 29 165
bound shared 16777216 8 180 950
exit $failed
