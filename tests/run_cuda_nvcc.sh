#!/bin/sh
# run_cuda_nvcc.sh BUILD_DIR -- checks mpt_cuda.h with nvcc, on a machine without a GPU: it compiles without a
# warning for eight architectures, also split over two files; a C99 program links with it by gcc and runs; no
# kernel spills; the PTX, interpreted, does what the C source does; a model of its speed is printed.
# Environment: NVCC; default: nvcc from the PATH or from /usr/local/cuda/bin.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=${1:-build}/cuda-nvcc
mkdir -p "$out" || exit 1
[ -n "${NVCC:-}" ] || { have nvcc && NVCC=nvcc || NVCC=/usr/local/cuda/bin/nvcc; }
if ! have "$NVCC"; then
    skip "nvcc is not installed"
    summary
    exit
fi

# The flags of a careful user: no exceptions, no RTTI, no guards for statics, so that no libstdc++ is needed.
quiet='-std=c++17 -Werror all-warnings -Xcompiler -Wall,-Wextra,-Werror -I.'
flags="$quiet -O2 -Xcompiler -fno-exceptions,-fno-threadsafe-statics,-fno-rtti"
c99='gcc -std=c99 -pedantic -Wall -Wextra -Werror -I.'
architectures='75 80 89 90 100 103 120 121'

include() { # include FILE MACRO
    printf '#define %s\n#include "mpt_cuda.h"\n' "$2" > "$out/$1"
}
include part.cu MPT_CUDA_IMPLEMENTATION
include rest.c MPT_IMPLEMENTATION

# Print the folder of this nvcc's runtime library.
library_folder() {
    for folder in "$(dirname "$(command -v "$NVCC")")/../lib64" /usr/local/cuda/lib64; do
        [ -f "$folder/libcudart_static.a" ] && echo "$folder" && return
    done
}
cudart="-L$(library_folder) -lcudart_static -lrt -lpthread -ldl -lm"

# link_and_run NAME OBJECT...: link by gcc, without libstdc++, and run
link_and_run() {
    name=$1
    shift
    # shellcheck disable=SC2086
    if ! gcc "$out/user_cuda.o" "$@" $cudart -o "$out/user" > "$out/link.log" 2>&1; then
        fail "$name links with gcc alone"
        head -10 "$out/link.log"
        return
    fi
    pass "$name links with gcc alone"
    check "$name runs" "$out/user"
}

# No kernel may keep registers or arrays in local memory.
no_spills() {   # no_spills NAME LOG
    worst=$(sed -n 's/^ *\([0-9]*\) bytes stack frame, \([0-9]*\) bytes spill stores, .*/\1\n\2/p' "$2" |
        sort -n | tail -n 1)
    if [ "${worst:-999}" = 0 ]; then pass "$1: no spills"
    else fail "$1: ${worst:-unknown} bytes of stack or spills in a kernel"; fi
}

# The PTX of an architecture is compared with the C source; the model of speed uses it too. The functions in
# inline assembly differ below and from sm_89 on; for sm_103 nvcc has another front end.
if have python3; then
    # shellcheck disable=SC2086
    check "ptx_host builds" "${CXX:-c++}" -x c++ -std=c++17 -O0 -shared -fPIC -DMPT_CUDA_EMU -Itests/emu -I. \
        tests/ptx_host.cu -o "$out/host.so"
else
    skip "no python3: the PTX is not interpreted"
fi
ptx() {         # ptx SM: run cuda_ptx.py and show its table
    [ -f "$out/host.so" ] || return
    case $1 in 75 | 90 | 103) parts='judge model' ;; 80 | 89) parts=model ;; *) return ;; esac
    # shellcheck disable=SC2086
    if python3 tests/cuda_ptx.py "$out/host.so" "$1" "$out/whole.compute_$1.ptx" "$out/ptxas.$1.log" $parts \
        > "$out/ptx.log" 2>&1; then
        pass "sm_$1: its PTX"
    else
        fail "sm_$1: its PTX"
    fi
    cat "$out/ptx.log"
}
# Does the judge find bugs? Plants instructions that truncate, and exchanged operands.
ptx_sees() {    # ptx_sees WHAT SED_SCRIPT
    [ -f "$out/host.so" ] || return
    sed -E "$2" "$out/whole.compute_90.ptx" > "$out/planted.ptx"
    if cmp -s "$out/whole.compute_90.ptx" "$out/planted.ptx"; then fail "nothing was planted: $1"; return; fi
    python3 tests/cuda_ptx.py "$out/host.so" 90 "$out/planted.ptx" "$out/ptxas.90.log" judge first \
        > "$out/ptx.log" 2>&1
    check "seen: $1" grep -q '^FAIL' "$out/ptx.log"
}

