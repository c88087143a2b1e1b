#!/bin/sh
# run_examples.sh BUILD_DIR -- every example builds by the line in its own comment, without a warning on
# gcc and clang, and prints what stands beside it; the drop-in diffs stay small; broken data is refused.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=${1:-build}/examples-check
mkdir -p "$out"
strict='-std=c99 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wdouble-promotion -Werror'

# The build line of an example, with its output moved to $out.
build_line() {
    sed -n '1,40s/^[ *]*\(cc -O2 [^&]*\).*$/\1/p' "$1" | grep "$1" | head -1 |
        sed "s| -o \([^ ]*\)| -o $out/$2|"
}

for expected in examples/*.expected examples/dropin/*.expected; do
    source=${expected%.expected}.c
    [ -f "$source" ] || continue            # the CUDA example runs under tests/run_cuda_emu.sh
    name=$(basename "$source" .c)
    line=$(build_line "$source" "$name")
    if [ -z "$line" ]; then fail "$source: no build line in its first comment"; continue; fi
    check "$source: its build line" sh -c "$line"
    "$out/$name" > "$out/$name.out" 2>&1
    check "$source: its output" diff "$expected" "$out/$name.out"
    # Besides cc -O2 one more build each, in turn: the implementation makes every one some seconds long.
    turn=$(((${turn:-0} + 1) % 3))
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

# Adoption is cheap: lines that differ, both sides counted, and how many each pair is allowed. In adam 21 of
# them are the program's own optimizer, which goes.
allowed='scaler 10
fused 30
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

# The GPT: as right as in FP32, in at most 1.2 times its processor time, in half the bytes. Other compilers
# take other roads, so the limits leave room; examples/dropin/README.md has five seeds of each.
gpt() {     # gpt SOURCE SEED... -- of each run: share right, loss, seconds, bytes of parameters and gradients
    cc -O3 -ffast-math -I. "$1" -o "$out/gpt" -lm || return
    shift
    for seed in "$@"; do
        "$out/gpt" "$seed" | awk '/bytes of/ {bytes = $1} /parameters$/ && !bytes {bytes = 8 * $3}
                                  /^step/ {seconds = $5} /right$/ {print $5 + 0, $4 + 0, seconds, bytes}'
    done
}
gpt examples/dropin/before_gpt.c 1 2 3 > "$out/gpt.f32"
gpt examples/dropin/after_gpt.c 1 2 > "$out/gpt.f16"
sed 's/half = MPT_F16/half = MPT_BF16/' examples/dropin/after_gpt.c > "$out/gpt_bf16.c"
gpt "$out/gpt_bf16.c" 1 > "$out/gpt.bf16"
for format in f16 bf16; do
    wrong=$(awk '
        NR == FNR {n++; if ($2 > loss) loss = $2; if (!time || $3 < time) time = $3; bytes = $4; next}
        {m++; if (!best || $3 < best) best = $3; if ($1 < 98) print $1 "% right"}
        $2 > 3 * loss {print "loss " $2}
        $4 > 0.51 * bytes {print $4 " bytes"}
        END {if (n != 3 || !m) print "a run is missing"; if (best > 1.2 * time) print best " s for " time}
        ' "$out/gpt.f32" "$out/gpt.$format")
    if [ -z "$wrong" ]; then pass "the GPT in $format"; else fail "the GPT in $format:" $wrong; fi
done

# Its story, cut short: eight rows, gradients lost where the scale is small, and the pictures' numbers.
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
    "$out/$name" "$out/broken.csv" > "$out/broken.out" 2> "$out/broken.err"
    code=$?
    if [ $code = 1 ] && grep -q '100' "$out/broken.err"; then pass "$name refuses a broken line"
    else fail "$name with a broken line: exit $code, $(head -1 "$out/broken.err")"; fi
done
summary
