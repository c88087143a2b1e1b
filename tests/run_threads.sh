#!/bin/sh
# run_threads.sh BUILD_DIR -- checks that any number of threads and any order of the parts give the same bits:
# the digests of test_digest.c and the passes of cut.c, with the tests' own pool through MPT_PARALLEL_FOR,
# with gcc's and clang's OpenMP, in C++, with MPT_STATIC, and under clang's ThreadSanitizer. Planted bugs must
# be seen.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=${1:-build}/threads
mkdir -p "$out"
export TSAN_OPTIONS=atexit_sleep_ms=0       # else every program sleeps for a second at its end
flags='-std=gnu99 -O1 -Wall -Wextra -Werror -I. -include tests/pool.h'
CXX=${CXX:-g++}

check "the pool builds" gcc -std=gnu99 -O1 -Wall -Wextra -Werror -c tests/pool.c -o "$out/pool.o"

# pooled THREADS ORDER PROGRAM [TEST], team THREADS PROGRAM -- run a program with the pool, or with OpenMP
pooled() { check "$3: $1 threads, $2" env POOL_THREADS="$1" POOL_ORDER="$2" "$out/$3" ${4:+"$4"}; }
team() { check "$2: $1 threads of OpenMP" env OMP_NUM_THREADS="$1" "$out/$2"; }

# shellcheck disable=SC2086
{
check "cut.c with a pool builds" \
    gcc $flags -DMPT_STATIC -DMPT_IMPLEMENTATION tests/cut.c "$out/pool.o" -o "$out/cut" -lm -pthread
check "the implementation with a pool builds" gcc $flags -c tests/impl.c -o "$out/impl.o"
check "the digests with a pool build" \
    gcc $flags tests/test_digest.c "$out/impl.o" "$out/pool.o" -o "$out/digest" -lm -pthread
check "OpenMP of gcc builds" gcc $flags -fopenmp -DMPT_USE_OPENMP tests/impl.c tests/test_digest.c \
    "$out/pool.o" -o "$out/digest-gcc" -lm
check "OpenMP in C++ builds" "$CXX" -std=c++11 -O1 -Wall -Wextra -Werror -I. -include tests/pool.h -fopenmp \
    -DMPT_USE_OPENMP -DMPT_STATIC -DMPT_IMPLEMENTATION -x c++ tests/cut.c -x none "$out/pool.o" \
    -o "$out/cut-c++" -lm
}
pooled 3 reverse cut
pooled 3 static cut
for threads in 1 2 7 16; do
    pooled $threads shuffled cut
done
pooled 7 forward digest
pooled 16 reverse digest
team 2 digest-gcc
team 16 digest-gcc
team 3 cut-c++

if have clang; then
    # shellcheck disable=SC2086
    {
    check "thread sanitizer builds" clang $flags -g -fsanitize=thread -DMPT_STATIC -DMPT_IMPLEMENTATION \
        tests/cut.c tests/pool.c -o "$out/cut-tsan" -lm -pthread
    check "thread sanitizer builds, without locks" clang $flags -g -fsanitize=thread -D__TINYC__ \
        -DMPT_STATIC -DMPT_IMPLEMENTATION tests/cut.c tests/pool.c -o "$out/cut-lockless" -lm -pthread
    if clang $flags -fopenmp -DMPT_USE_OPENMP -DMPT_STATIC -DMPT_IMPLEMENTATION tests/cut.c "$out/pool.o" \
        -o "$out/cut-clang" -lm > "$out/cut-clang.log" 2>&1; then team 7 cut-clang
    else skip "no OpenMP of clang here (libomp-dev)"; fi
    }
    pooled 4 shuffled cut-tsan
    pooled 4 shuffled cut-lockless reports
else
    skip "no clang here"
fi

# Planted bugs: a test of cut.c | header | a part of a line | the same with a bug where HERE is true. One
# build has them all, and the environment says which one is there: with it the test fails, without any passes.
bugs()
{
    cat <<'END'
conversions|mpt_half.h|c->raised[part] = raised;|c->raised[HERE ? 0 : part] = raised;
control|mpt_half.h|mpti_control_set(c->control);|if (!HERE) mpti_control_set(c->control);
reports|mpt.h|c->work, begin, begin, end - begin);|c->work, HERE ? 0 : begin, HERE ? 0 : begin, end - begin);
lists|mpt.h|turn.first = piece->first;|turn.first = HERE ? 0 : piece->first;
lists|mpt.h|return mpti_f64_make((uint64_t)0x7ff8|return HERE ? 0.0 : mpti_f64_make((uint64_t)0x7ff8
reports|mpt.h|c->sum[begin] = n ?|c->sum[HERE ? 0 : begin] = n ?
reports|mpt.h|c->loss[begin] =|c->loss[begin] = HERE && part ? 0.0 :
reports|mpt.h|c->other, begin, take|c->other, begin - (HERE && part), take
END
}
planted=$out/planted
mkdir -p "$planted/tests"
cp mpt_half.h mpt.h "$planted/"
cp tests/cut.c tests/test.h tests/pool.h "$planted/tests/"
printf '%s\n' '#include <stdlib.h>' 'static int planted(int k)' \
    '{ const char *now = getenv("PLANTED"); return now && atoi(now) == k; }' > "$planted/plant.h"
bugs > "$out/bugs"
k=0
while IFS='|' read -r name header from to; do
    k=$((k + 1))
    K=$k FROM=$from TO=$to awk '{ at = index($0, ENVIRON["FROM"]); to = ENVIRON["TO"]
        gsub("HERE", "planted(" ENVIRON["K"] ")", to)
        if (at) $0 = substr($0, 1, at - 1) to substr($0, at + length(ENVIRON["FROM"]))
        print }' "$planted/$header" > "$out/one"
    if cmp -s "$planted/$header" "$out/one"; then fail "nothing planted for: $from"; fi
    mv "$out/one" "$planted/$header"
done < "$out/bugs"
check "planted bugs build" gcc -std=gnu99 -O1 -I"$planted" -include "$planted/plant.h" -include tests/pool.h \
    -DMPT_STATIC -DMPT_IMPLEMENTATION "$planted/tests/cut.c" "$out/pool.o" -o "$planted/cut" -lm -pthread

# fails K TEST -- does this test fail with bug K? Where threads race, one run may miss it.
fails() {
    order=reverse
    [ "$2" = control ] && order=static      # gives every thread a part
    for try in 1 2 3; do
        PLANTED=$1 POOL_THREADS=3 POOL_ORDER=$order "$planted/cut" "$2" > /dev/null 2>&1 || return 0
        [ "$1" != 0 ] || return
    done
    return 1
}
for name in conversions control reports lists; do
    if fails 0 $name; then fail "$name fails without a bug"; else pass "$name without a bug"; fi
done
k=0
while IFS='|' read -r name header from to; do
    k=$((k + 1))
    if fails $k "$name"; then pass "planted, seen: $to"; else fail "planted, not seen: $to"; fi
done < "$out/bugs"
summary