# shellcheck disable=SC2086
check "a C99 user compiles" $c99 -O2 -c tests/compile/user_cuda.c -o "$out/user_cuda.o"
# shellcheck disable=SC2086
check "the rest of a split build compiles" $c99 -c "$out/rest.c" -o "$out/rest.o"
# One call for all architectures compiles the host code once. The output of ptxas is split by architecture.
# sm_121 takes the PTX of sm_120: a front end less to run, and no #if of ours tells them apart.
gencode=$(for sm in $architectures; do echo "-gencode arch=compute_$sm,code=sm_$sm"; done |
    sed 's/compute_121/compute_120/')
rm -f "$out"/whole.* "$out"/ptxas.*
include whole.cu MPT_IMPLEMENTATION
# shellcheck disable=SC2086
if "$NVCC" $flags $gencode -Xptxas -v --keep --keep-dir "$out" -c "$out/whole.cu" -o "$out/whole.o" \
    > "$out/ptxas.log" 2>&1; then
    pass "compiles for sm_$architectures"
    link_and_run "all architectures" "$out/whole.o"
    for sm in $architectures; do
        awk -v at="'sm_$sm'" '/Compiling entry function/ { here = $NF == at } here' "$out/ptxas.log" \
            > "$out/ptxas.$sm.log"
        no_spills "sm_$sm" "$out/ptxas.$sm.log"
        ptx $sm
    done
    ptx_sees "an f16 encoding that truncates" 's/cvt\.rn\.f16\.f32/cvt.rz.f16.f32/'
    ptx_sees "FP8 operands changed over" \
        's/(cvt\.rn\.satfinite\.e[45]m[23]x2\.f32 [^,]*, )([^,]*), ([^;]*);/\1\3, \2;/'
    ptx_sees "a multiply-add that truncates" 's/fma\.rn\.f32/fma.rz.f32/'
else
    fail "sm_$architectures"
    grep -v 'ptxas info' "$out/ptxas.log" | head -20
fi
# Another front end (clang), with the oldest supported headers (CUDA 12.0, from PyPI). The macro keeps out
# clang 14's header for textures, which CUDA 12 does not support.
python=$(python_with nvidia.cuda_runtime,nvidia.cuda_nvcc)
if have clang++ && [ -n "$python" ]; then
    site=$("$python" -c 'import nvidia.cuda_nvcc as n; print(n.__path__[0])')/..
    rm -rf "$out/cuda12"
    mkdir -p "$out/cuda12/bin" "$out/cuda12/lib64" "$out/cuda12/include"
    cp -R "$site/cuda_nvcc/nvvm" "$out/cuda12"
    cp -R "$site"/cuda_nvcc/include/* "$site"/cuda_runtime/include/* "$out/cuda12/include" 2> /dev/null
    check "these are CUDA 12.0's" grep -q 'CUDART_VERSION *12000' "$out/cuda12/include/cuda_runtime_api.h"
    for sm in 75 86; do
        check "clang, CUDA 12.0, sm_$sm" clang++ -x cuda -std=c++17 --cuda-path="$out/cuda12" \
            --cuda-gpu-arch=sm_$sm -fsyntax-only -D__CLANG_CUDA_TEXTURE_INTRINSICS_H__ -Wall -Wextra -Werror \
            -Wno-unknown-cuda-version -I. "$out/whole.cu"
    done
else
    skip "no clang++, or no headers of CUDA 12.0 (pip: nvidia-cuda-runtime-cu12, nvidia-cuda-nvcc-cu12)"
fi

# less optimization for code that will not run; where its kernels are those compiled above, as far as PTX
quick='-arch=sm_90 -Xcicc -O1 -Xptxas -O0'
again='-gencode arch=compute_90,code=compute_90 -Xcicc -O0'
# split over two files, the code is the same, so one architecture is enough
# shellcheck disable=SC2086
check "sm_90 compiles, split" "$NVCC" $flags $again -c "$out/part.cu" -o "$out/part.o"
link_and_run "sm_90, split" "$out/part.o" "$out/rest.o"

# Patterns in the PTX. holds, lacks WHAT PATTERN -- passes if the PTX has, or has not, a line with PATTERN
holds() {
    if grep -qE "$2" "$ptx"; then pass "$variant: $1"; else fail "$variant: no $1 in the PTX"; fi
}
lacks() {
    if grep -qE "$2" "$ptx"; then
        fail "$variant: $1"
        grep -E "$2" "$ptx" | sed 's/^[[:space:]]*//; s/[[:space:]].*//' | sort | uniq -c
    else
        pass "$variant: no $1"
    fi
}
# shellcheck disable=SC2086
check "sm_90 --use_fast_math: PTX" "$NVCC" $flags -arch=sm_90 --use_fast_math -ptx "$out/whole.cu" \
    -o "$out/fast_math.ptx"
