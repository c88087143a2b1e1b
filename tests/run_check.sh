#!/bin/sh
# run_check.sh BUILD_DIR -- tests that check.sh tells suites that pass from suites that do not: it runs
# check.sh on stub suites, each of which lies in its own way. And a program that runs no test must not pass.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=$(mkdir -p "${1:-build}/check-check" && cd "${1:-build}/check-check" && pwd) || exit 1
rm -rf "$out/stub"
unset CI MPT_CI

# house -- make an empty project with one suite that passes; stub adds more
house() {
    rm -rf "$out/stub"
    mkdir -p "$out/stub/tests"
    cp tests/check.sh tests/lib.sh "$out/stub/tests"
    echo '# not here: check.sh lib.sh' > "$out/stub/tests/suites"
    stub compilers good 'echo "3 passed, 0 failed, 0 skipped"'
}
# stub LANE NAME BODY -- add a suite and its row
stub() {
    echo "$3" > "$out/stub/tests/run_$2.sh"
    echo "$1 $2 sh tests/run_$2.sh" >> "$out/stub/tests/suites"
}
# says CODE LAST_LINE NAME [VARIABLE=VALUE] -- the exit status and last line that check.sh must give
says() {
    env ${4:-} sh "$out/stub/tests/check.sh" "$out/stub/build" > "$out/log" 2>&1
    code=$?
    if [ $code = "$1" ] && [ "$(tail -n 1 "$out/log")" = "$2" ]; then pass "$3"
    else fail "$3: exit $code, $(tail -n 1 "$out/log"); expected: $1, $2"; fi
}
# lie NAME BODY -- a project of a good suite and one that must fail
lie() {
    house
    stub programs lie "$2"
    says 1 "1 passed, 1 failed, 0 skipped" "$1"
}

house
says 0 "1 passed, 0 failed, 0 skipped" "one good suite"
stub programs better 'echo FAIL is only a word; echo "1 passed, 0 failed, 0 skipped"'
stub alone best 'echo "100 passed, 0 failed, 0 skipped"'
says 0 "3 passed, 0 failed, 0 skipped" "a suite in every lane"

lie "failures told, exit 0"         'echo "3 passed, 2 failed, 0 skipped"'
lie "exit 1, no failure told"       'echo "3 passed, 0 failed, 0 skipped"; exit 1'
lie "nothing checked"               'echo "0 passed, 0 failed, 0 skipped"'
lie "silence"                       'exit 0'
lie "no count"                      'echo ok'
lie "a count that is not the last"  'echo "3 passed, 0 failed, 0 skipped"; echo more'
lie "words around a count"          'echo "at least 3 passed, 0 failed, 0 skipped"'
lie "a count without numbers"       'echo " passed,  failed,  skipped"'
lie "a count that goes on"          'echo "3 passed, 0 failed, 0 skipped, 7 forgotten"'
lie "ten failures"                  'echo "3 passed, 10 failed, 0 skipped"'
lie "the lines of others, then 1"   'echo "good         passed   x"; echo "other        ok     y"; exit 1'
lie "death by a signal"             'echo "3 passed, 0 failed, 0 skipped"; kill -9 $$'
lie "an exit in the command itself" 'exit 3'
lie "a script that does not parse"  'if'

# A suite that kills its lane stops the later suites of that lane: they must count as failed.
house
stub programs killer 'kill -9 $(cut -d " " -f 4 /proc/$PPID/stat)'
stub programs later 'echo "3 passed, 0 failed, 0 skipped"'
says 1 "1 passed, 2 failed, 0 skipped" "a killed lane"
house
stub programs killer 'kill -9 $PPID'
stub programs later 'echo "3 passed, 0 failed, 0 skipped"'
says 1 "2 passed, 1 failed, 0 skipped" "a killed suite: the next one runs"
house
stub programs eater 'cat > /dev/null; echo "3 passed, 0 failed, 0 skipped"'
stub programs later 'echo "3 passed, 0 failed, 0 skipped"'
says 0 "3 passed, 0 failed, 0 skipped" "a suite that reads all its input"

house
stub programs absent 'echo "SKIP: no such thing here"; echo "0 passed, 0 failed, 4 skipped"'
says 0 "1 passed, 0 failed, 1 skipped" "all skipped is not passed"
says 1 "1 passed, 1 failed, 0 skipped" "and fails in CI" MPT_CI=1
house
stub programs partly 'echo "SKIP: one of them"; echo "5 passed, 0 failed, 1 skipped"'
says 0 "2 passed, 0 failed, 0 skipped" "one of six skipped"
says 1 "1 passed, 1 failed, 0 skipped" "and fails in CI, though it exits 0" CI=true

# A row that is missing, has no script, is there twice, or is alone in its lane.
house
echo 'echo "3 passed, 0 failed, 0 skipped"' > "$out/stub/tests/run_forgotten.sh"
says 1 "1 passed, 1 failed, 0 skipped" "a script without a row"
house
touch "$out/stub/tests/test_new.c"
says 1 "1 passed, 1 failed, 0 skipped" "a C test without a row"
echo 'alone new sh tests/run_good.sh $out tests/test_ne*.c' >> "$out/stub/tests/suites"
says 0 "2 passed, 0 failed, 0 skipped" "and with one"
house
echo 'programs gone sh tests/run_gone.sh' >> "$out/stub/tests/suites"
says 1 "1 passed, 1 failed, 0 skipped" "a row without a script"
house
stub elsewhere lost 'echo "3 passed, 0 failed, 0 skipped"'
says 0 "2 passed, 0 failed, 0 skipped" "a lane of its own"
house
stub programs twin 'echo "3 passed, 0 failed, 0 skipped"'
echo 'programs twin sh tests/run_good.sh' >> "$out/stub/tests/suites"
says 1 "3 passed, 2 failed, 0 skipped" "two suites of one name"
house
echo '# not here: check.sh lib.sh run_good.sh' > "$out/stub/tests/suites"
says 1 "0 passed, 1 failed, 0 skipped" "no suite at all"

# Test programs that run no test or exit early, and their results in a script.
program() { # program NAME BODY OF MAIN
    { echo "#include \"$PWD/tests/test.h\""
      echo 'TEST(one) { CHECK(1); }'
      echo "int main(int argc, char **argv) { $2 }"; } > "$out/$1.c"
    check "$1 builds" "${CC:-cc}" "$out/$1.c" -o "$out/$1"
}
program test_none 'mt_begin(argc, argv); (void)mt_test_one; return mt_end();'
program test_early '(void)argc; (void)argv; (void)mt_test_one; return 0;'
program test_good 'mt_begin(argc, argv); RUN(one); return mt_end();'
# ends NAME CODE RESULT -- the exit status of a program and what result_of must say
ends() {
    "$out/$1" > "$out/log" 2>&1
    code=$?
    got=$(result_of $code "$out/log")
    if [ "$code $got" = "$2 $3" ]; then pass "$1"; else fail "$1: exit $code, $got"; fi
}
ends test_none 1 failed
ends test_early 0 failed
ends test_good 0 passed
if "$out/test_good" no-such-test > "$out/log" 2>&1; then fail "no test of that name"
else pass "no test of that name"; fi
summary
