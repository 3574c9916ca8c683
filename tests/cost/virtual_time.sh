#!/usr/bin/env bash
# virtual_time.sh <predict> <table>
# The simulator's time of an all-reduce on fixed links. It is the same on every machine and with every compiler. A line of the
# table: options of predict, `=`, milliseconds. More than 1 % above it is a regression. More than 5 % below it is progress that
# the table does not know yet, and could lose again. PCCL_WRITE_COSTS=1 rewrites the table.
set -euo pipefail
# Where the environment is empty, bash has a PATH of its own, but what it starts does not.
export PATH
program=$1 table=$2
failed=0 lines=()
while IFS= read -r line; do
    if [ -z "$line" ] || [ "${line#\#}" != "$line" ]; then lines+=("$line"); continue; fi
    options=${line%% = *} expected=${line##* = }
    # shellcheck disable=SC2086
    output=$("$program" $options)
    found=$(printf '%s\n' "$output" | sed -n 's/.*"predicted_ms":\([0-9.]*\).*/\1/p')
    lines+=("$options = $found")
    verdict=$(awk -v found="$found" -v expected="$expected" 'BEGIN {
        if (!(found > 0)) print "NO TIME"
        else if (found > expected * 1.01) print "SLOWER"
        else if (found < expected * 0.95) print "FASTER: write the table anew (PCCL_WRITE_COSTS=1)"
        else print "held" }')
    echo "virtual_time: $options: $found ms, expected $expected: $verdict"
    [ "$verdict" = held ] || failed=1
done <"$table"
if [ -n "${PCCL_WRITE_COSTS:-}" ]; then
    printf '%s\n' "${lines[@]}" >"$table"
    echo "virtual_time: $table written"
    exit 0
fi
exit $failed
