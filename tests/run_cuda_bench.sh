#!/bin/sh
# run_cuda_bench.sh BUILD_DIR -- on a machine with an NVIDIA GPU: measure, and write the two files of
# tests/bench/results. PyTorch's own step stands beside ours if PyTorch with CUDA can be imported.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=${1:-build}/gpu
mkdir -p "$out" tests/bench/results
[ -n "${NVCC:-}" ] || { have nvcc && NVCC=nvcc || NVCC=/usr/local/cuda/bin/nvcc; }

if ! have "$NVCC"; then
    skip "nvcc is not installed"
elif ! nvidia-smi -L >/dev/null 2>&1; then
    skip "no NVIDIA GPU on this machine"
else
    python3 tests/bench/torch_step.py > "$out/torch.txt" 2> "$out/torch.log" ||
        echo "PyTorch with CUDA is not there, or failed (see $out/torch.log): not compared"
    check "tests/impl.c compiles" "${CC:-cc}" -O2 -I. -c tests/impl.c -o "$out/impl.o"
    check "bench_cuda builds" "$NVCC" -std=c++17 -O3 -arch=native -I. tests/bench/bench_cuda.cu \
        tests/impl_cuda.cu "$out/impl.o" -lcublasLt -o "$out/bench_cuda"
    if "$out/bench_cuda" --torch "$out/torch.txt" tests/bench/results; then pass "bench_cuda"
    else fail "bench_cuda"; fi
fi
summary
