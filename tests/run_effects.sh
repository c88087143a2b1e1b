#!/bin/sh
# run_effects.sh BUILD_DIR -- checks that examples/14_paper_effects.c reproduces the study's numbers, within
# three minutes on a busy machine.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=${1:-build}/effects
mkdir -p "$out"
check "its build line" cc -O2 -I. examples/14_paper_effects.c -o "$out/14_paper_effects" -lm
start=$(date +%s)
check "it runs" sh -c "'$out/14_paper_effects' > '$out/effects.txt'"
took=$(($(date +%s) - start))
if [ "$took" -le 180 ]; then pass "took $took s"; else fail "took $took s, 180 are allowed"; fi
# holds CONDITION -- checks an awk condition: a[block, row] is our number, s[block, row] the study's,
# lost[...] the percentage of lost gradients, gone[...] that of lost updates. Blocks: d diverge, p partial,
# s storage, e eps, g shares. For x1 in the first table the study gives a range.
holds() {
    check "$1" awk -F'|' 'BEGIN { b = "g" }
        function near(x, y) { return x - y <= 1.05 && y - x <= 1.05 }
        /^A training/ { b = "d" } /^Partial/ { b = "p" } /^Small/ { b = "s" } /^Adam/ { b = "e" }
        NF > 1 && $2 ~ /[0-9]/ { gsub(/^ +| +$/, "", $1); a[b, $1] = $2 + 0; s[b, $1] = $3 + 0
                                 lost[b, $1] = $5 + 0; gone[b, $1] = $6 + 0; n++ }
        END { far = 0
              for (i in s)
                  if (!near(a[i], s[i]) && i != "g" SUBSEP "lost at x1") { far++; print i, a[i], s[i] }
              exit !(n == 24 && ('"$1"')) }' "$out/effects.txt"
}
holds 'far == 0'
holds 'a["g", "lost at x1"] >= 21 && a["g", "lost at x1"] <= 25'
holds 'a["g", "lost at x32768"] < 0.5'
holds 'near(lost["d", "FP16 x1"], 96)'
holds 'near(gone["s", "FP16 no master"], 92)'
summary
