#!/bin/sh
# run_effects.sh BUILD_DIR -- examples/14_paper_effects.c tells the story that it should, within three minutes
# on a busy machine.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=${1:-build}/effects
mkdir -p "$out"
check "its build line" cc -O2 -I. examples/14_paper_effects.c -o "$out/14_paper_effects" -lm
start=$(date +%s)
check "it runs" sh -c "'$out/14_paper_effects' > '$out/effects.txt'"
took=$(($(date +%s) - start))
if [ "$took" -le 180 ]; then pass "took $took s"; else fail "took $took s, 180 are allowed"; fi
# holds CONDITION: a[block, row] is the number of a row; d: diverge, p: partial, s: storage, e: eps, g: shares
holds() {
    check "$1" awk -F'|' 'BEGIN { b = "g" }
        /^A training/ { b = "d" } /^Partial/ { b = "p" } /^Small/ { b = "s" } /^Adam/ { b = "e" }
        NF > 1 { gsub(/^ +| +$/, "", $1); a[b, $1] = $2 + 0; n++ }
        END { exit !(n >= 29 && ('"$1"')) }' "$out/effects.txt"
}
holds 'a["g", "lost at x1"] > 20 && a["g", "lost at x1"] < 26'
holds 'a["g", "lost at x32768"] < 1'
holds 'a["d", "FP32"] > 93 && a["d", "FP16 x1"] < 20'
holds 'a["d", "FP16 x8"] > a["d", "FP32"] - 1.5'
holds 'a["d", "FP16 dynamic"] > a["d", "FP32"] - 1.5'
holds 'a["p", "FP16 x1"] < a["p", "FP32"] - 20'
holds 'a["p", "FP16 x128"] > a["p", "FP32"] - 2'
holds 'a["s", "FP16 no master"] < a["s", "FP32"] - 30'
holds 'a["s", "FP16 stochastic"] > a["s", "FP32"] - 2'
holds 'a["s", "FP16 Kahan"] > a["s", "FP32"] - 2'
holds 'a["s", "BF16 stochastic"] > a["s", "FP32"] - 2'
holds 'a["e", "FP16 eps 1e-8"] < 20 && a["e", "FP16 eps 1e-4"] > 90'
summary
