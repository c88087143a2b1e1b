#!/bin/sh
# run_cuda_emu.sh BUILD_DIR [--long] -- tests mpt_cuda.h without a GPU: runs tests/test_cuda*.cu and example
# 05 on the CPU emulation of tests/emu, built by g++ and, under AddressSanitizer and UBSan, by clang++, in
# straight and in random order, with device work deferred as long as possible; and under TSan. --long instead
# runs all floats through every conversion, and a tensor of more than 2^31 elements (6.5 GB, an hour).
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=${1:-build}/cuda-emu
mkdir -p "$out" || exit 1
rm -f "$out"/test_* "$out"/*.o
emu='-x c++ -std=c++17 -DMPT_CUDA_EMU -Itests/emu -I.'
strict='-Wall -Wextra -Wpedantic -Wshadow -Werror'
asan='-g1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer'
asan_cc=$(first_of clang++ g++)
# Kernels add offsets to null pointers that they then do not use, which is harmless on every GPU.
[ "$asan_cc" = g++ ] || asan="$asan -fno-sanitize=pointer-overflow"
tsan='-g1 -fsanitize=thread'

# Only this script sets the controls of the emulation.
unset MPT_EMU_SHUFFLE MPT_EMU_DEFERRED MPT_EMU_RESIDENT MPT_EMU_HIDE
export TSAN_OPTIONS=atexit_sleep_ms=0       # else every program sleeps for a second at its end

# Each source is compiled once for each compiler and flags, then linked. The C compiler makes the other two
# headers once for all: their own tests run them under the sanitizers. Tests need not be optimized: most time
# is spent in the implementation and its copy of the emulation, which the linker takes because it comes first.
# shellcheck disable=SC2086
compile() { # compile COMPILER FLAGS SOURCE [INCLUDE FOLDER]: sets object
    object=$out/$(echo $* | tr ' /' '__').o            # run_gpu_report.sh knows these names
    [ -f "$object" ] && return
    $1 $2 ${4:+-I"$4"} $emu $strict -c "$3" -o "$object" > "$out/compile.log" 2>&1 && return
    fail "$3 does not compile: $1 $2"
    head -20 "$out/compile.log"
    return 1
}

build() {   # build NAME COMPILER FLAGS SOURCE [FLAGS of the implementation, if other ones [its FOLDER]]
    compile "$2" "$3" "$4" || return 1
    objects=$object
    case $4 in
    tests/*) compile "$2" "${5:-$3}" tests/impl_cuda.cu "${6:-}" || return 1
             objects="$object $objects $out/impl.o" ;;
    esac
    # shellcheck disable=SC2086
    check "$1 builds" $2 $3 $objects -o "$out/$1"
    [ -x "$out/$1" ]
}

# run NAME COMMAND...: run a test program, whose last line is its count; show the failures above that line
run() {
    name=$1
    shift
    "$@" > "$out/run.log" 2>&1
    code=$?
    [ "$(result_of $code "$out/run.log")" = failed ] || { pass "$name"; return; }
    fail "$name: exit $code, $(tail -n 1 "$out/run.log")"
    grep -E -A 4 'failed:|FAIL|ERROR|WARNING|error:' "$out/run.log" | head -30
}

# run test_cuda in order, shuffled, and with device work deferred to the next wait
plain() {
    if ! have g++; then skip "no g++ here"; return; fi
    build test_plain g++ -O1 tests/test_cuda.cu -O2 || return
    run "in order" "$out/test_plain"
    run "shuffled" env MPT_EMU_SHUFFLE=5 MPT_EMU_RESIDENT=3 "$out/test_plain" --small
    run "deferred" env MPT_EMU_DEFERRED=1 "$out/test_plain" --small
    run "shuffled and deferred" \
        env MPT_EMU_SHUFFLE=6 MPT_EMU_RESIDENT=2 MPT_EMU_DEFERRED=1 "$out/test_plain" --small
}

# MPT_EMU_HIDE makes it an error if the host reads device memory directly. Leak detection needs ptrace, which
# some sandboxes forbid; the emulation counts device memory anyway.
address_sanitizer() {
    leaks=1
    probe "$asan_cc" "$asan" env ASAN_OPTIONS=detect_leaks=1 || leaks=0
    if ! probe "$asan_cc" "$asan" env ASAN_OPTIONS=detect_leaks=$leaks; then
        skip "AddressSanitizer does not work here"
        return
    fi
    build test_asan "$asan_cc" "-O0 $asan" tests/test_cuda.cu "-O1 $asan" || return
    run "ASan and UBSan" env MPT_EMU_HIDE=1 ASAN_OPTIONS=detect_leaks=$leaks "$out/test_asan" --small
    run "ASan and UBSan, shuffled and deferred" env MPT_EMU_HIDE=1 MPT_EMU_SHUFFLE=7 MPT_EMU_RESIDENT=3 \
        MPT_EMU_DEFERRED=1 ASAN_OPTIONS=detect_leaks=$leaks "$out/test_asan" --small
}

# gcc comes first: the TSan of clang 14 and later reuses thread numbers after 256, and a block has 256
# threads, so it misses races between two blocks. Newer kernels randomize memory more than TSan expects;
# setarch -R turns that off. One process per test, as TSan gets slower with every thread it has ever seen.
thread_sanitizer() {
    for compiler in g++ clang++; do
        for runner in env "setarch $(uname -m) -R"; do
            # shellcheck disable=SC2086
            probe $compiler "$tsan" $runner || continue
            build test_tsan $compiler "-O0 $tsan" tests/test_cuda.cu "-O1 $tsan" || return
            for t in $(sed -n 's/^TEST(\([a-z0-9_]*\)).*/\1/p' tests/test_cuda.cu); do
                [ "$t" = check_beyond_32_bits ] && continue     # exists only on a GPU
                # shellcheck disable=SC2086
                run "TSan, $t" $runner "$out/test_tsan" --small "$t"
            done
            # of the other programs, tests with shared memory or several kernels after each other
            for which in optim:sgd optim:lamb report:every_source convert:fp8_encode convert:fp8_scaling \
                         convert:block_quantize; do
                program=test_cuda_${which%:*} t=${which#*:}
                [ -x "$out/${program}_tsan" ] ||
                    build "${program}_tsan" $compiler "-O0 $tsan" "tests/$program.cu" "-O1 $tsan" || continue
                # shellcheck disable=SC2086
                run "TSan, $program, $t" $runner "$out/${program}_tsan" --small "$t"
            done
            tsan_sees "$compiler" "$runner"
            return
        done
    done
    skip "ThreadSanitizer does not work here"
}

