# The slow checks, for ./dev nightly: sourced by it, and of no use alone. Says and does things with what ./dev defines.

nightly_parts=(golden asan tsan integration20 entries kill500 masterkill500 collectivekills wire tls secure threads mutants hazards seeds
    sanitized-seeds scopes excuses probes figures pages packages wheel bare python chaos docs fuzz)

# Of the integration tests: those that have certificates of their own, that speak or look at the protocol in the clear, or
# that want shared memory; and a crowd of newcomers, which a secure master partly turns away (it keeps 256 handshakes).
secure_left_out='_simulated$|secure_test|own_pki_test|capture_test|nat_test|hostile_test|middlebox_test|one_host_test|crowd_test'

nightly_usage() {
    cat <<'TEXT'
usage: ./dev nightly [--again] [part...]

  golden          trace hashes of seeds 1..100: gcc and clang, debug and release, and with sanitizers
  asan            every test under AddressSanitizer and UndefinedBehaviorSanitizer
  tsan            every test under ThreadSanitizer
  integration20   the integration tests 20 times
  entries         a shared state of 1,000,000 entries, all different, with short names and with names of 200 bytes
  kill500         the kill test 500 rounds
  masterkill500   the master killed 500 times under load, and started again on its state directory
  collectivekills a member killed 500 times, and the master 100 times, in collectives of each kind; a member killed 500
                  times in a send
  wire            bytes of every collective on the wire, 2 to 9 peers in network namespaces, within their bounds
  tls             10,000,000 TLS handshakes that are changed on the wire (PCCL_NIGHTLY_TLS: so many), and a tenth of them
                  under AddressSanitizer and UndefinedBehaviorSanitizer
  secure          the integration tests and the bridge in runs where each process has a certificate
                  (tests/integration/with_tls.sh)
  threads         the integration tests with three I/O threads in each peer, with and without certificates
  mutants         ./dev mutants --search --seeds 3000
  hazards         ./dev hazards
  seeds           sim-run over 200,000 seeds (PCCL_NIGHTLY_SEEDS: so many) of a range that no other state of the core and the
                  simulator was tried on
  sanitized-seeds the same under AddressSanitizer and UndefinedBehaviorSanitizer
  scopes          sim-scope --nightly: the smallest worlds, every order of deliveries and each fault at every point
  excuses         sim-run --audit-excuses over 20,000 seeds (PCCL_NIGHTLY_AUDIT: so many): no excuse of an oracle is used in a
                  hundred of them and needed in none
  probes          sim-run --seeds 1..200000: every marked state of the protocol is reached (table: build/nightly/probes.txt)
  figures         sim-run --bench: what the simulator measures is within its promises
  pages           pages of simulated runs in a browser (installs chromium)
  packages        the Debian packages in an empty Debian root: installed, a program built and run, removed
  wheel           the wheel of the Python package in an empty Debian root: installed, a run with its master and two peers
  bare            ./dev demo and .ci/run in an empty Debian root, with an empty environment and pip's own index; with
                  PCCL_BARE_TEST="-L unit" ./dev test -L unit in place of .ci/run
  python          tests of the Python package that are marked nightly: DiLoCo under churn in all its modes; torch's own
                  tests of torch.distributed; types of the examples. And all its other tests without torch
  chaos           DiLoCo for 10 minutes (PCCL_CHAOS_MINUTES: so many) with four replicas of two processes that are killed,
                  stopped, leave and join, and a master that restarts; then as long with peers of one process;
                  PCCL_CHAOS_SEED chooses the faults
  docs            the site of the documentation, without a warning, and its checks
  fuzz            ./dev fuzz --minutes 20
  cuda            only when it is named, because it needs a GPU: the tests with tensors on a CUDA device, and
                  bench/python/cuda_bench.py. PCCL_CUDA_PYTHON (build/venv/bin/python) has torch for CUDA, and pytest

Without a part: all of them, in this order. What has held for the present state of the tree is not run again
(--again does); the long ones go on where they were stopped, those over seeds also after changes elsewhere. State: build/nightly.
TEXT
}

tree_state() { { git rev-parse HEAD 2>/dev/null; git diff HEAD 2>/dev/null; git ls-files -o --exclude-standard | xargs -r sha1sum; } | sha1sum | cut -c 1-16; }

# Of what a simulated run is made of.
simulator_state() {
    local parts=(core net-sim harness tools/sim-run)
    { git rev-parse "${parts[@]/#/HEAD:}"; git diff HEAD -- "${parts[@]}"
      git ls-files -o --exclude-standard -- "${parts[@]}" | xargs -r sha1sum; } | sha1sum | cut -c 1-16
}

