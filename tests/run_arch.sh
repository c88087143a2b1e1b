#!/bin/sh
# run_arch.sh BUILD_DIR -- runs the tests on other processors, under qemu's user mode: other compilers, big-
# endian memory, 32-bit pointers, x87 arithmetic; and on Windows, under wine. All run with --short.
# MPT_JOBS (2) jobs run at a time.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=${1:-build}/arch
rm -rf "$out"
mkdir -p "$out"
export WINEDEBUG=-all WINEPREFIX="${WINEPREFIX:-$HOME/.wine}"

# Targets: name | compiler | emulator ("" is this machine) | flags. x87 keeps more bits between operations,
# and mpt.h does not promise exact bits there; but with -std=c99, which rounds at every assignment, even the
# optimizer steps agree.
targets()
{
    cat <<'END'
aarch64|aarch64-linux-gnu-gcc|qemu-aarch64-static|
armhf|arm-linux-gnueabihf-gcc|qemu-arm-static|
riscv64|riscv64-linux-gnu-gcc|qemu-riscv64-static|
ppc64le|powerpc64le-linux-gnu-gcc|qemu-ppc64le-static|
s390x|s390x-linux-gnu-gcc|qemu-s390x-static|
i686-sse|i686-linux-gnu-gcc||-msse2 -mfpmath=sse
i686-x87|i686-linux-gnu-gcc||-mno-sse -mfpmath=387
windows|x86_64-w64-mingw32-gcc|wine|
END
}

# test_half and test_mpt run on every processor. Other code can differ by byte order, pointer size and the
# precision of products, so the other tests run on two processors that cover these. On Windows only tests run
# that do not use libm's fmaf, which rounds twice there, for what they expect.
tests_for()
{
    for t in tests/test_*.c; do
        case ${1%%|*}:$(basename "$t" .c) in
        windows:test_half | windows:test_digest | windows:test_mpt) basename "$t" .c ;;
        windows:*) ;;
        i686-x87:test_mpt_report) ;;        # sums in double, which x87 computes with more bits
        *:test_half | *:test_mpt) basename "$t" .c ;;
        aarch64:test_half_a* | i686-sse:test_half_a*) basename "$t" .c ;;       # these have vectors
        aarch64:test_half_simd | i686-sse:test_half_simd) basename "$t" .c ;;
        s390x:* | i686-x87:*) basename "$t" .c ;;
        esac
    done
}
jobs()
{
    targets | while IFS= read -r target; do
        for t in $(tests_for "$target"); do echo "$t|$target"; done
    done
}

# implement NAME COMPILER EMULATOR FLAGS -- compile the implementation that the target's tests link to
implement()
{
    # shellcheck disable=SC2086
    ! have "$2" || "$2" -std=c99 -O1 $4 -I. -c tests/impl.c -o "$out/$1.o" > "$out/$1.log" 2>&1
}

# run_job TEST NAME COMPILER EMULATOR FLAGS -- build statically, run, print one line with the result
run_job()
{
    exe=$out/$1-$2
    ci=${MPT_CI:-}
    [ "$2" = windows ] && exe=$exe.exe ci=0     # one test is skipped: Windows has no mmap
    if ! have "$3"; then
        echo "SKIP: $1 on $2: $3 is not installed"
    elif [ -n "$4" ] && ! have "$4"; then
        echo "SKIP: $1 on $2: $4 is not installed"
    # shellcheck disable=SC2086
    elif ! "$3" -std=c99 -O1 -static $5 -I. "tests/$1.c" "$out/$2.o" -o "$exe" -lm > "$exe.log" 2>&1; then
        echo "FAIL  $1 on $2 does not build: see $exe.log"
    else
        # shellcheck disable=SC2086
        env MPT_CI="$ci" $4 "$exe" --short < /dev/null > "$exe.log" 2>&1
        case $(code=$?; MPT_CI=$ci; result_of $code "$exe.log") in
        failed) echo "FAIL  $1 on $2: $(tail -n 1 "$exe.log"), see $exe.log" ;;
        *) echo "ok    $1 on $2: $(tail -n 1 "$exe.log")" ;;
        esac
    fi
    rm -f "$exe"
}

targets | each implement
jobs | each run_job > "$out/results"
grep -E '^(FAIL|SKIP)' "$out/results"
tally "$(jobs | grep -c .)" "$out/results"
for name in aarch64 i686-sse; do   # no other suite tests their vector code
    jobs | grep -q "^test_half_simd|$name|" && continue
    echo "FAIL  test_half_simd is not among the tests on $name"
    failed=$((failed + 1))
done
summary
