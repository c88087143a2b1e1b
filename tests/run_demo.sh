#!/bin/sh
# run_demo.sh BUILD_DIR -- checks that make demo takes at most 40 s of processor time, that its numbers are as
# promised, that its pictures exist, and that it refuses bad input and then writes nothing.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=${1:-build}
rm -rf "$out/demo" "$out/demo-times"
# Processor time of make and its children: on a shared machine wall-clock time depends on other programs too.
check "make demo" sh -c 'make --no-print-directory B="$0" demo && times > "$0/demo-times"' "$out"
took=$(processor_time "$out/demo-times")
took=${took%.*}
if [ "${took:-99}" -le 40 ]; then pass "demo took $took s"; else fail "demo took $took s, 40 are allowed"; fi
check "the numbers tell the story" sh tests/check_demo.sh "$out/demo"
if have gnuplot; then
    for picture in histogram curve accuracy growth heat; do
        check "$picture.png is a picture" sh -c "head -c 4 '$out/demo/$picture.png' | grep -q PNG"
    done
else
    skip "pictures: gnuplot is not installed"
fi
rm -rf "$out/demo-bad"
mkdir -p "$out/demo-bad"
sed '100s/.*/1,2,three/' examples/data/digits.csv > "$out/broken.csv"
"$out/examples/04_train_digits" --data "$out/broken.csv" --out "$out/demo-bad" \
    > "$out/bad.out" 2> "$out/bad.err"
code=$?
if [ $code = 1 ] && grep -q 100 "$out/bad.err" && [ -z "$(ls "$out/demo-bad")" ]; then pass "broken CSV line"
else fail "broken CSV line: exit $code, $(head -1 "$out/bad.err"), wrote: $(ls "$out/demo-bad")"; fi
summary
