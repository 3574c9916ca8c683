#!/usr/bin/env bash
# check.sh <sim-run> [--update]
# Golden traces: each scenario of this folder gives the trace beside it, or with --update writes it. A trace is the part of the
# run between what the comments "# from:" and "# to:" name: commands, completions, what is sent, and faults. What arrives is
# left out, as are heartbeats and timers. A changed message or a changed draw of the generator changes them: read the
# difference before you update.
set -euo pipefail
export LC_ALL=C
sim=$(realpath "$1") update=${2:-}
cd "$(dirname "${BASH_SOURCE[0]}")"

trace() {
    local from to
    from=$(sed -n 's/^# from: //p' "$1") to=$(sed -n 's/^# to: //p' "$1")
    "$sim" --scenario "$1" --trace - |
        grep -E '^ +[0-9.]+ ms .*( command |  complete |  send |FAULT|link closed|process |removed|  (open|close) link )' |
        grep -vE 'heartbeat|(peer[0-9]+|master) +control on|peer[0-9]+ +log:' |
        awk -v from="$from" -v to="$to" 'index($0, from) && !past { on = 1 } on { print } on && index($0, to) { on = 0; past = 1 }' |
        sed -E 's/([0-9]+\.[0-9])[0-9]* ms/\1 ms/' |
        awk '{ time = $1; who = $3; $1 = $2 = $3 = ""; sub(/^ +/, "")
               if (length($0) > 96) $0 = substr($0, 1, 93) "..."
               printf "%7s ms  %-6s %s\n", time, who, $0 }'
}

failed=0
for scenario in *.scenario; do
    golden=${scenario%.scenario}.txt
    if [ "$update" = --update ]; then
        trace "$scenario" >"$golden"
    elif ! trace "$scenario" | diff "$golden" -; then
        echo "golden: $scenario gives another trace than $golden; if that is meant: tests/property/golden/check.sh $sim --update"
        failed=1
    fi
done
# The guide to the architecture shows these.
for shown in reduction death; do
    while IFS= read -r line; do
        grep -qxF -- "$line" ../../../docs/ARCHITECTURE.md && continue
        echo "golden: docs/ARCHITECTURE.md lacks this line of $shown.txt: $line"
        failed=1
    done <"$shown.txt"
done
exit $failed
