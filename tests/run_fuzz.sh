#!/bin/sh
# run_fuzz.sh BUILD_DIR -- runs the fuzz targets with libFuzzer under ASan and UBSan, FUZZ_SECONDS (10) each;
# the target that reads files also with AFL++, if afl-fuzz is installed; and the digests of array functions,
# steps and reports under MemorySanitizer: nothing depends on memory that was never written.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=${1:-build}/fuzz
mkdir -p "$out"
rm -f "$out/impl.o"
seconds=${FUZZ_SECONDS:-10}
needs_cjson() { grep -q cJSON "$1"; }
has_cjson() { have pkg-config && pkg-config --exists libcjson; }
inspect_sources='tests/fuzz/fuzz_inspect.c examples/inspect/*.c'

# Good, broken and hostile files, each preceded by the byte that tells the target its kind.
seeds() {
    rm -rf "$out/files" "$out/seeds"
    mkdir -p "$out/files" "$out/seeds"
    ${CC:-cc} -O1 -std=c99 -I. tests/inspect_files.c -o "$out/make-files" -lm || return 1
    "$out/make-files" good "$out/files" && "$out/make-files" bad "$out/files" || return 1
    ! have python3 || python3 tests/inspect_containers.py '' "$out/files" || return 1
    for file in "$out"/files/*.*; do
        [ "$(wc -c < "$file")" -lt 6000 ] || continue
        case $file in
        *.safetensors) kind='\040' ;;
        *.npy | *.npz | *.zip | *.pt | *.gguf) kind='\041' ;;
        *.onnx) kind='\101' ;;
        *.csv) kind='\042' ;;
        *) kind='\043' ;;
        esac
        # shellcheck disable=SC2059
        { printf "$kind"; cat "$file"; } > "$out/seeds/$(basename "$file")"
    done
}

if ! have clang; then
    skip "clang is not installed"
elif ! echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n > 9 && 0; }' |
       clang -x c -fsanitize=fuzzer,address,undefined - -o "$out/probe" 2>/dev/null; then
    skip "clang has no libFuzzer here"
else
    flags='-std=c99 -O1 -g1 -fno-sanitize-recover=all -I.'
    # shellcheck disable=SC2086
    check "the implementation builds" clang $flags -fsanitize=fuzzer-no-link,address,undefined \
        -c tests/impl.c -o "$out/impl.o"
    # shellcheck disable=SC2086
    check "MemorySanitizer builds" clang $flags -fsanitize=memory tests/impl.c tests/test_digest.c \
        -o "$out/digest-memory" -lm
    check "the digests under MemorySanitizer" "$out/digest-memory"
    for source in tests/fuzz/*.c; do
        name=$(basename "$source" .c) sources=$source libraries= corpus=
        if needs_cjson "$source"; then
            has_cjson || { skip "$name: cJSON is not installed: libcjson-dev and pkg-config"; continue; }
            sources=$inspect_sources
            libraries=$(inspect_flags)
            check "$name: seeds" seeds
            corpus=$out/seeds
        fi
        # shellcheck disable=SC2086
        check "$name builds" clang $flags -fsanitize=fuzzer,address,undefined $sources "$out/impl.o" \
            -o "$out/$name" -lm $libraries
        mkdir -p "$out/corpus-$name"
        # shellcheck disable=SC2086
        check "$name runs" "$out/$name" -max_total_time="$seconds" -artifact_prefix="$out/" \
            -max_len=6000 "$out/corpus-$name" $corpus
    done
fi

if ! have afl-fuzz || ! have afl-clang-fast; then
    skip "AFL++ is not installed: afl++"
elif ! [ -f "$out/impl.o" ]; then
    skip "AFL++: no implementation for libFuzzer, which it shares"
elif ! has_cjson; then
    skip "AFL++: cJSON is not installed"
else
    export AFL_USE_ASAN=1 AFL_USE_UBSAN=1 AFL_SKIP_CPUFREQ=1 AFL_NO_UI=1 AFL_NO_AFFINITY=1 AFL_QUIET=1 \
        AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES=1 AFL_DONT_OPTIMIZE=1
    rm -rf "$out/afl"
    [ -d "$out/seeds" ] || check "seeds" seeds
    # shellcheck disable=SC2046,SC2086
    check "fuzz_inspect builds with AFL++" afl-clang-fast -std=c99 -O1 -g1 -fsanitize=fuzzer -I. \
        $inspect_sources "$out/impl.o" -o "$out/fuzz_inspect_afl" $(inspect_flags)
    check "fuzz_inspect runs under AFL++" afl-fuzz -V "$seconds" -i "$out/seeds" -o "$out/afl" \
        -m none -t 5000 -- "$out/fuzz_inspect_afl"
    runs=$(sed -n 's/^execs_done *: *//p' "$out/afl/default/fuzzer_stats" 2>/dev/null)
    found=$(find "$out/afl" -path '*crashes/id*' -o -path '*hangs/id*' 2>/dev/null | wc -l)
    if [ "${runs:-0}" -gt 0 ] && [ "$found" = 0 ]; then pass "AFL++: $runs runs"
    else fail "AFL++: ${runs:-0} runs, $found crashes or hangs in $out/afl"; fi
fi
summary
