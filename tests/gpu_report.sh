#!/bin/sh
# gpu_report.sh BUILD_DIR [test | bench] -- a report in ten minutes, on a machine with one NVIDIA GPU and the
# CUDA toolkit, without a network: the machine, the builds, every kernel compared with its CPU function,
# examples 05 and 10, speed beside the card's limits and PyTorch, compute-sanitizer; or only one of the parts.
#
# Every part has its own time limit and writes to its own log while it runs; if one fails, the others still
# run. summary.md is updated after each, so a run that is killed leaves the results it had. The last lines are
# a table: ok, FAILED or skipped, and why. Exit status 0: nothing failed or was skipped, except for PyTorch.
# Commit the folder: tests/bench/results/gpu-<card>-<date>.
#
# Environment: NVCC; MPT_REPORT_DIR, another folder; MPT_REPORT_SECONDS (600): parts that would begin later
# are skipped; MPT_REPORT_SMALL=1: small tests and no measurement, to see only whether everything runs.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=${1:-build}/gpu what=${2:-all}
seconds=${MPT_REPORT_SECONDS:-600} small=${MPT_REPORT_SMALL:+--small}
begin=$(date +%s) running='' bad=0
unset MPT_EXPECT_NO_GPU
export MPT_CI=1                 # a test that skips anything has failed: there is a GPU
wanted() { [ "$what" = all ] || [ "$what" = "$1" ]; }
nvcc=${NVCC:-$(first_of nvcc /usr/local/cuda/bin/nvcc /opt/cuda/bin/nvcc)}
card=$(nvidia-smi --query-gpu=name --format=csv,noheader -i 0 2> /dev/null | head -1)
slug=$(echo "${card:-no-gpu}" | tr 'A-Z' 'a-z' | tr -cs 'a-z0-9\n' '-' | sed 's/-$//')
dir=${MPT_REPORT_DIR:-tests/bench/results/gpu-$slug-$(date -u +%Y-%m-%d)}
mkdir -p "$out" "$dir" || exit 1
rm -rf "$out"/run && mkdir -p "$out/run"
: > "$out/parts"

