#!/bin/sh
# run_mpi.sh BUILD_DIR -- example 06 on 1, 2 and 4 ranks prints the same, weights included, and skips the
# step that overflows on one rank; without the common decision it does not, so the test can fail.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=${1:-build}/mpi
mkdir -p "$out"
source=examples/06_train_digits_mpi.c
strict='-std=c99 -O2 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wdouble-promotion -Werror'

on() {      # on RANKS PROGRAM
    mpirun --allow-run-as-root --oversubscribe -n "$1" "$2"
}

if ! have mpicc || ! have mpirun; then
    skip "no MPI here (mpicc, mpirun)"
    summary
    exit
fi
# shellcheck disable=SC2086
check "example 06 builds" mpicc $strict -I. "$source" -o "$out/06" -lm
for ranks in 1 2 4; do
    if on "$ranks" "$out/06" > "$out/$ranks.txt"; then pass "$ranks ranks"; else fail "$ranks ranks"; fi
    check "$ranks ranks print what 1 does" diff "$out/1.txt" "$out/$ranks.txt"
done
check "the overflow is skipped" grep -q '^step 30: shard 3 overflowed, all ranks skip; [1-9]' "$out/1.txt"
check "once" grep -q '^[0-9]* steps, 1 skipped, .*, the same on every rank$' "$out/4.txt"
check "and it learns" awk '/right/ { exit !($7 > 300) }' "$out/1.txt"
if on 3 "$out/06" > "$out/3.txt" 2>&1; then fail "3 ranks are refused"; else pass "3 ranks are refused"; fi

# Without it the Inf of one rank goes into the sum of all.
sed 's/must(mpt_step_combine(.*));/local.found_inf = 0;/' "$source" > "$out/alone.c"
if cmp -s "$source" "$out/alone.c"; then
    fail "nothing planted"
else
    check "planted: no common decision builds" mpicc -std=c99 -O2 -I. "$out/alone.c" -o "$out/alone" -lm
    on 4 "$out/alone" > "$out/alone.txt" 2>&1
    if diff -q "$out/1.txt" "$out/alone.txt" > /dev/null
    then fail "planted: not seen"; else pass "planted: seen"; fi
fi
summary
