#!/bin/sh
# check_demo.sh -- checks that build/demo/results.csv shows what examples/04_train_digits.c promises.
#
#     sh tests/check_demo.sh [--quick] DIR
#
# Reads DIR/results.csv, and from DIR/curve.csv the share of unscaled gradients that FP16 loses; --quick sets
# wider margins, for `04_train_digits --quick`: one seed, few epochs.
# Last line: N passed, N failed, N skipped. Exit status 1 if one failed, 2 for a wrong call.

quick=0
if [ "$1" = --quick ]; then quick=1; shift; fi
if [ $# -ne 1 ]; then echo "usage: check_demo.sh [--quick] DIR" >&2; exit 2; fi
if [ ! -r "$1/results.csv" ]; then
    echo "FAIL  $1/results.csv cannot be read"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi

unscaled=$(awk -F, '$1 == "0" {print $2}' "$1/curve.csv")
LC_ALL=C awk -F, -v quick="$quick" -v unscaled="$unscaled" '
function check(ok, text) {
    if (ok) passed++; else failed++
    print (ok ? "ok    " : "FAIL  ") text
}
function is_number(s) { return s ~ /^[0-9]+([.][0-9]+)?([eE][-+]?[0-9]+)?$/ }
function fraction(s) { return is_number(s) && s + 0 <= 1 }
function mean(config, column) { return rows[config] ? sum[config, column] / rows[config] : -9 }
function text(x) { return sprintf("%.4f", x) }
function within(config, margin,   d) {      # d: local; distance of the mean accuracy from that of FP32
    d = mean(config, 3) - fp32
    check(rows[config] && d <= margin && d >= -margin,
          config " is within " margin " of fp32: " sprintf("%+.4f", d))
}

NR == 1 { sub(/\r$/, ""); header = $0; next }
{
    sub(/\r$/, "")
    if (NF != 8 || !is_number($2) || !fraction($3) || !fraction($4) || !fraction($5) || !is_number($6) ||
        !is_number($7) || $7 + 0 <= 0) {
        bad++
        if (!bad_line) bad_line = NR
    }
    if (!is_number($8) || $8 + 0 <= 0) no_bytes++
    if (seen[$1, $2]++) twice++
    if (!rows[$1]++) configs++
    if ($2 + 0 > seeds) seeds = $2 + 0
    if (rows[$1] == 1 || $7 + 0 < least_scale[$1]) least_scale[$1] = $7 + 0
    if (rows[$1] == 1 || $6 + 0 < least_skipped[$1]) least_skipped[$1] = $6 + 0
    for (i = 3; i <= 8; i++) sum[$1, i] += $i
}
END {
    n = split("fp32 fp16_x1 fp16_x8 fp16_x128 fp16_x1024 fp16_dynamic bf16 fp16_no_master", name, " ")
    check(header == "config,seed,test_accuracy,flushed_fraction,updates_lost_fraction,steps_skipped," \
          "final_scale,bytes_per_param", "the header line is exact")
    check(!bad && NR > 1, "every line has 8 columns in range" (bad ? ": line " bad_line " does not" : ""))
    check(!no_bytes && NR > 1, "bytes per parameter are positive")
    complete = configs == n && !twice && seeds > 0
    for (i = 1; i <= n; i++) complete = complete && rows[name[i]] == seeds
    check(complete, "one line for each of " n " configurations and " seeds + 0 " seed(s): " NR - 1 " lines")

    fp32 = mean("fp32", 3)
    least = quick ? 0.75 : 0.92; near = quick ? 0.03 : 0.01
    check(fp32 > least, "fp32 learns, mean above " least ": " text(fp32))
    check(rows["fp16_x1"] && mean("fp16_x1", 3) <= fp32 - 0.25,
          "fp16_x1 is at least 0.25 below fp32: " text(mean("fp16_x1", 3)))
    within("fp16_x8", 0.03)
    within("fp16_x128", near); within("fp16_x1024", near); within("fp16_dynamic", near); within("bf16", near)
    check(rows["fp16_no_master"] && mean("fp16_no_master", 3) <= fp32 - 0.2,
          "fp16_no_master is at least 0.2 below fp32: " text(mean("fp16_no_master", 3)))

    check(mean("fp16_x1", 4) > 0.5, "fp16_x1 loses most gradients: " text(mean("fp16_x1", 4)))
    d = unscaled - mean("fp16_x1", 4)
    check(d <= 0.003 && d >= -0.003, "the pictures draw the gradients of all seeds: " text(unscaled))
    check(rows["fp16_dynamic"] && mean("fp16_dynamic", 4) < 0.01,
          "fp16_dynamic loses hardly any: " text(mean("fp16_dynamic", 4)))
    check(mean("fp16_no_master", 5) > 0.8,
          "fp16_no_master loses most updates: " text(mean("fp16_no_master", 5)))
    check(rows["fp32"] && mean("fp32", 5) < 0.1, "fp32 loses few: " text(mean("fp32", 5)))
    check(least_skipped["fp16_dynamic"] >= 1,
          "fp16_dynamic skips a step in every run, at least " least_skipped["fp16_dynamic"] + 0)
    check(least_scale["fp16_dynamic"] > 65536,
          "fp16_dynamic ends above its first scale 65536 in every run: " least_scale["fp16_dynamic"] + 0)
    printf "%d passed, %d failed, 0 skipped\n", passed, failed
    exit failed > 0
}' "$1/results.csv"