# fresh_seeds <part> <sim-run>: each state of the simulator has a range of its own, ten million wide.
fresh_seeds() {
    local part=$1 program=$2 total=${PCCL_NIGHTLY_SEEDS:-200000} of file first done_so_far to
    of=$(simulator_state)
    file="$build/nightly/$part.$of.count"
    first=$((16#${of:0:8} * 10000000))
    done_so_far=$(cat "$file" 2>/dev/null || echo 0)
    while [ "$done_so_far" -lt "$total" ]; do
        to=$((done_so_far + 10000 < total ? done_so_far + 10000 : total))
        "$program" --seeds "$((first + done_so_far + 1))..$((first + to))" --jobs "$jobs" || return 1
        done_so_far=$to
        echo "$done_so_far" >"$file"
        say "$part: $done_so_far of $total, from seed $((first + 1))"
    done
}

# counted <part> <total> <chunk> <command...>: runs the command total/chunk times, keeping count across interruptions.
counted() {
    local part=$1 total=$2 chunk=$3 done_so_far
    shift 3
    local file="$build/nightly/$part.$state.count"
    done_so_far=$(cat "$file" 2>/dev/null || echo 0)
    while [ "$done_so_far" -lt "$total" ]; do
        # The kill test draws its rounds from this; each chunk gets its own.
        PCCL_KILL_SEED=$((done_so_far + 1)) "$@" >"$logs/nightly-$part.log" 2>&1 || { tail -n 60 "$logs/nightly-$part.log" >&2; return 1; }
        grep -q 'No tests were found' "$logs/nightly-$part.log" && misuse "no test for $part"
        done_so_far=$((done_so_far + chunk))
        echo "$done_so_far" >"$file"
        say "$part: $done_so_far of $total"
    done
}

run_ctest() { local folder=$1; shift; "${cmake_program%cmake}ctest" --test-dir "$folder" --output-on-failure "$@"; }

sanitized() {
    local preset=$1 runner=()
    build_preset "$preset" "$build/$preset"
    # ThreadSanitizer cannot place its shadow memory under some kernels' address randomisation.
    [ "$preset" = tsan ] && runner=(setarch "$(uname -m)" -R)
    export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1
    "${runner[@]}" "${cmake_program%cmake}ctest" --test-dir "$build/$preset" --output-on-failure -j "$jobs"
}

nightly_part() {
    case $1 in
        golden)
            local dirs=("$build")
            for preset in gcc-debug clang-release clang-debug asan; do
                build_preset "$preset" "$build/$preset" sim-run
                dirs+=("$build/$preset")
            done
            PCCL_GOLDEN_SEEDS="$(seq -s ' ' 1 100)" bash tests/checks/golden_hashes.sh "${dirs[@]/%//bin/sim-run}" ;;
        asan | tsan) sanitized "$1" ;;
        integration20) counted integration20 20 1 run_ctest "$build" -L integration ;;
        entries)
            PCCL_TEST_ENTRIES=1000000 PCCL_LOG_LEVEL=NONE "$build/bin/integration_many_entries_test" &&
                PCCL_TEST_ENTRIES=1000000 "$build/bin/test_property_shared_state" "many entries*" ;;
        kill500) PCCL_KILL_ROUNDS=25 counted kill500 500 25 run_ctest "$build" -L '^kill$' ;;
        masterkill500) PCCL_MASTER_KILLS=50 counted masterkill500 500 50 run_ctest "$build" -L master_kill ;;
        collectivekills)
            PCCL_KILL_ROUNDS=25 PCCL_MASTER_KILLS=5 counted collectivekills 500 25 run_ctest "$build" -L collectives_kill ;;
        wire) bench_collectives bytes --check --skip ;;
        tls)
            local plays=${PCCL_NIGHTLY_TLS:-10000000}
            build_preset asan "$build/asan" tls_storm
            # Each chunk draws from a seed of its own.
            # shellcheck disable=SC2016
            counted tls "$plays" 500000 bash -c '"$0" 500000 "$PCCL_KILL_SEED" "$1"' "$build/bin/tls_storm" "$jobs" &&
                counted tls-sanitized "$((plays / 10))" 100000 bash -c '"$0" 100000 "$PCCL_KILL_SEED" "$1"' \
                    "$build/asan/bin/tls_storm" "$jobs" ;;
        secure)
            bash tests/integration/with_tls.sh "${cmake_program%cmake}ctest" --test-dir "$build" --output-on-failure \
                -L integration -E "$secure_left_out" ;;
        threads)
            PCCL_IO_THREADS=3 "${cmake_program%cmake}ctest" --test-dir "$build" --output-on-failure -L integration &&
                PCCL_IO_THREADS=3 bash tests/integration/with_tls.sh "${cmake_program%cmake}ctest" --test-dir "$build" \
                    --output-on-failure -L integration -E "$secure_left_out" ;;
        mutants) command_mutants --search --seeds 3000 ;;
        hazards) command_hazards ;;
        seeds) fresh_seeds seeds "$build/bin/sim-run" ;;
        sanitized-seeds)
            build_preset asan "$build/asan" sim-run
            fresh_seeds sanitized-seeds "$build/asan/bin/sim-run" ;;
        scopes) "$build/bin/sim-scope" --nightly ;;
        excuses) "$build/bin/sim-run" --seeds "1..${PCCL_NIGHTLY_AUDIT:-20000}" --jobs "$jobs" --audit-excuses ;;
        figures) "$build/bin/sim-run" --bench ;;
        pages)
            ensure_packages chromium
            PCCL_PAGE_SEEDS="2 4 7 20 53 54" bash tests/checks/report_page.sh "$build/bin/sim-run" "$build/pages" ;;
        probes)
            local table="$build/nightly/probes.txt" status=0
            "$build/bin/sim-run" --seeds 1..200000 --jobs "$jobs" --probes --probes-min 1 >"$table" || status=$?
            [ "$status" != 0 ] || return 0
            if grep 'FAILED' "$table" >&2 || ! grep -q '^probe ' "$table"; then
                tail -n 20 "$table" >&2
                return 1
            fi
            # What no seed of the range reaches is reached by a scenario that is kept.
            local missed scenario seed reached="$build/nightly/reached.txt"
            for scenario in tests/property/regressions/*.scenario; do
                seed=$(sed -n 's/^seed //p' "$scenario")
                # Some need more than they say, and tests that settle them show it: what they reach counts all the same.
                { "$build/bin/sim-run" --scenario "$scenario" --seeds "$seed..$seed" --probes || true; } |
                    awk '$1 > 0 && NF > 3 { print $3 }'
            done | sort -u >"$reached"
            missed=$(sed -n 's/^probe \([a-z_0-9]*\) .*/\1/p' "$table" | grep -vxFf "$reached") || return 0
            printf 'neither a seed nor a scenario reached: %s\n' $missed >&2
            return 1 ;;
        packages)
            ensure_packages debootstrap
            command_package
            bash tests/checks/packages.sh "$build/packages" tests/consumers/program.c "$build/nightly/packages" ;;
        wheel)
            ensure_packages debootstrap "${packages_python[@]}"
            PYTHON=/usr/bin/python3 command_wheel
            bash tests/checks/wheel.sh dist/pccl-"$(cat VERSION)"-cp311-*.whl "$build/nightly/wheel" ;;
        bare)
            ensure_packages debootstrap
            local options=()
            read -ra options <<<"${PCCL_BARE_TEST:-}"
            bash tests/checks/bare.sh "$root" "$build/nightly/bare" "${options[@]}" ;;
        python)
            setup_python tests
            command_python
            PYTHONPATH="$root/python" "$venv/bin/python" -B -m pytest -q -m nightly python/tests || return 1
            ! has_torch "$venv" || env -i "$build/venv-without-torch/bin/python" -B -m pytest -q python/tests ;;
        chaos)
            command_python
            local seed=()
            [ -z "${PCCL_CHAOS_SEED:-}" ] || seed=(--seed "$PCCL_CHAOS_SEED")
            PYTHONPATH="$root/python" "$venv/bin/python" -B python/tests/diloco_chaos.py \
                --shards 2 --minutes "${PCCL_CHAOS_MINUTES:-10}" "${seed[@]}" &&
                PYTHONPATH="$root/python" "$venv/bin/python" -B python/tests/diloco_chaos.py \
                    --minutes "${PCCL_CHAOS_MINUTES:-10}" "${seed[@]}" ;;
        docs)
            command_docs
            PCCL_BUILD_DIR="$build" PYTHONPATH="$root/python" "$venv/bin/python" -B -m pytest -q python/tests/test_docs.py ;;
        fuzz) command_fuzz --minutes 20 ;;
        cuda)
            command_python
            local python=${PCCL_CUDA_PYTHON:-$venv/bin/python}
            PYTHONPATH="$root/python" "$python" -c 'import pccl, sys; sys.exit(not pccl.cuda.is_available())' ||
                misuse "torch of $python sees no GPU"
            PYTHONPATH="$root/python" "$python" -B -m pytest -q python/tests/test_staging.py python/tests/test_cuda.py &&
                PYTHONPATH="$root/python" "$python" -B bench/python/cuda_bench.py ;;
        *) nightly_usage >&2; exit 2 ;;
    esac
}

