#!/usr/bin/env bash
# report_page.sh <sim-run> <folder for screenshots>
# The page of a run in a browser without a screen and without a network: its script runs to the end and draws something,
# the console stays empty, and the Perfetto trace beside it is JSON. Seeds: PCCL_PAGE_SEEDS, default "2 53".
# Status 77: there is no Chromium (Debian package `chromium`; `./dev nightly pages` installs it).
set -euo pipefail
sim_run=$1
pictures=$2

chromium=
for name in chromium chromium-browser google-chrome; do
    chromium=$(command -v "$name") && break
done
[ -n "$chromium" ] || { echo "report_page: skipped: no chromium on this machine (./dev nightly pages installs it)"; exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$pictures"

fail() { echo "report_page: seed $seed: $*"; exit 1; }

# browse <what it is for> <option...>: one start of the browser; its words are in $work/<what it is for>.log
browse() {
    local purpose=$1
    shift
    HOME="$work" timeout 120 "$chromium" --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage \
        --user-data-dir="$work/profile" --no-first-run --disable-background-networking \
        --host-resolver-rules="MAP * ~NOTFOUND" --virtual-time-budget=10000 --window-size=1400,900 \
        --enable-logging=stderr "$@" "file://$work/run.html" 2>"$work/$purpose.log"
}

for seed in ${PCCL_PAGE_SEEDS:-2 53}; do
    "$sim_run" --seed "$seed" --report "$work/run.html" --trace "$work/run.json" >"$work/run.log" ||
        fail "sim-run ended with status $?: $(tail -n 3 "$work/run.log")"
    grep -qE 'https?:|<(link|img|iframe)|[^a-z]src=' "$work/run.html" && fail "the page refers to something outside"

    browse dom --dump-dom >"$work/dom.html" || fail "$chromium ended with status $?: $(tail -n 3 "$work/dom.log")"
    grep -E 'CONSOLE' "$work/dom.log" >"$work/console" && fail "the console says: $(head -n 3 "$work/console")"
    status=$(grep -oE '<div id="status">[^<]*' "$work/dom.html" | sed 's/.*>//' || true)
    case $status in
        READY*) ;;
        *) fail "the script did not come to its end (status \"$status\")" ;;
    esac
    drawn=$(printf '%s' "$status" | grep -oE '[0-9]+ drawn' | grep -oE '[0-9]+' || echo 0)
    [ "$drawn" -gt 20 ] || fail "only $drawn things were drawn"
    grep -qE '<title>[^<]*READY</title>' "$work/dom.html" || fail "the title does not end with READY"

    picture="$pictures/report-seed-$seed.png"
    rm -f "$picture"
    browse picture --screenshot="$picture" || fail "no screenshot: $(tail -n 3 "$work/picture.log")"
    [ "$(stat -c %s "$picture" 2>/dev/null || echo 0)" -gt 20000 ] || fail "the screenshot $picture is empty"

    if command -v python3 >/dev/null; then
        python3 -m json.tool "$work/run.json" >/dev/null || fail "the trace is not JSON"
    fi
    echo "report_page: seed $seed: $status"
done
