#!/bin/sh
# run_fuzz.sh BUILD_DIR -- libFuzzer under ASan and UBSan, FUZZ_SECONDS (10) per target.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=${1:-build}/fuzz
mkdir -p "$out"
if ! have clang; then
    skip "clang is not installed"
elif ! echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n > 9 && 0; }' |
       clang -x c -fsanitize=fuzzer,address,undefined - -o "$out/probe" 2>/dev/null; then
    skip "clang has no libFuzzer here"
else
    for source in tests/fuzz/*.c; do
        name=$(basename "$source" .c)
        check "$name builds" clang -std=c99 -O1 -g -fsanitize=fuzzer,address,undefined \
            -fno-sanitize-recover=all -I. "$source" -o "$out/$name" -lm
        mkdir -p "$out/corpus-$name"
        check "$name runs" "$out/$name" -max_total_time="${FUZZ_SECONDS:-10}" -artifact_prefix="$out/" \
            -max_len=4096 "$out/corpus-$name"
    done
fi
summary