command_nightly() {
    local again=0 parts=() part failed=()
    while [ $# -gt 0 ]; do
        case $1 in
            --help) nightly_usage; exit 0 ;;
            --again) again=1 ;;
            *) [[ " ${nightly_parts[*]} cuda " == *" $1 "* ]] || { nightly_usage >&2; exit 2; }
               parts+=("$1") ;;
        esac
        shift
    done
    [ ${#parts[@]} -gt 0 ] || parts=("${nightly_parts[@]}")
    setup_clang
    build_preset release "$build"
    mkdir -p "$build/nightly"
    state=$(tree_state)
    for part in "${parts[@]}"; do
        local stamp="$build/nightly/$part.$state.held"
        [ "$again" = 1 ] && rm -f "$build/nightly/$part.$state".*
        if [ -f "$stamp" ]; then
            say "$part: held already for this state of the tree"
            continue
        fi
        local status=0
        PCCL_NIGHTLY_STATE=$state bash "$root/dev" nightly-part "$part" || status=$?
        if [ "$status" = 0 ]; then
            touch "$stamp"
            say "$part: held"
        else
            failed+=("$part")
            say "$part: FAILED"
        fi
    done
    [ ${#failed[@]} -eq 0 ] || { say "nightly: FAILED: ${failed[*]}"; return 1; }
    say "nightly: all held"
}
