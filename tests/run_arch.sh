#!/bin/sh
# run_arch.sh BUILD_DIR -- the tests on other processors, under qemu's user mode: other compilers' code,
# big-endian memory, 32-bit pointers, x87 arithmetic.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=${1:-build}/arch
mkdir -p "$out"

# run COMPILER EMULATOR FLAGS... -- build statically, run under the emulator ("" is this machine)
run() {
    compiler=$1 emulator=$2
    shift 2
    have "$compiler" || { skip "$compiler is not installed"; return; }
    [ -z "$emulator" ] || have "$emulator" || { skip "$emulator is not installed"; return; }
    for test in $tests; do
        exe=$out/$test-$compiler
        check "$test, $compiler $* builds" \
            "$compiler" -std=c99 -O2 -static "$@" -I. "tests/$test.c" -o "$exe" -lm
        check "$test, $compiler $* runs" $emulator "$exe"
    done
}

tests=$(for t in tests/test_*.c; do basename "$t" .c; done)
run aarch64-linux-gnu-gcc qemu-aarch64-static
run s390x-linux-gnu-gcc qemu-s390x-static
run riscv64-linux-gnu-gcc qemu-riscv64-static
run arm-linux-gnueabihf-gcc qemu-arm-static
run i686-linux-gnu-gcc '' -msse2 -mfpmath=sse
# x87 keeps more bits between operations. mpt.h promises no bits there, but with -std=c99, which rounds at
# every assignment, even the steps agree.
run i686-linux-gnu-gcc '' -mno-sse -mfpmath=387
summary
