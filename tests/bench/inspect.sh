#!/bin/sh
# inspect.sh [BUILD_DIR] -- examples/inspect on a file of BYTES (4 GiB) in the page cache, with one thread
# and with two, beside `cat` to /dev/null, a loop that maps the file and adds it up and, where a Python has
# torch ($PYTHON, that of build/venv, python3), a script for the same figures; on three files of a third; and
# the memory it takes, beside that for a file of a sixteenth. The files go to TMPDIR (/tmp) and are removed.
# ROUNDS (3) of each, the best counts.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh
out=${1:-build}/bench
bytes=${BYTES:-4294967296}
rounds=${ROUNDS:-3}
mkdir -p "$out"
dir=$(mktemp -d "${TMPDIR:-/tmp}/inspect.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT INT TERM
# shellcheck disable=SC2046
${CC:-cc} -O2 -std=c99 -fopenmp -DMPT_USE_OPENMP -I. examples/inspect.c examples/inspect/*.c \
    -o "$out/inspect" $(inspect_flags) &&
    ${CC:-cc} -O2 -std=c99 -I. tests/inspect_files.c -o "$out/files" -lm &&
    ${CC:-cc} -O2 -std=c99 tests/bench/measure.c -o "$out/measure" || exit 1
large=$dir/large.safetensors
"$out/files" large "$large" "$bytes" || exit 1
"$out/files" large "$dir/small.safetensors" $((bytes / 16)) || exit 1
mkdir "$dir/shards"
for k in 1 2 3; do "$out/files" large "$dir/shards/$k.safetensors" $((bytes / 24 * 8)) || exit 1; done
cat "$large" "$dir"/shards/* > /dev/null

# row NAME COMMAND... -- the best of the rounds
row() {
    name=$1
    shift
    i=0
    while [ $i -lt "$rounds" ]; do
        "$out/measure" "$@"
        i=$((i + 1))
    done | sort -n | awk -v name="$name" -v bytes="$bytes" 'NR == 1 {
        printf "%-34s %7.2f s %7.2f s %8.2f GB/s %9.1f MiB\n", name, $1, $2, bytes / $1 * 1e-9, $3 / 1024 }'
}
printf '%-34s %9s %9s %13s %13s\n' "$bytes bytes" wall processor rate memory
row "cat" run cat "$large"
half=$((bytes / 2))
row "two, of a half each" run sh -c "head -c $half '$large' & tail -c $half '$large'; wait"
row "map and add up" sum "$large"
row "inspect, 4 formats, one thread" run "$out/inspect" --jobs 1 "$large"
row "inspect, 4 formats, two threads" run "$out/inspect" --jobs 2 "$large"
row "inspect, read, not mapped" run "$out/inspect" --jobs 1 --no-mmap "$large"
row "inspect, three files, two threads" run "$out/inspect" --jobs 2 "$dir/shards"
python=$(python_with torch,safetensors)
if [ -n "$python" ]; then
    row "torch, 4 formats, one thread" run "$python" tests/bench/inspect_torch.py "$large" 1
    row "torch, 4 formats, two threads" run "$python" tests/bench/inspect_torch.py "$large" 2
fi
bytes=$((bytes / 16))
row "inspect, a sixteenth, one thread" run "$out/inspect" --jobs 1 "$dir/small.safetensors"
row "inspect, a sixteenth, two threads" run "$out/inspect" --jobs 2 "$dir/small.safetensors"
row "inspect, a sixteenth, read" run "$out/inspect" --jobs 1 --no-mmap "$dir/small.safetensors"
