#!/bin/sh
# run_mpi.sh BUILD_DIR -- checks that example 06 prints the same on 1, 2 and 4 ranks, weights included, and
# that all ranks skip a step that overflows on one; without the common decision that must fail. Example 17,
# whose masters and moments are split over ranks, runs on 1 to 4 ranks, and continues on another number.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=${1:-build}/mpi
mkdir -p "$out"
source=examples/06_train_digits_mpi.c
strict='-std=c99 -O2 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wdouble-promotion -Werror'

on() {      # on RANKS PROGRAM [ARGUMENT...]
    ranks=$1
    shift
    mpirun --allow-run-as-root --oversubscribe -n "$ranks" "$@"
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

# Without the common decision the Inf of one rank gets into the sum of all ranks.
sed 's/must(mpt_step_combine(.*));/local.found_inf = 0;/' "$source" > "$out/alone.c"
if cmp -s "$source" "$out/alone.c"; then
    fail "nothing planted"
else
    check "planted: no common decision builds" mpicc -std=c99 -O1 -I. "$out/alone.c" -o "$out/alone" -lm
    on 4 "$out/alone" > "$out/alone.txt" 2>&1
    if diff -q "$out/1.txt" "$out/alone.txt" > /dev/null
    then fail "planted: not seen"; else pass "planted: seen"; fi
fi

# The last line has the norm and the weights; of 4 ranks the second one has no weights to step.
source=examples/17_sharded_mpi.c
# shellcheck disable=SC2086
check "example 17 builds" mpicc $strict -I. "$source" -o "$out/17" -lm
same() {    # same NAME WANTED RANKS [ARGUMENT...] -- does example 17 end with the last line of WANTED?
    name=$1 wanted=$2
    shift 2
    n=$1
    shift
    on "$n" "$out/17" "$@" > "$out/17.txt" 2>&1 || { fail "$name"; tail -3 "$out/17.txt"; return; }
    [ "$(tail -n 1 "$out/17.txt")" = "$(tail -n 1 "$wanted")" ] && pass "$name" || fail "$name: other bits"
}
on 1 "$out/17" > "$out/whole.txt" 2>&1
on 1 "$out/17" --bf16 > "$out/bf16.txt" 2>&1
check "it learns, and skips one step" awk '/right/ { exit !($3 == 1 && $9 > 300) }' "$out/whole.txt"
for n in 3 4; do same "in $n parts: the same bits" "$out/whole.txt" $n; done
check "uneven, and one is empty" grep -q '^parts: 16384 0 8576 3840$' "$out/17.txt"
check "2 + 2 + 12/4 bytes a parameter" grep -q '^bytes a parameter: 2 + 2 + 12/4 = 7.00,' "$out/17.txt"
same "moments in bf16, rounded stochastically, in 3 parts" "$out/bf16.txt" 3 --bf16
on 3 "$out/17" --stop 25 "$out/run" > /dev/null
on 1 "$out/17" --from 3 --stop 55 "$out/run" > /dev/null
same "stopped on 3 ranks and on 1, ended on 2" "$out/whole.txt" 2 --from 1 "$out/run"
if on 2 "$out/17" --from 3 "$out/run" > /dev/null 2>&1
then fail "the whole as a part"; else pass "the whole is not the first of 3 parts"; fi
sed 's/must(mpt_step_combine(.*));//' "$source" > "$out/alone.c"
check "planted: each for itself builds" mpicc -std=c99 -O1 -I. "$out/alone.c" -o "$out/alone" -lm
on 3 "$out/alone" > "$out/alone.txt" 2>&1
if [ "$(tail -n 1 "$out/whole.txt")" = "$(tail -n 1 "$out/alone.txt")" ]
then fail "planted: not seen"; else pass "planted: seen"; fi
summary