# Does TSan find races? Without the fence before the last block's counter it must report one.
tsan_sees() {   # tsan_sees COMPILER RUNNER
    mkdir -p "$out/no-fence"
    cp mpt_half.h mpt.h "$out/no-fence"
    sed '/our results before our count/d' mpt_cuda.h > "$out/no-fence/mpt_cuda.h"
    if cmp -s mpt_cuda.h "$out/no-fence/mpt_cuda.h"; then fail "mpt_cuda.h has no such fence"; return; fi
    build test_no_fence "$1" "-O0 $tsan" tests/test_cuda.cu "-O0 $tsan" "$out/no-fence" || return
    # shellcheck disable=SC2086
    $2 "$out/test_no_fence" --small check_long > "$out/run.log" 2>&1
    if grep -q 'data race' "$out/run.log"; then pass "TSan sees a missing fence"
    else skip "the TSan of $1 does not see races between blocks"; fi
}

# The example prints the same everywhere: it uses only + - * /, fmaf and conversions.
example() { # example COMPILER
    have "$1" || { skip "example 05: no $1 here"; return; }
    build "05_$1" "$1" -O1 examples/05_train_digits_cuda.cu || return
    "$out/05_$1" > "$out/05.out" 2>&1
    check "example 05 with $1" diff examples/05_train_digits_cuda.expected "$out/05.out"
}

# The other test programs.
more() {    # more COMPILER FLAGS IMPLEMENTATION_FLAGS NAME [ARGUMENT of the first runs]
    have "$1" || { skip "test_cuda_gemm and others: no $1 here"; return; }
    for program in test_cuda_gemm test_cuda_convert test_cuda_optim test_cuda_report; do
        build "${program}_$4" "$1" "$2" tests/$program.cu "$3" || continue
        run "$program, $4" "$out/${program}_$4" ${5:-}
        run "$program, $4, shuffled and deferred" \
            env MPT_EMU_SHUFFLE=8 MPT_EMU_RESIDENT=2 MPT_EMU_DEFERRED=1 "$out/${program}_$4" --small
    done
}

