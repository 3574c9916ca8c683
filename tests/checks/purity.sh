#!/usr/bin/env bash
# purity.sh <archive> <allow-list> <core>
# The symbols that the core's archive takes from outside itself must all be on the list: no sockets, threads, clocks,
# files or randomness. The list holds extended regular expressions, each for a whole demangled name. And no text of the
# core names a function of the C interface or a setting.
set -euo pipefail
export LC_ALL=C
archive=$1 allow=$2 core=$3

defined=$(nm --defined-only "$archive" 2>/dev/null | awk 'NF == 3 { print $3 }' | sort -u)
wanted=$(nm --undefined-only "$archive" 2>/dev/null | awk '$1 == "U" || $1 == "w" { print $2 }' | sort -u)
outside=$(comm -13 <(printf '%s\n' "$defined") <(printf '%s\n' "$wanted") | c++filt)
if [ "$(printf '%s\n' "$defined" | wc -l)" -lt 10 ]; then
    echo "purity: $archive defines next to nothing; is it the core?"
    exit 1
fi

bad=$(printf '%s\n' "$outside" | grep -vxE -f <(grep -vE '^(#|$)' "$allow") | grep -v '^$' || true)
if [ -n "$bad" ]; then
    echo "purity: the core asks for what is not on its list ($allow):"
    printf '%s\n' "$bad" | sed 's/^/  /'
    for symbol in $(comm -13 <(printf '%s\n' "$defined") <(printf '%s\n' "$wanted")); do
        if printf '%s\n' "$bad" | grep -qxF -- "$(c++filt "$symbol")"; then
            nm -A --undefined-only "$archive" 2>/dev/null | awk -v s="$symbol" '$NF == s { sub(/.*\.a:/, "  in "); print }' | head -n 3
        fi
    done
    exit 1
fi
names=$(grep -rnE '"[^"]*\b(pccl[A-Z]|PCCL_[A-Z])' "$core" --include='*.cpp' --include='*.hpp' || true)
if [ -n "$names" ]; then
    echo "purity: texts of the core name functions or settings; name them in net-real/remedies.cpp:"
    printf '%s\n' "$names"
    exit 1
fi
echo "purity: $(printf '%s\n' "$outside" | wc -l) symbols from outside, all on the list"
