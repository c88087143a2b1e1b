#!/bin/sh
# run_emu_bugs.sh BUILD_DIR -- checks that the CUDA emulation catches the planted kernel bugs.
#
# Builds tests/emu_bugs.cc plain, with ASan+UBSan and with TSan. Every bug must be caught, in the variant of
# its line in the list, with the expected text and a nonzero exit status; every healthy sibling must print no
# error and exit 0 in all three variants, in straight and in shuffled order. Environment: CXX (c++).
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=${1:-build}/emu-bugs
mkdir -p "$out" || exit 1
CXX=${CXX:-c++}
flags='-x c++ -std=c++17 -O1 -g -Wall -Wextra -Wpedantic -Wshadow -Werror -Itests/emu'
asan_flags='-fsanitize=address,undefined -fno-omit-frame-pointer'
tsan_flags='-fsanitize=thread'
tsan_run='' lsan=1
log=$out/log
: > "$log"

bad() { fail "$*"; cut -c1-150 "$log" | sed 's/^/    /' | head -n 8; }

build_variant() { # NAME FLAGS
    rm -f "$out/$1"
    # shellcheck disable=SC2086
    if $CXX $flags $2 tests/emu_bugs.cc -o "$out/$1" > "$log" 2>&1; then variants="$variants $1"
    else bad "emu_bugs does not build: $1"; fi
}

# Find the variants that work here. LeakSanitizer needs ptrace, TSan a memory layout that it knows: newer
# kernels randomize memory more than older TSan expects, and setarch -R turns that off.
variants=
find_variants() {
    if ! probe "$CXX" ''; then fail "$CXX does not compile"; return; fi
    build_variant plain ''
    probe "$CXX" "$asan_flags" || lsan=0
    if probe "$CXX" "$asan_flags" env ASAN_OPTIONS=detect_leaks=$lsan; then build_variant asan "$asan_flags"
    else skip "AddressSanitizer does not work here"; fi
    probe "$CXX" "$tsan_flags" || tsan_run="setarch $(uname -m) -R"
    # shellcheck disable=SC2086
    if probe "$CXX" "$tsan_flags" $tsan_run; then build_variant tsan "$tsan_flags"
    else skip "ThreadSanitizer does not work here"; fi
}

works() { case " $variants " in *" $1 "*) return 0 ;; esac; return 1; }

run() { # VARIANT SEED NAME: returns the exit status of emu_bugs; its output is in $log
    runner=""
    [ "$1" = tsan ] && runner=$tsan_run
    [ -n "$2" ] && resident=3 || resident=1
    # shellcheck disable=SC2086
    env MPT_EMU_SHUFFLE="$2" MPT_EMU_RESIDENT=$resident MPT_EMU_DEFERRED=0 MPT_EMU_HIDE=0 \
        ASAN_OPTIONS="detect_leaks=$lsan" UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=0" \
        TSAN_OPTIONS="exitcode=66:atexit_sleep_ms=0" \
        timeout 60 $runner "$out/$1" "$3" > "$log" 2>&1
}

# A bug must be caught in straight or in shuffled order: some are invisible in one of them. The output must
# have the expected text.
want_caught() { # NAME VARIANT TEXT
    works "$2" || return 0
    case $lsan$3 in
    0*LeakSanitizer*)
        skip "LeakSanitizer does not work here"
        return
        ;;
    esac
    for seed in "" 7; do
        if run "$2" "$seed" "$1"; then continue; fi
        if grep -F -q -e "$3" "$log"; then pass "$1, $2"; return; fi
        bad "$1, $2: fails without saying \"$3\""
        return
    done
    bad "$1, $2: not caught"
}

want_clean() { # NAME
    for variant in $variants; do
        for seed in "" 7; do
            run "$variant" "$seed" "$1"
            status=$?
            if [ $status = 0 ] && [ "$(cat "$log")" = "$1: ran to the end" ]; then
                pass "$1, $variant, seed '$seed'"
            else
                bad "$1, $variant, seed '$seed': exit $status, should be clean"
            fi
        done
    done
}

find_variants
list=$out/list
: > "$list"
if works plain; then "$out/plain" --list > "$list"; fi
bugs=$(grep -v -c '|clean|' "$list")
healthy=$(grep -c '|clean|' "$list")
if [ "$bugs" -lt 30 ] || [ "$healthy" -lt 20 ]; then
    fail "a list of only $bugs bugs and $healthy healthy cases"
fi
while IFS='|' read -r name variant text; do
    if [ "$variant" = clean ]; then want_clean "$name"; else want_caught "$name" "$variant" "$text"; fi
done < "$list"
summary
