#!/usr/bin/env bash
# includes.sh <source root>
# The layers' arrows, also inside core: core includes core and harmless standard headers only; net-sim knows core; harness
# knows net-sim and core; net-real knows core and the public headers. Neither world knows the other.
set -euo pipefail
export LC_ALL=C
cd "$1"
failed=0

# layer <folder> <regular expression of allowed quoted includes>
layer() {
    local folder=$1 allowed=$2 bad
    [ -d "$folder" ] || return 0
    bad=$(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' --include='*.hpp' --include='*.cpp' --include='*.h' \
        --include='*.c' --include='*.inc' "$folder" | grep -vE "include[[:space:]]*\"($allowed)" || true)
    if [ -n "$bad" ]; then
        echo "includes: $folder may include only $allowed:"
        printf '%s\n' "$bad" | sed 's/^/  /'
        failed=1
    fi
}

layer core 'core/'
# Inside core/ the arrows point this way, without a cycle. Headers in core/ itself are the contract with drivers and what the
# parts of a machine share. Only peer_core.*, master_core.* and the two machines, in core/ itself too, know all parts.
contract='core/(compute|events|identity|master_machine|master_status|peer_machine|requests|turn)\.hpp'
layer core/base 'core/base/'
layer core/numeric 'core/(base|numeric)/|core/(compute|events)\.hpp'
layer core/wire 'core/(base|numeric|wire)/|core/events\.hpp'
layer core/journal "core/(base|numeric|wire|journal)/|$contract"
layer core/links "core/(base|wire|links)/|$contract"
layer core/voting "core/(base|numeric|wire|journal|links|voting)/|$contract"
layer core/topology "core/(base|wire|journal|links|voting|topology)/|$contract"
layer core/state_sync "core/(base|numeric|wire|journal|links|voting|state_sync)/|$contract"
layer core/membership "core/(base|numeric|wire|journal|links|voting|topology|state_sync|membership)/|$contract"
layer core/all_reduce "core/(base|numeric|wire|journal|links|voting|topology|state_sync|membership|all_reduce)/|$contract"
layer net-sim 'core/|net-sim/'
layer harness 'core/|net-sim/|harness/'
layer net-real 'core/|net-real/|pccl|ccoip|include/'
layer python 'bindings/|include/'

# Standard headers of the core: none that reads a clock, a file, a thread or chance.
allowed=$(grep -vE '^(#|$)' tests/checks/core_includes.allow | paste -sd '|')
bad=$(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*<' --include='*.hpp' --include='*.cpp' core |
    grep -vE "<($allowed)>" || true)
if [ -n "$bad" ]; then
    echo "includes: headers that are not on tests/checks/core_includes.allow:"
    printf '%s\n' "$bad" | sed 's/^/  /'
    failed=1
fi
[ "$failed" = 0 ] && echo "includes: every layer keeps to its arrows"
exit $failed
