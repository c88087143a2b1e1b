#!/bin/sh
# run_emu_bugs.sh BUILD_DIR -- checks that the CUDA emulation catches the planted kernel bugs.
#
# Builds tests/emu_bugs.cc plain, with ASan+UBSan and with TSan. Every bug must be caught, in the variant of
# its line in the list, with the expected text and a nonzero exit status; every healthy sibling must print no
# error and exit 0 in all three variants, in straight and in shuffled order.
# Environment: CXX (c++); MPT_CI=1: a sanitizer that does not work here counts as a failure.
# The last line is "N passed, N failed, N skipped"; the exit status is 1 if one failed.

set -u
build=${1:?usage: run_emu_bugs.sh BUILD_DIR}
here=$(cd "$(dirname "$0")" && pwd)
CXX=${CXX:-c++}
flags="-x c++ -std=c++17 -O1 -g -Wall -Wextra -Wpedantic -Wshadow -Werror -I$here/emu"
asan_flags="-fsanitize=address,undefined -fno-omit-frame-pointer"
tsan_flags="-fsanitize=thread"
passed=0 failed=0 skipped=0
tsan_run="" lsan=1
mkdir -p "$build" || { echo "0 passed, 1 failed, 0 skipped"; exit 1; }
log=$build/emu_bugs.log

pass() { passed=$((passed + 1)); }
fail() { failed=$((failed + 1)); echo "FAIL: $*"; cut -c1-150 "$log" | sed 's/^/    /' | head -n 8; }
skip() { # COUNT REASON
    if [ "${MPT_CI:-0}" = 1 ]; then
        failed=$((failed + $1)); echo "FAIL: $2 (MPT_CI=1: nothing may be skipped)"
    else
        skipped=$((skipped + $1)); echo "SKIP: $2"
    fi
}

# Does a trivial program build with these flags, and run here?
probe() { # NAME FLAGS [RUNNER]
    echo 'int main() { return 0; }' > "$build/emu_probe.cc"
    # shellcheck disable=SC2086
    $CXX $2 "$build/emu_probe.cc" -o "$build/emu_probe_$1" > "$log" 2>&1 || return 1
    # shellcheck disable=SC2086
    ${3:-} "$build/emu_probe_$1" >> "$log" 2>&1
}

build_variant() { # NAME FLAGS
    rm -f "$build/emu_bugs_$1"
    # shellcheck disable=SC2086
    $CXX $flags $2 "$here/emu_bugs.cc" -o "$build/emu_bugs_$1" > "$log" 2>&1 && return 0
    fail "emu_bugs does not build: $1"
    return 1
}

# Find the variants that work here. LeakSanitizer needs ptrace, TSan a memory layout that it knows: newer
# kernels randomize memory more than older TSan expects, and setarch -R turns that off.
variants=""
find_variants() {
    if ! probe plain ""; then fail "$CXX does not compile"; return; fi
    build_variant plain "" && variants="plain"
    if probe asan "$asan_flags"; then
        build_variant asan "$asan_flags" && variants="$variants asan"
    elif ASAN_OPTIONS=detect_leaks=0 probe asan "$asan_flags"; then
        lsan=0
        build_variant asan "$asan_flags" && variants="$variants asan"
    else
        skip 1 "AddressSanitizer does not work here"
    fi
    if ! probe tsan "$tsan_flags"; then
        tsan_run="setarch $(uname -m) -R"
        if ! probe tsan "$tsan_flags" "$tsan_run"; then
            skip 1 "ThreadSanitizer does not work here"
            return
        fi
    fi
    build_variant tsan "$tsan_flags" && variants="$variants tsan"
}

have() { case " $variants " in *" $1 "*) return 0 ;; esac; return 1; }

run() { # VARIANT SEED NAME: returns the exit status of emu_bugs; its output is in $log
    runner=""
    [ "$1" = tsan ] && runner=$tsan_run
    [ -n "$2" ] && resident=3 || resident=1
    # shellcheck disable=SC2086
    env MPT_EMU_SHUFFLE="$2" MPT_EMU_RESIDENT=$resident MPT_EMU_DEFERRED=0 MPT_EMU_HIDE=0 \
        ASAN_OPTIONS="detect_leaks=$lsan" UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=0" \
        TSAN_OPTIONS="exitcode=66:atexit_sleep_ms=0" \
        timeout 60 $runner "$build/emu_bugs_$1" "$3" > "$log" 2>&1
}

# A bug must be caught in straight or in shuffled order: some are invisible in one of them. The output must
# have the expected text.
want_caught() { # NAME VARIANT TEXT
    have "$2" || return 0
    case $3 in
    *LeakSanitizer*)
        if [ $lsan = 0 ]; then
            skip 1 "LeakSanitizer does not work here"
            return 0
        fi
        ;;
    esac
    for seed in "" 7; do
        if run "$2" "$seed" "$1"; then continue; fi
        if grep -F -q -e "$3" "$log"; then pass; return 0; fi
        fail "$1, $2: fails without saying \"$3\""
        return 0
    done
    fail "$1, $2: not caught"
}

want_clean() { # NAME
    for variant in $variants; do
        for seed in "" 7; do
            run "$variant" "$seed" "$1"
            status=$?
            if [ $status = 0 ] && [ "$(cat "$log")" = "$1: ran to the end" ]; then
                pass
            else
                fail "$1, $variant, seed '$seed': exit $status, should be clean"
            fi
        done
    done
}

find_variants
list=$build/emu_bugs.list
: > "$list"
if have plain; then "$build/emu_bugs_plain" --list > "$list"; fi
bugs=$(grep -v -c '|clean|' "$list")
healthy=$(grep -c '|clean|' "$list")
: > "$log"
if [ "$bugs" -lt 30 ] || [ "$healthy" -lt 20 ]; then
    fail "a list of only $bugs bugs and $healthy healthy cases"
fi
while IFS='|' read -r name variant text; do
    if [ "$variant" = clean ]; then want_clean "$name"; else want_caught "$name" "$variant" "$text"; fi
done < "$list"

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
