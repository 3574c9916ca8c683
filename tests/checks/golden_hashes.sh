#!/usr/bin/env bash
# golden_hashes.sh <sim-run> <sim-run of another build>...
# The same seeds must give the same trace hash in every build of this tree (nothing is compared with a stored value).
# Seeds: PCCL_GOLDEN_SEEDS, default "7 1 2 3". Status 77: there is only one build to look at.
set -euo pipefail
programs=()
for program in "$@"; do
    if [ -x "$program" ]; then programs+=("$program"); else echo "golden: no $program"; fi
done
[ ${#programs[@]} -ge 2 ] || { echo "golden: skipped: there is only one build to look at"; exit 77; }

failed=0 seeds=0
for seed in ${PCCL_GOLDEN_SEEDS:-7 1 2 3}; do
    seeds=$((seeds + 1))
    first=
    for program in "${programs[@]}"; do
        output=$("$program" --seed "$seed" 2>&1) || { echo "golden: $program --seed $seed failed"; printf '%s\n' "$output" | tail -n 5; failed=1; }
        hash=$(printf '%s\n' "$output" | grep -oE '\btrace (hash )?(0x)?[0-9a-f]{8,}' | head -n 1 | awk '{ print $NF }' || true)
        [ -n "$hash" ] || { echo "golden: $program --seed $seed prints no trace hash"; exit 1; }
        if [ -z "$first" ]; then
            first=$hash
        elif [ "$hash" != "$first" ]; then
            echo "golden: seed $seed: $first by ${programs[0]}, $hash by $program"
            failed=1
        fi
    done
    [ "$seeds" -gt 4 ] || echo "golden: seed $seed: trace $first"
done
[ "$failed" = 0 ] && echo "golden: $seeds seeds, the same in ${#programs[@]} builds"
exit $failed
