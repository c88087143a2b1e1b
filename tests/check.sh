#!/bin/sh
# check.sh BUILD_DIR -- every suite there is, one line each; logs in BUILD_DIR/check. What this machine
# lacks is printed as a SKIP; with MPT_CI=1 (or CI=true) a skip is a failure.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=${1:-build}
logs=$out/check
rm -rf "$logs"
mkdir -p "$logs"
[ "${MPT_CI:-0}" = 1 ] && export MPT_CI

# suite NAME COMMAND... -- its last line must be a count of checks, and count at least one
suite() {
    name=$1
    shift
    start=$(date +%s)
    "$@" > "$logs/$name.log" 2>&1
    code=$?
    count=$(tail -n 1 "$logs/$name.log")
    took=$(($(date +%s) - start))
    grep '^SKIP' "$logs/$name.log" | sed "s/^/$name: /"
    case $count in
    "0 passed, 0 failed, 0 skipped") code=1; count="nothing was checked" ;;
    *" passed, "*" failed, "*" skipped") ;;
    *) [ "$code" = 0 ] && code=1; count="no count at the end of its output" ;;
    esac
    if [ "$code" != 0 ]; then
        echo "---- $name failed; the end of $logs/$name.log:"
        tail -n 40 "$logs/$name.log"
    fi
    printf '%-12s %-6s %s (%s s)\n' "$name" "$([ "$code" = 0 ] && echo ok || echo FAILED)" "$count" "$took"
}

# tests PREFIX -- the names of the C tests that begin so
tests() { for t in tests/"$1"*.c; do basename "$t" .c; done; }

# Two lanes beside each other; within a lane suites share what they build in $out. A lane's lines go to a
# file, where the counts are taken from at the end.
export MPT_JOBS=1 FUZZ_SECONDS="${FUZZ_SECONDS:-5}"
lane_of_compilers() {
    suite half      sh tests/run_matrix.sh "$out" $(tests test_half)
    suite mpt       sh tests/run_matrix.sh "$out" $(tests test_mpt)
    suite arch      sh tests/run_arch.sh "$out"
    suite mpi       sh tests/run_mpi.sh "$out"
    suite emu-bugs  sh tests/run_emu_bugs.sh "$out"
    suite install   sh tests/run_install.sh "$out"
}
lane_of_programs() {
    suite toc       sh tests/check_toc.sh mpt_half.h mpt.h mpt_cuda.h
    suite lint      sh tests/lint.sh
    suite compile   sh tests/run_compile.sh "$out"
    suite parts     sh tests/run_parts.sh "$out"
    suite examples  sh tests/run_examples.sh "$out"
    suite demo      sh tests/run_demo.sh "$out"
    suite effects   sh tests/run_effects.sh "$out"
    suite readme    sh tests/check_readme.sh README.md "$out"
    suite inspect   sh tests/run_inspect.sh "$out"
    suite cuda-emu  sh tests/run_cuda_emu.sh "$out"
    suite cuda-nvcc sh tests/run_cuda_nvcc.sh "$out"
    suite fuzz      sh tests/run_fuzz.sh "$out"
}
# What times compilers runs before the two, alone.
lane_of_times() {
    suite cost      sh tests/run_cost.sh "$out"
}
lane() { "$1" 2>&1 | tee "$logs/$1"; }
lane lane_of_times
lane lane_of_compilers &
lane lane_of_programs
wait
lanes="$logs/lane_of_times $logs/lane_of_compilers $logs/lane_of_programs"
expected=$(sed -n '/^lane_of_compilers/,/^lane() /p' tests/check.sh | grep -c '^    suite ')
passed=$(cat $lanes | grep -cE '^[a-z-]+ +ok ')
failed=$((expected - passed))       # a suite that left no line counts as failed
skipped=$(cat $lanes | grep -c ': SKIP')
echo "suites:"
summary