for variant in compute_90 fast_math; do
    ptx=$out/$variant.ptx
    [ $variant = fast_math ] || ptx=$out/whole.$variant.ptx
    holds "16-byte load" '^[[:space:]]*ld\.global(\.[a-z0-9_:]+)*\.v4\.[bu]32'
    holds "16-byte store" '^[[:space:]]*st\.global(\.[a-z0-9_:]+)*\.v4\.[bu]32'
    holds "f16 encoding instruction" 'cvt\.rn\.f16\.f32'
    holds "f16 decoding instruction" 'cvt\.f32\.f16'
    holds "e4m3 encoding instruction" 'cvt\.rn\.satfinite\.e4m3x2\.f32'
    holds "e5m2 encoding instruction" 'cvt\.rn\.satfinite\.e5m2x2\.f32'
    holds "fused multiply-add, correctly rounded" 'fma\.rn\.f32'
    holds "division, correctly rounded" 'div\.rn\.f32'
    holds "square root, correctly rounded" 'sqrt\.rn\.f32'
    lacks "approximate instruction" '\.(approx|full)\.'
    # except in tests for Inf and NaN, which nvcc may write as |x| == Inf: flushing is harmless there
    grep -vE 'abs\.ftz\.f32|setp\.(equ|neu|ltu|lt)\.ftz\.f32.*0f7F800000' "$ptx" > "$ptx.strict"
    ptx=$ptx.strict
    lacks "instruction that flushes subnormals" '\.ftz'
    lacks "local memory" '(ld|st)\.local'
    # such loads may come from a cache that does not have what other blocks have just written
    lacks "non-coherent load" 'ld\.global\.nc'
done

rm -f "$out/impl_cuda.o" "$out"/test_cuda*
check "tests/impl.c compiles" "${CC:-cc}" -O1 -I. -c tests/impl.c -o "$out/impl.o"
nccl=
if echo '#include <nccl.h>' | "$NVCC" -x cu -E - > /dev/null 2>&1; then nccl='-DMPT_USE_NCCL -lnccl'
else skip "NCCL is not installed"; fi
# shellcheck disable=SC2086
check "impl_cuda.cu compiles${nccl:+ with NCCL}" \
    "$NVCC" $quiet $again ${nccl% *} -c tests/impl_cuda.cu -o "$out/impl_cuda.o"
# shellcheck disable=SC2086
[ -z "$nccl" ] || link_and_run "with NCCL" "$out/impl_cuda.o" "$out/impl.o" -lcublasLt ${nccl#* } -lstdc++
for program in test_cuda test_cuda_gemm test_cuda_convert test_cuda_optim test_cuda_report; do
    # shellcheck disable=SC2086
    check "$program.cu compiles" \
        "$NVCC" $quiet $quick "tests/$program.cu" "$out/impl_cuda.o" "$out/impl.o" -lcublasLt ${nccl#* } \
        -o "$out/$program"
    if [ -x "$out/$program" ]; then
        check "$program runs, or says that there is no GPU" env MPT_EXPECT_NO_GPU=1 "$out/$program" --small
    fi
done
# shellcheck disable=SC2086
check "bench_cuda.cu compiles" "$NVCC" $quiet $quick tests/bench/bench_cuda.cu "$out/impl_cuda.o" \
    "$out/impl.o" -lcublasLt ${nccl#* } -o "$out/bench"
# shellcheck disable=SC2086
check "example 05 compiles" \
    "$NVCC" $quiet $again examples/05_train_digits_cuda.cu -lcublasLt -o "$out/05"
for f in before after; do
    # shellcheck disable=SC2086
    check "example 10, $f, compiles" \
        "$NVCC" $quiet $again "examples/10_drop_into_cuda/$f.cu" -o "$out/10"
done
# shellcheck disable=SC2086
check "example 11 compiles" "$NVCC" $quiet $again -DASK_THE_GPU -x cu examples/11_gpu_advice.c -o "$out/11"
summary
