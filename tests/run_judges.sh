#!/bin/sh
# run_judges.sh BUILD_DIR [torch | tensorflow] -- compares our results with those of software that shares no
# code with ours: numpy and ml_dtypes; or PyTorch or TensorFlow, whose packages are large (make check-torch
# and check-tensorflow, with results in tests/bench/results).
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=${1:-build}/judges
mkdir -p "$out" || exit 1
judge=judge_${2:-numpy}
python=$(python_with "numpy,ml_dtypes${2:+,$2}")
if [ -z "$python" ]; then
    skip "no Python with numpy, ml_dtypes${2:+ and $2}: pip install them, and set PYTHON"
    summary
    exit
fi
check "judge.c builds" "${CC:-cc}" -std=c99 -O2 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror \
    -shared -fPIC -I. tests/judge.c -o "$out/judge.so" -lm
"$python" "tests/$judge.py" "$out/judge.so" > "$out/$judge.log" 2>&1
code=$?
cat "$out/$judge.log"
case $(result_of $code "$out/$judge.log") in
passed) pass "$judge" ;;
*) fail "$judge: exit $code" ;;
esac
summary
