#!/bin/sh
# check.sh BUILD_DIR -- runs every suite of tests/suites and prints a line for each; logs in BUILD_DIR/check.
# A suite passes if it exits 0 and its last line is "N passed, 0 failed, N skipped" with at least one passed;
# it is skipped if all its checks were. What this machine lacks is printed as a SKIP; with MPT_CI=1 (or
# CI=true) a skip is a failure. So is a suite that leaves no result, and a script or C test without a suite.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=${1:-build}
logs=$out/check
rm -rf "$logs"
mkdir -p "$logs"
[ "${MPT_CI:-0}" = 1 ] && export MPT_CI
export MPT_JOBS=1 FUZZ_SECONDS="${FUZZ_SECONDS:-3}"
grep -v '^ *#' tests/suites > "$logs/suites"

# suite NAME COMMAND: run a suite, print a line, and write the result to a file that nothing else writes
suite() {
    log=$logs/$1.log
    start=$(date +%s)
    (eval "$2") > "$log" 2>&1 < /dev/null
    code=$?
    count=$(tail -n 1 "$log")
    result=$(result_of $code "$log")
    grep '^SKIP' "$log" | sed "s/^/$1: /"
    if [ "$result" = failed ]; then
        echo "---- $1 failed, exit $code; the end of $log:"
        tail -n 40 "$log"
    fi
    printf '%-12s %-8s %s (%s s)\n' "$1" "$result" "$count" "$(($(date +%s) - start))"
    echo "$result" > "$logs/$1.result"
}

# The suites of a lane run one after the other, because they share files in $out. `alone` runs first; then two
# workers each take the next lane that nobody has taken, which keeps both processors busy to the end.
lane() {
    while read -r at name command; do [ "$at" = "$1" ] && suite "$name" "$command"; done < "$logs/suites"
}
worker() {
    for next in $(awk '$1 != "alone" && !seen[$1]++ { print $1 }' "$logs/suites"); do
        mkdir "$logs/lane.$next" 2> /dev/null && lane "$next"
    done
}
lane alone
worker &
worker &
wait

# Check that nothing is left out: names are unique, every row has left a result, every test is in a row.
wrong() { echo "FAIL  $*"; failed=$((failed + 1)); }
while read -r at name command; do
    [ "$(awk -v n="$name" '$2 == n' "$logs/suites" | wc -l)" = 1 ] || wrong "two suites are called $name"
    case $(cat "$logs/$name.result" 2>/dev/null) in
    passed) passed=$((passed + 1)) ;;
    skipped) skipped=$((skipped + 1)) ;;
    failed) failed=$((failed + 1)) ;;
    *) wrong "$name left no result" ;;
    esac
done < "$logs/suites"
run=" $(eval "echo $(sed 's/^[^ ]* *[^ ]* *//' "$logs/suites" | tr '\n' ' ')") "
apart=" $(sed -n 's/^# not here: //p' tests/suites | tr '\n' ' ')"
for file in tests/*.sh tests/test_*.c; do
    [ -f "$file" ] || continue
    case $run in *" $file "*) continue ;; esac
    case $apart in *" ${file#tests/} "*) ;; *) wrong "$file is in no suite" ;; esac
done
[ "$passed" != 0 ] || wrong "no suite has passed"
echo "suites:"
summary