# Example 10 launches kernels by <<<>>>, which are turned into calls. Both files must learn alike.
drop_in() {
    for f in before after; do
        without_triple "examples/10_drop_into_cuda/$f.cu" > "$out/10_$f.cu"
        # shellcheck disable=SC2086
        check "example 10, $f: builds" \
            g++ -O1 $emu -include tests/emu/triple.h "$out/10_$f.cu" -o "$out/10_$f"
        "$out/10_$f" > "$out/10_$f.out" 2>&1
        check "example 10, $f: its output" diff "examples/10_drop_into_cuda/$f.expected" "$out/10_$f.out"
    done
    lines=$(diff examples/10_drop_into_cuda/before.cu examples/10_drop_into_cuda/after.cu | grep -c '^[<>]')
    if [ "$lines" -gt 0 ] && [ "$lines" -le 40 ]; then pass "example 10: $lines changed lines"
    else fail "example 10: $lines changed lines, 1 to 40 are allowed"; fi
    if grep -qE 'mpt_[a-z0-9_]*\(|include "mpt' examples/10_drop_into_cuda/before.cu; then
        fail "before.cu knows mpt"
    else pass "before.cu knows nothing of mpt"; fi
}

example_refuses() {
    "$out/05_g++" "$out/no-such-file.csv" > "$out/05.out" 2> "$out/05.err"
    code=$?
    if [ $code = 1 ] && [ ! -s "$out/05.out" ] && grep -q 'no-such-file' "$out/05.err"; then
        pass "example 05 without its data"
    else
        fail "example 05 without its data: exit $code, $(head -1 "$out/05.err")"
    fi
}

# The benchmark must run to its end and write valid files; its times mean nothing here.
bench_runs() {
    build bench g++ -O0 tests/bench/bench_cuda.cu -O2 || return
    rm -rf "$out/results" && mkdir -p "$out/results"
    printf '#torch 0\nsmall_eager 1.5\n' > "$out/torch.txt"
    check "bench_cuda" "$out/bench" --small --torch "$out/torch.txt" "$out/results"
    if have python3; then
        check "bench_cuda's JSON" python3 -c 'import json, sys; t = json.load(open(sys.argv[1]))["tables"]
assert [len(x["rows"]) > 1 for x in t] == [True] * 6' "$out"/results/*.json
        check "torch_step.py is Python" \
            python3 -c 'import ast; ast.parse(open("tests/bench/torch_step.py").read())'
    fi
    check "bench_cuda's table" grep -q '^| 12 | 3300 | bf16 | calls |.*| 1.5000 |' "$out"/results/*.md
}

check "tests/impl.c compiles" "${CC:-cc}" -O1 -I. -c tests/impl.c -o "$out/impl.o"
if [ "${2:-}" = --long ]; then
    for t in test_cuda test_cuda_convert; do
        build "$t" g++ -O2 "tests/$t.cu" && run "$t --long" "$out/$t" --long
    done
    summary
    exit
fi
plain
address_sanitizer
thread_sanitizer
more g++ -O1 -O2 g++
if probe "$asan_cc" "$asan" env ASAN_OPTIONS=detect_leaks=0; then
    ASAN_OPTIONS=detect_leaks=0 more "$asan_cc" "-O0 $asan" "-O1 $asan" asan --small
else
    skip "AddressSanitizer does not work here"
fi
# Before CUDA 12.8 cublasLt has no block formats: products of them are refused with a reason.
build test_old_cublas g++ '-O0 -DCUBLAS_VERSION=120000' tests/test_cuda_gemm.cu &&
    run "test_cuda_gemm, CUDA 12.0" "$out/test_old_cublas" --small block
printf '%s\n' '#define MPT_IMPLEMENTATION' '#include "mpt_cuda.h"' > "$out/whole.cc"
# shellcheck disable=SC2086
check "all three headers in one file, which uses threads" \
    g++ $emu $strict -fopenmp -DMPT_USE_OPENMP -fsyntax-only "$out/whole.cc"
drop_in
bench_runs
example g++
example clang++
if [ -x "$out/05_g++" ]; then
    MPT_EMU_SHUFFLE=4 MPT_EMU_RESIDENT=3 MPT_EMU_DEFERRED=1 "$out/05_g++" > "$out/05.out" 2>&1
    check "example 05, shuffled and deferred" diff examples/05_train_digits_cuda.expected "$out/05.out"
    example_refuses
fi
summary
