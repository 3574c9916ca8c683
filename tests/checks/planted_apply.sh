#!/usr/bin/env bash
# planted_apply.sh <source root>
# Each planted bug applies to the tree as it is, and each that the table of hazards names is there.
set -euo pipefail
export LC_ALL=C
cd "$1"
command -v git >/dev/null || { echo "SKIP: git is not installed"; exit 77; }
failed=0
for patch in tests/hazards/*.patch tests/mutants/*.patch; do
    git apply --check "$patch" 2>/dev/null && continue
    echo "planted: $patch does not apply; fit it to the code that it breaks"
    failed=1
done
while IFS='|' read -r name _; do
    name=${name%% *}
    [ -f "tests/hazards/$name.patch" ] || [ -f "tests/mutants/$name.patch" ] && continue
    echo "planted: tests/hazards/table names $name, and there is no such patch"
    failed=1
done < <(grep -vE '^(#|=|[[:space:]]*$)' tests/hazards/table)
exit "$failed"
