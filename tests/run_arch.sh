#!/bin/sh
# run_arch.sh BUILD_DIR -- the tests on other processors, under qemu's user mode: other compilers' code,
# big-endian memory, 32-bit pointers, x87 arithmetic; and on Windows, under wine. Two jobs at a time.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=${1:-build}/arch
rm -rf "$out"
mkdir -p "$out"
export WINEDEBUG=-all WINEPREFIX="${WINEPREFIX:-$HOME/.wine}"

# What to run: name | compiler | emulator ("" is this machine) | flags. x87 keeps more bits between
# operations. mpt.h promises no bits there, but with -std=c99, which rounds at every assignment, even the
# steps agree.
targets()
{
    cat <<'END'
aarch64|aarch64-linux-gnu-gcc|qemu-aarch64-static|
aarch64-fp16|aarch64-linux-gnu-gcc|qemu-aarch64-static|-march=armv8.2-a+fp16
armhf|arm-linux-gnueabihf-gcc|qemu-arm-static|
riscv64|riscv64-linux-gnu-gcc|qemu-riscv64-static|
ppc64le|powerpc64le-linux-gnu-gcc|qemu-ppc64le-static|
s390x|s390x-linux-gnu-gcc|qemu-s390x-static|
i686-sse|i686-linux-gnu-gcc||-msse2 -mfpmath=sse
i686-x87|i686-linux-gnu-gcc||-mno-sse -mfpmath=387
windows|x86_64-w64-mingw32-gcc|wine|
END
}

tests=$(for t in tests/test_*.c; do basename "$t" .c; done)
jobs() { targets | while IFS= read -r target; do for t in $tests; do echo "$t|$target"; done; done; }

# run_job TEST NAME COMPILER EMULATOR FLAGS -- build statically, run; one line of result
run_job()
{
    exe=$out/$1-$2
    [ "$2" = windows ] && exe=$exe.exe
    if ! have "$3"; then
        echo "SKIP: $1 on $2: $3 is not installed"
    elif [ -n "$4" ] && ! have "$4"; then
        echo "SKIP: $1 on $2: $4 is not installed"
    # shellcheck disable=SC2086
    elif ! "$3" -std=c99 -O2 -static $5 -I. "tests/$1.c" -o "$exe" -lm > "$exe.log" 2>&1; then
        echo "FAIL  $1 on $2 does not build: see $exe.log"
    # shellcheck disable=SC2086
    elif ! $4 "$exe" < /dev/null > "$exe.log" 2>&1; then
        echo "FAIL  $1 on $2: $(tail -n 1 "$exe.log"), see $exe.log"
    else
        echo "ok    $1 on $2: $(tail -n 1 "$exe.log")"
    fi
    rm -f "$exe"
}

worker()
{
    jobs | awk -v k="$1" 'NR % 2 == k' | while IFS='|' read -r t name compiler emulator flags; do
        run_job "$t" "$name" "$compiler" "$emulator" "$flags"
    done > "$out/results.$1"
}
worker 0 &
worker 1 &
wait
grep -hE '^(FAIL|SKIP)' "$out"/results.?
passed=$(cat "$out"/results.? | grep -c '^ok')
skipped=$(cat "$out"/results.? | grep -c '^SKIP')
failed=$(($(jobs | grep -c .) - passed - skipped))     # a job that left no result counts as failed
summary
