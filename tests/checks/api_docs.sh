#!/usr/bin/env bash
# api_docs.sh <source folder> [--write]
# docs/api.md is made from include/pccl.h and include/pccl/ext.h: the comment above each function, under the header's
# own headings. A comment with an empty line behind it holds for its section, and is printed below the heading. Fails
# when the page is not up to date, when a function has no comment, and when such a comment is behind the first function.
set -euo pipefail
export LC_ALL=C
root=$1
made=$(awk '
    BEGIN {
        print "# The functions\n"
        print "Made from [`pccl.h`](../include/pccl.h) and [`pccl/ext.h`](../include/pccl/ext.h), which hold types and values, by"
        print "`bash tests/checks/api_docs.sh . --write`."
        print "Unless said otherwise they return `pcclResult_t`; [errors.md](errors.md) says what each code asks for."
    }
    /^\/\* ---- / {
        heading = $0
        sub(/^\/\* -+ /, "", heading); sub(/ -+ \*\/$/, "", heading)
        pending = heading
        section = ""
        next
    }
    /^\/\*/ { inside = 1; comment = ""; line = $0; sub(/^\/\* ?/, "", line)
        if (line ~ /\*\/$/) { inside = 0; sub(/ ?\*\/$/, "", line) }
        if (line != "") comment = line "\n"
        next }
    inside {
        line = $0
        last = line ~ /\*\/$/
        sub(/ *\*\/$/, "", line); sub(/^ \* ?/, "", line)
        if (last) { inside = 0; if (line == "") next }
        comment = comment line "\n"
        next
    }
    /^PCCL_EXPORT/ { declaration = ""; collecting = 1 }
    collecting {
        line = $0
        gsub(/PCCL_EXPORT |PCCL_NULLABLE /, "", line)
        gsub(/^ +/, "    ", line)
        declaration = declaration line "\n"
        if (line ~ /;$/) {
            collecting = 0
            name = declaration
            sub(/\(.*/, "", name); sub(/.*[ *]/, "", name)
            if (comment == "") { print "api_docs: " name " has no comment in the header" > "/dev/stderr"; bad = 1 }
            if (pending != "") { print "\n## " toupper(substr(pending, 1, 1)) substr(pending, 2); pending = "" }
            if (section != "") { printf "\n%s", section; section = "" }
            printf "\n### %s\n\n```c\n%s```\n\n%s", name, declaration, comment
            comment = ""
        }
        next
    }
    NF == 0 && comment != "" {
        if (pending == "") { print "api_docs: a comment for a section is behind a function: " comment > "/dev/stderr"; bad = 1 }
        section = section (section == "" ? "" : "\n") comment
    }
    { comment = "" }
    END { exit bad }
' "$root"/include/pccl.h "$root"/include/pccl/ext.h)
if [ "${2:-}" = --write ]; then
    printf '%s\n' "$made" >"$root/docs/api.md"
    exit 0
fi
diff <(printf '%s\n' "$made") "$root/docs/api.md" >/dev/null || {
    echo "docs/api.md is not what the header says: run bash tests/checks/api_docs.sh . --write"
    exit 1
}
echo "docs/api.md: $(grep -c '^### ' "$root/docs/api.md") functions"
