# Counts what a run of ctest left out, from its log (build/Testing/Temporary/LastTest.log): a line for each reason, with the
# tests that it holds for. pytest writes `SKIPPED [n] place: reason`, Catch2 programs and scripts `skipped: reason`.
function note(n, reason) {
    if (!(reason in count)) order[++reasons] = reason
    count[reason] += n
    all += n
    if (!((reason, test) in seen)) {
        seen[reason, test] = 1
        if (++tests[reason] <= 3) names[reason] = names[reason] (tests[reason] > 1 ? ", " : "") test
    }
}
/^[0-9]+\/[0-9]+ Testing: / { test = $3 }
/^SKIPPED \[[0-9]+\] [^ ]+: / {
    n = substr($2, 2) + 0
    sub(/^SKIPPED \[[0-9]+\] [^ ]+: /, "")
    note(n, $0)
    next
}
/^ *([a-z_]+: )?skipped: / {
    sub(/^ *([a-z_]+: )?skipped: /, "")
    note(1, $0)
}
END {
    if (!all) exit
    print "skipped: " all " (each a test, or a file of Python tests as a whole), because"
    for (i = 1; i <= reasons; ++i) {
        reason = order[i]
        more = tests[reason] > 3 ? " and " tests[reason] - 3 " more" : ""
        printf "%6d  %s (%s%s)\n", count[reason], reason, names[reason], more
    }
}
