# lib.sh -- functions shared by the test scripts; source it: . tests/lib.sh
# A script calls pass, fail or skip once per check and ends with summary. With MPT_CI=1 (or CI=true) a skip
# makes the script fail, because in CI every check must run.

passed=0 failed=0 skipped=0
[ "${CI:-}" = true ] && MPT_CI=1

pass() { passed=$((passed + 1)); [ -z "${VERBOSE:-}" ] || echo "ok    $*"; }
fail() { failed=$((failed + 1)); echo "FAIL  $*"; }
skip() { skipped=$((skipped + 1)); echo "SKIP: $*"; }
have() { command -v "$1" >/dev/null 2>&1; }

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
