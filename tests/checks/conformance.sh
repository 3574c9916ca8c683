#!/usr/bin/env bash
# conformance.sh <source folder>
# docs/CONFORMANCE.md speaks of this tree: each proof that it cites exists, each rule has one or says "not yet", and
# each function of the C headers has a row.
#   `file.cpp` "case"   a TEST_CASE of that file        `oracle x`     "x" is what a judge of the harness reports
#   `file.cpp|sh`       a file of tests/                `scenario x`   a stored run
#   `check_x`           a test of tests/checks          `mutant x`     tests/mutants/x.patch
set -euo pipefail
cd "$1"
page=docs/CONFORMANCE.md
failures=0
complain() { echo "$page: $*"; failures=$((failures + 1)); }

# Several literals in a row are one name.
joined() { tr -s '\n ' ' ' <"$1" | sed 's/" "//g'; }
declare -A text
while read -r file; do
    name=${file##*/}
    text[$name]+=$(joined "$file")
done < <(find tests core net-real net-sim harness -name '*.cpp' -exec grep -l 'TEST_CASE(' {} +)

while IFS=$'\t' read -r file name; do
    if [ -z "${text[$file]:-}" ]; then
        complain "there is no test program $file (\"$name\")"
    elif [[ ${text[$file]} != *"TEST_CASE(\"$name\""* ]]; then
        complain "$file has no case \"$name\""
    fi
done < <(grep -oE '`[a-z0-9_]+\.cpp` "[^"]*"' "$page" | grep -v '^.file.cpp. ' | sed 's/^`\([^`]*\)` "\(.*\)"$/\1\t\2/' | sort -u)

while read -r kind name; do
    case $kind in
        oracle) grep -rqF "\"$name\"" harness net-sim ;;
        mutant) [ -f "tests/mutants/$name.patch" ] ;;
        scenario) [ -f "tests/property/regressions/$name.scenario" ] || [ -f "harness/scenarios/$name.scenario" ] ;;
    esac || complain "there is no $kind $name"
done < <(grep -oE '`(oracle|mutant|scenario) [a-z0-9-]+`' "$page" | tr -d '`' | grep -v ' x$' | sort -u)

while read -r name; do
    grep -qE "NAME $name( |\$)" tests/checks/CMakeLists.txt || complain "there is no test $name"
done < <(grep -oE '`check_[a-z_]+`' "$page" | tr -d '`' | grep -v '^check_x$' | sort -u)

while read -r name; do
    [ -n "$(find tests net-real -name "$name" -print -quit)" ] || complain "there is no file $name"
done < <(grep -oE '`[a-z0-9_]+\.(cpp|sh)`' "$page" | tr -d '`' | grep -v '^file.cpp$' | sort -u)

# In the left cell of a row of the last section.
functions=$(awk -F'|' '/^## 7/ { on = 1 } on && /^\|/ { print $2 }' "$page")
while read -r name; do
    [[ $functions == *"\`$name\`"* ]] || complain "$name of include/ has no row"
done < <(sed -n 's/^PCCL_EXPORT .* \**\(pccl[A-Za-z]*\)(.*/\1/p' include/pccl.h include/pccl/ext.h | sort -u)

# A row is a rule and a proof.
while IFS= read -r line; do
    complain "$line"
done < <(awk -F'|' '/^\|/ && !/^\|---/ && !/\| proof \|$/ {
    rules++
    if (NF != 4) print "line " NR " has " NF - 2 " cells"
    else if ($3 ~ /not yet/) open++
    else if ($3 !~ /`[^`]+`/) print "line " NR " has no proof"
} END { printf "conformance: %d rules, %d of them not proven yet\n", rules, open > "/dev/stderr"; if (rules < 100) print "only " rules " rules" }' "$page")

[ "$failures" = 0 ] || { echo "conformance: $failures things cited do not exist"; exit 1; }
