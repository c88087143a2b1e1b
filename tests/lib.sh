# lib.sh -- functions shared by the test scripts; source it: . tests/lib.sh
# A script calls pass, fail or skip once per check and ends with summary. With MPT_CI=1 (or CI=true) a skip
# makes the script fail, because in CI every check must run.

passed=0 failed=0 skipped=0
[ "${CI:-}" = true ] && MPT_CI=1

pass() { passed=$((passed + 1)); [ -z "${VERBOSE:-}" ] || echo "ok    $*"; }
fail() { failed=$((failed + 1)); echo "FAIL  $*"; }
skip() { skipped=$((skipped + 1)); echo "SKIP: $*"; }
have() { command -v "$1" >/dev/null 2>&1; }
# first_of COMMAND... -- prints the first of these commands that is there
first_of() { for tool; do have "$tool" && echo "$tool" && return; done; }

# The warnings that the headers and the tests must not cause.
all_warnings='-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wundef -Wdouble-promotion
              -Wcast-qual -Werror'

# The compiler flags of examples/inspect: for cJSON, and for minizip if it is installed.
inspect_flags() {
    echo "-lm $(pkg-config --cflags --libs libcjson)"
    ! pkg-config --exists minizip || echo "-DINSPECT_ZIP $(pkg-config --cflags --libs minizip)"
}

# check NAME COMMAND... -- passes if the command's exit status is 0; otherwise shows what it printed
check() {
    check_name=$1
    shift
    if check_out=$("$@" 2>&1); then
        pass "$check_name"
    else
        fail "$check_name"
        echo "$check_out" | head -20
    fi
}

# nothing NAME COMMAND... -- passes if the command prints nothing
nothing() {
    nothing_name=$1
    shift
    found=$("$@" 2>&1)
    if [ -z "$found" ]; then pass "$nothing_name"; else fail "$nothing_name"; echo "$found" | head -10; fi
}

# probe COMPILER FLAGS [RUNNER...] -- does a trivial C++ program build with these flags, and run here?
probe() {
    probe_compiler=$1 probe_flags=$2
    shift 2
    echo 'int main() { return 0; }' > "$out/probe.cc"
    # shellcheck disable=SC2086
    $probe_compiler $probe_flags "$out/probe.cc" -o "$out/probe" 2> /dev/null &&
        "$@" "$out/probe" > /dev/null 2>&1
}

# each FUNCTION -- calls the function for each line of the input, with the parts between | as its arguments;
# MPT_JOBS (2) calls at a time
each() {
    each_jobs=${MPT_JOBS:-2} each_k=0 each_lines=$(cat)
    while [ $each_k -lt "$each_jobs" ]; do
        printf '%s\n' "$each_lines" | awk -v k=$each_k -v n="$each_jobs" 'NR % n == k' |
            while IFS='|' read -r a b c d e; do "$1" "$a" "$b" "$c" "$d" "$e"; done &
        each_k=$((each_k + 1))
    done
    wait
}

# tally COUNT FILE -- the sums of COUNT jobs, which write ok, FAIL or SKIP; one that wrote nothing has failed
tally() {
    passed=$(grep -c '^ok' "$2")
    skipped=$(grep -c '^SKIP' "$2")
    failed=$(($1 - passed - skipped))
}

# processor_time FILE -- prints the seconds of the last line, which `times` wrote for the children of a shell
processor_time() {
    tail -n 1 "$1" |
        awk '{ split($1, u, "[ms]"); split($2, s, "[ms]"); print 60 * (u[1] + s[1]) + u[2] + s[2] }'
}

# without_triple FILE -- prints a CUDA file with launches that tests/emu/triple.h can read instead of <<<>>>
without_triple() { sed -E 's/([a-z_0-9]+)<<<(.*)>>>\(/EMU_LAUNCH(\1, \2)(/' "$1"; }

# result_of CODE LOG -- prints passed, skipped or failed for a program that ended with exit status CODE and
# wrote LOG, whose last line must be its count of checks
result_of() {
    tail -n 1 "$2" | awk -v code="$1" -v ci="${MPT_CI:-0}" '
        { sub(/\r$/, "") }
        /^[0-9]+ passed, 0 failed, [0-9]+ skipped$/ && code == 0 && !(ci == 1 && $5 > 0) {
            result = $1 > 0 ? "passed" : $5 > 0 ? "skipped" : "" }
        END { print result == "" ? "failed" : result }'
}

summary() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ] && { [ "$skipped" = 0 ] || [ "${MPT_CI:-0}" != 1 ]; }
}

# python_with MODULE,... -- prints a Python that has these modules: $PYTHON, that of build/venv, or python3
python_with() {
    for python in ${PYTHON:+"$PYTHON"} build/venv/bin/python python3; do
        "$python" -c "import $1" > /dev/null 2>&1 && echo "$python" && return
    done
}