# ---- the results so far ----
table() {
    awk -F '|' 'BEGIN { print "| part | result | seconds | why, or its last line |\n|---|---|---|---|" }
                { printf "| %s | %s | %s | %s |\n", $1, $2, $3, $4 }' "$out/parts"
}
write_summary() {
    {
        printf '# mpt on %s, %s\n\n```\n' "${card:-a machine without a GPU}" "$(date -u +%Y-%m-%d)"
        cat "$dir/machine.log" 2> /dev/null
        printf '```\n\n'
        table
        for t in "$dir"/*.md; do [ "$t" = "$dir/summary.md" ] || sed 's/^#/##/' "$t" 2> /dev/null; done
    } > "$dir/summary.new"
    mv "$dir/summary.new" "$dir/summary.md"
}
note() {        # note NAME RESULT SECONDS WHY
    printf '%s|%s|%s|%s\n' "$1" "$2" "$3" "$(printf %s "$4" | tr '|\n' '/ ' | cut -c 1-160)" >> "$out/parts"
    printf '%-24s %-8s %4s s  %s\n' "$1" "$2" "$3" "$4"
    [ "$2" = ok ] || [ "$1" = "PyTorch" ] || bad=1
    write_summary
}
finish() {
    trap - EXIT
    if [ -n "$running" ]; then
        # shellcheck disable=SC2046
        kill $(jobs -p) 2> /dev/null
        note "$running" FAILED "-" "the report was stopped here; nothing after it was run"
    fi
    printf '\n'
    table
    echo "$(grep -c '|ok|' "$out/parts") ok, $(grep -c '|FAILED|' "$out/parts") failed," \
        "$(grep -c '|skipped|' "$out/parts") skipped; $dir"
    exit $bad
}
trap finish EXIT
trap 'running=${running:-the rest}; exit 1' INT TERM HUP        # a signal may come between two parts

# part NAME LIMIT COMMAND... -- run with its own log, for at most LIMIT seconds and the time that is left
part() {
    name=$1 limit=$2
    shift 2
    start=$(date +%s)
    left=$((begin + seconds - start))
    if [ $left -lt 1 ]; then note "$name" skipped 0 "the $seconds s of the report were over"; return 1; fi
    [ $left -ge "$limit" ] || limit=$left
    log=$dir/$(echo "$name" | tr -cs 'a-zA-Z0-9_.\n' '-').log
    running=$name
    timeout -k 5 "$limit" "$@" > "$log" 2>&1 &
    wait $!
    code=$?
    running=''
    took=$(($(date +%s) - start))
    last=$(grep -E '^FAIL|rror' "$log" | head -4 | tr '\n' ' ')
    [ $code != 0 ] && [ -n "$last" ] || last=$(tail -n 1 "$log")
    case $code in
    0)       note "$name" ok "$took" "$last" ;;
    124|137) note "$name" FAILED "$took" "stopped after $limit s: $last" ;;
    *)       note "$name" FAILED "$took" "exit status $code: $last" ;;
    esac
    return $code
}
stop() { note "$1" FAILED 0 "$2"; exit 1; }

# ---- the machine ----
machine() {
    date -u
    git log -1 --format='mpt %h %s' 2> /dev/null
    uname -srm
    nproc | sed 's/$/ processors/'
    nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total,clocks.max.mem --format=csv
    "$nvcc" --version | tail -2
    ${CC:-cc} --version | head -1
}
[ -n "$card" ] || stop "machine" "no NVIDIA GPU: nvidia-smi is not there, or lists none"
{ [ -n "$nvcc" ] && have "$nvcc"; } ||
    stop "machine" "no nvcc: install the CUDA toolkit, or say where it is: NVCC=/usr/local/cuda/bin/nvcc"
have timeout || stop "machine" "no timeout(1): without it a part that hangs would hang the report"
machine > "$dir/machine.log" 2>&1
note "machine" ok 0 "$card"

# ---- builds, in parallel, for this card only ----
cc=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader -i 0 2> /dev/null | head -1 | tr -cd 0-9)
flags="-std=c++17 -O3 -arch=${cc:+sm_}${cc:-native} -I."
tests='test_cuda test_cuda_gemm test_cuda_convert test_cuda_optim test_cuda_report'
job() {         # job NAME COMMAND...
    name=$1
    shift
    timeout -k 5 300 "$@" > "$dir/build-$name.log" 2>&1 &
    jobs="$jobs $name:$!"
}
collect() {     # wait for each job; its exit status goes to a file
    for j in $jobs; do
        wait "${j#*:}"
        echo $? > "$out/run/${j%:*}"
    done
    jobs=''
}
built() { [ "$(cat "$out/run/$1" 2> /dev/null)" = 0 ]; }
jobs='' running=builds build_began=$(date +%s)
job impl "${CC:-cc}" -O2 -I. -c tests/impl.c -o "$out/impl.o"
# shellcheck disable=SC2086
{
    job impl_cuda "$nvcc" $flags -c tests/impl_cuda.cu -o "$out/impl_cuda.o"
    for t in $tests; do job "$t.o" "$nvcc" $flags -c "tests/$t.cu" -o "$out/$t.o"; done
    job bench_cuda.o "$nvcc" $flags -c tests/bench/bench_cuda.cu -o "$out/bench_cuda.o"
    job 05 "$nvcc" $flags examples/05_train_digits_cuda.cu -lcublasLt -o "$out/05"
    job 10_before "$nvcc" $flags examples/10_drop_into_cuda/before.cu -o "$out/10_before"
    job 10_after "$nvcc" $flags examples/10_drop_into_cuda/after.cu -o "$out/10_after"
    collect
    for t in $tests bench_cuda; do
        built "$t.o" && job "$t" "$nvcc" $flags "$out/$t.o" "$out/impl_cuda.o" "$out/impl.o" -lcublasLt \
            -o "$out/$t"
    done
    collect
}
running=''
for job in $(ls "$out/run"); do
    built "$job" || note "build $job" FAILED "$(($(date +%s) - build_began))" \
        "$(grep -m 1 -E 'rror|fatal' "$dir/build-$job.log" || echo "exit status $(cat "$out/run/$job")")"
done
good=$(grep -lx 0 "$out"/run/* | wc -l) all=$(ls "$out/run" | wc -l)
[ "$good" = "$all" ] && result=ok || result=FAILED
note "builds" $result $(($(date +%s) - build_began)) "$good of $all"

# run NAME LIMIT PROGRAM COMMAND... -- run a part if its program was built
run() {
    if built "$3"; then name=$1 limit=$2; shift 3; part "$name" "$limit" "$@"
    else note "$1" skipped 0 "$3 was not built"; return 1; fi
}
run "device" 60 test_cuda_gemm "$out/test_cuda_gemm" --small gpus || exit 1

# ---- tests, and the examples compared with what the emulation printed: cuBLAS adds in its own order, so the
#      final accuracies may differ by two points ----
learns='match($0, /[0-9.]+%/) { n[FILENAME]++; x[FILENAME] = substr($0, RSTART, RLENGTH) + 0 }
        END { d = x[ARGV[1]] - x[ARGV[2]]; print x[ARGV[2]] "%, in the emulation " x[ARGV[1]] "%"
              exit !(n[ARGV[1]] == n[ARGV[2]] && d * d <= 4) }'
if wanted test; then
    # shellcheck disable=SC2086
    for t in $tests; do run "$t" 120 "$t" "$out/$t" $small; done
    [ -n "$small" ] || run "2^32 elements" 60 test_cuda "$out/test_cuda" --long long_tensors
    for e in 05:examples/05_train_digits_cuda 10_before:examples/10_drop_into_cuda/before \
             10_after:examples/10_drop_into_cuda/after; do
        run "example ${e%%:*}" 60 "${e%%:*}" \
            sh -c '"$1" > "$1.out" 2>&1; code=$?; cat "$1.out"; awk "$2" "$3" "$1.out" && exit $code' \
            sh "$out/${e%%:*}" "$learns" "${e#*:}.expected"
    done
fi

# ---- speed ----
if wanted bench; then
    if python3 -c 'import torch; assert torch.cuda.is_available()' 2> /dev/null; then
        part "PyTorch" 90 sh -c 'python3 tests/bench/torch_step.py > "$1"; code=$?; cat "$1"; exit $code' sh \
            "$out/torch.txt"
    else
        : > "$out/torch.txt"
        note "PyTorch" skipped 0 "python3 has no torch with CUDA: nothing to compare with"
    fi
    # shellcheck disable=SC2086
    run "benchmark" 240 bench_cuda "$out/bench_cuda" $small --torch "$out/torch.txt" "$dir"
fi

# ---- compute-sanitizer: the tests of each program with shared memory, atomics or several kernels ----
if wanted test; then
    tools=$(dirname "$(command -v "$nvcc")")
    sanitizer=$(first_of compute-sanitizer "$tools/compute-sanitizer" "$tools"/../*/compute-sanitizer \
        "$tools"/../*/compute-sanitizer/compute-sanitizer /usr/local/cuda*/bin/compute-sanitizer)
    if [ -n "$sanitizer" ]; then
        for tool in memcheck racecheck initcheck synccheck; do
            for which in "test_cuda check" "test_cuda steps" "test_cuda_convert fp8" \
                         "test_cuda_convert block" "test_cuda_optim lamb" test_cuda_report; do
                # shellcheck disable=SC2086
                run "$tool $which" 60 "${which% *}" "$sanitizer" --tool "$tool" --error-exitcode 9 \
                    "$out"/$which --small
            done
        done
        run "memcheck test_cuda_gemm" 60 test_cuda_gemm "$sanitizer" --error-exitcode 9 \
            "$out/test_cuda_gemm" --small
    else
        note "compute-sanitizer" skipped 0 "it is not installed beside nvcc, nor in the PATH"
    fi
fi
