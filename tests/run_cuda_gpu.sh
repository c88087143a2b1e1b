#!/bin/sh
# run_cuda_gpu.sh BUILD_DIR -- on a machine with an NVIDIA GPU: every kernel against its CPU function, the
# example against its expected output, and compute-sanitizer's four tools over the tests.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=${1:-build}/gpu
mkdir -p "$out"
[ -n "${NVCC:-}" ] || { have nvcc && NVCC=nvcc || NVCC=/usr/local/cuda/bin/nvcc; }

if ! have "$NVCC"; then
    skip "nvcc is not installed"
elif ! nvidia-smi -L >/dev/null 2>&1; then
    skip "no NVIDIA GPU on this machine"
else
    nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv,noheader
    flags='-std=c++17 -O3 -arch=native -I.'
    check "tests/impl.c compiles" "${CC:-cc}" -O2 -I. -c tests/impl.c -o "$out/impl.o"
    # shellcheck disable=SC2086
    check "impl_cuda.cu compiles" "$NVCC" $flags -c tests/impl_cuda.cu -o "$out/impl_cuda.o"
    for program in test_cuda test_cuda_gemm test_cuda_convert test_cuda_optim test_cuda_report; do
        # shellcheck disable=SC2086
        check "$program builds" "$NVCC" $flags "tests/$program.cu" "$out/impl_cuda.o" "$out/impl.o" \
            -lcublasLt -o "$out/$program"
        check "$program passes" "$out/$program"
    done
    # shellcheck disable=SC2086
    check "example 05 builds" \
        "$NVCC" $flags examples/05_train_digits_cuda.cu -lcublasLt -o "$out/05_train_digits_cuda"
    "$out/05_train_digits_cuda" > "$out/05.out" 2>&1
    # cuBLAS adds in its own order: the accuracy is that of the emulation within two points
    check "example 05 learns as in the emulation" awk '
        /%$/ { line[FILENAME]++; last[FILENAME] = $NF + 0 }
        END { d = last[ARGV[1]] - last[ARGV[2]]; exit !(line[ARGV[1]] == line[ARGV[2]] && d * d <= 4) }
    ' examples/05_train_digits_cuda.expected "$out/05.out"
    if have compute-sanitizer; then
        for tool in memcheck racecheck initcheck synccheck; do
            # of each program what has shared memory, atomics or several kernels behind each other
            for which in test_cuda: test_cuda_convert:fp8 test_cuda_optim:lamb test_cuda_report:; do
                # shellcheck disable=SC2086
                check "$tool, $which" compute-sanitizer --tool "$tool" --error-exitcode 9 \
                    "$out/${which%:*}" --small ${which#*:}
            done
        done
        for program in test_cuda_gemm test_cuda_convert test_cuda_optim; do
            check "memcheck, $program" \
                compute-sanitizer --tool memcheck --error-exitcode 9 "$out/$program" --small
        done
    else
        skip "compute-sanitizer is not installed"
    fi
fi
summary
