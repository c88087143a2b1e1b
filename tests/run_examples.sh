#!/bin/sh
# run_examples.sh BUILD_DIR -- every example must build by the line in its own comment, and without a warning
# by gcc and clang, and print what its .expected file has; drop-in diffs stay small; broken data is refused.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=${1:-build}/examples-check
mkdir -p "$out" && rm -rf "$out"/*gpt*
strict='-std=c99 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wdouble-promotion -Werror'

# Print the build line of an example, with $2 as its output.
build_line() {
    sed -n '1,40s/^[ *]*\(cc -O2 [^&]*\).*$/\1/p' "$1" | grep "$1" | head -1 |
        sed "s| -o \([^ ]*\)| -o $2|"
}

for expected in examples/*.expected examples/dropin/*.expected; do
    source=${expected%.expected}.c
    [ -f "$source" ] || continue            # the CUDA example runs under tests/run_cuda_emu.sh
    name=$(basename "$source" .c)
    program=${1:-build}/${source%.c}        # where make puts it, for later suites
    mkdir -p "$(dirname "$program")"
    line=$(build_line "$source" "$program")
    if [ -z "$line" ]; then fail "$source: no build line in its first comment"; continue; fi
    check "$source: its build line" sh -c "$line"
    "$program" > "$out/$name.out" 2>&1
    check "$source: its output" diff "$expected" "$out/$name.out"
    # Besides cc -O2, one of three more builds in turn: each takes seconds, because of the implementation. It
    # begins so that the long runs of 16_embeddings are not those at -O0.
    turn=$(((${turn:-2} + 1) % 3))
    case $turn in 0) build='gcc -O1' ;; 1) build='gcc -O0' ;; *) build='clang -O1' ;; esac
    have "${build%% *}" || { skip "$source with $build: no such compiler"; continue; }
    # shellcheck disable=SC2086
    if $build $strict -I. "$source" -o "$out/$name.strict" -lm 2> "$out/$name.log"; then
        "$out/$name.strict" > "$out/$name.out" 2>&1
        check "$source: its output with $build" diff "$expected" "$out/$name.out"
    else
        fail "$source: $build"
        head -20 "$out/$name.log"
    fi
done

# Adoption must be cheap: the number of changed lines, on both sides, that each pair is allowed. In adam, 21
# of them are the program's own optimizer, which is removed.
allowed='scaler 10
fused 29
adam 45
double 43
gpt 60'
for before in examples/dropin/before_*.c; do
    after=$(echo "$before" | sed 's/before_/after_/')
    name=$(basename "$before" .c | sed 's/before_//')
    most=$(echo "$allowed" | sed -n "s/^$name //p")
    changed=$(diff "$before" "$after" | grep -c '^[<>]')
    if [ "$changed" -gt 0 ] && [ "$changed" -le "${most:-0}" ]; then pass "$after: $changed changed lines"
    else fail "$after: $changed changed lines, 1 to ${most:-0} are allowed"; fi
    if grep -qE 'mpt_|include "mpt' "$before"; then fail "$before knows mpt"; else pass "$before"; fi
done

# The GPT, in half the bytes and at most 1.2 times the processor time. Where a whole training ends is chance,
# in FP32 too (examples/dropin/README.md): two builds of before_gpt.c diverge after some 150 steps. Until then
# runs stay close: after 100 steps, losses of trained and of new sums are within 0.3% of those in FP32 of the
# same seed (in fact 0.01% in FP16, 0.1% in BF16). Of two whole trainings at least one must learn to add.
gpt() {     # gpt SOURCE STEPS SEED... -- for each run: % right, both losses, seconds, bytes of both arrays
    gpt=$out/$(basename "$1" .c)
    [ -x "$gpt" ] || cc -O3 -ffast-math -I. "$1" -o "$gpt" -lm || return
    steps=$2
    shift 2
    for seed in "$@"; do
        "$gpt" "$seed" "$steps" | awk '/bytes of/ {bytes = $1} /parameters$/ && !bytes {bytes = 8 * $3}
            /^step/ {loss = $4; seconds = $5} /right$/ {print $5 + 0, $4 + 0, loss, seconds, bytes}'
    done
}
# faults_of FORMAT -- run the pair and print what is wrong
faults_of() {   # runs take turns, and the least time of all tries counts: the speed of machines changes
    : > "$out/gpt.f32"
    : > "$out/gpt.$1"
    for seed in 1 2 3; do
        gpt examples/dropin/before_gpt.c 100 $seed >> "$out/gpt.f32"
        gpt "$out/gpt_$1.c" 100 $seed >> "$out/gpt.$1"
    done
    paste -d ' ' "$out/gpt.f32" "$out/gpt.$1" | tee -a "$out/gpt.times.$1" > "$out/gpt.pairs"
    awk '
        function apart(a, b) {return a > 1.003 * b || b > 1.003 * a}
        NR == FNR {if (!time || $4 < time) time = $4; if (!mine || $9 < mine) mine = $9; next}
        NF == 10 {n++}
        apart($2, $7) || apart($3, $8) {print "losses " $7 " and " $8 " for " $2 " and " $3}
        $10 > 0.51 * $5 {print $10 " bytes"}
        END {if (n != 3) print "a run is missing"; if (mine > 1.2 * time) print mine " s for " time}
    ' "$out/gpt.times.$1" "$out/gpt.pairs"
}
cp examples/dropin/after_gpt.c "$out/gpt_f16.c"
sed 's/half = MPT_F16/half = MPT_BF16/' examples/dropin/after_gpt.c > "$out/gpt_bf16.c"
for format in f16 bf16; do
    for try in 1 2 3; do                # other programs disturb times
        wrong=$(faults_of $format)
        case $wrong in *' s for '*) echo "try $try: $wrong" ;; *) break ;; esac
    done
    if [ -z "$wrong" ]; then pass "the GPT in $format"; else fail "the GPT in $format:" $wrong; fi
done
# The same lines in FP32, with activations stored as floats: they must give the losses of before_gpt.c
sed 's/half = MPT_F16/half = MPT_F32/; s/static mpt_f16 stored/static float stored/' \
    examples/dropin/after_gpt.c > "$out/gpt_control.c"
gpt "$out/gpt_control.c" 100 1 > "$out/gpt.control"
same=$(head -n 1 "$out/gpt.f32" | paste -d ' ' - "$out/gpt.control" | awk '
    function near(a, b) {return a > 0 && a <= 1.001 * b && b <= 1.001 * a}
    {print NF == 10 && near($2, $7) && near($3, $8)}')
check "the GPT's lines in FP32" test "$same" = 1
for seed in 1 2; do
    gpt "$out/gpt_f16.c" 600 $seed > "$out/gpt.whole"
    learned=$(awk '{print ($1 >= 95)}' "$out/gpt.whole")
    [ "$learned" != 1 ] || break
done
check "the GPT in f16 learns to add" test "$learned" = 1

# Example 15, shortened: eight rows, gradients lost if the scale is small, and the numbers for the pictures.
mkdir -p "$out/gpt.csv"
if cc -O3 -ffast-math -I. examples/15_gpt.c -o "$out/15_gpt" -lm &&
    "$out/15_gpt" 20 "$out/gpt.csv" > "$out/15.out"
then
    check "15_gpt: eight ways" test "$(grep -c ' s$' "$out/15.out")" = 8
    check "15_gpt: what FP16 loses" awk '
        / s$/ {lost[++n] = $(NF - 5)}
        END {exit !(lost[1] == 0 && lost[2] > 50 && lost[3] > 1 && lost[3] < lost[2] && lost[4] < 1)}' \
        "$out/15.out"
    check "15_gpt: its curves" test "$(cat "$out"/gpt.csv/*.csv | wc -l)" = 82
else
    fail "15_gpt"
fi

# A CSV with a broken line: exit code 1, the line number in the message, nothing on standard output.
sed '100s/.*/1,2,three/' examples/data/digits.csv > "$out/broken.csv"
for name in before_scaler after_scaler before_fused after_fused before_adam after_adam before_double \
            after_double; do
    "${1:-build}/examples/dropin/$name" "$out/broken.csv" > "$out/broken.out" 2> "$out/broken.err"
    code=$?
    if [ $code = 1 ] && grep -q '100' "$out/broken.err"; then pass "$name refuses a broken line"
    else fail "$name with a broken line: exit $code, $(head -1 "$out/broken.err")"; fi
done
summary
