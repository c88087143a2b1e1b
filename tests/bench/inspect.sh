#!/bin/sh
# inspect.sh [BUILD_DIR] -- examples/inspect on a file of BYTES (4 GiB) in the page cache, beside `cat` to
# /dev/null and a loop that maps the file and adds it up; and the memory it takes, beside that for a file
# of a sixteenth. The file goes to TMPDIR (/tmp) and is removed. ROUNDS (3) of each, the best counts.
cd "$(dirname "$0")/../.." || exit 1
out=${1:-build}/bench
bytes=${BYTES:-4294967296}
rounds=${ROUNDS:-3}
mkdir -p "$out"
dir=$(mktemp -d "${TMPDIR:-/tmp}/inspect.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT INT TERM
# shellcheck disable=SC2046
${CC:-cc} -O2 -std=c99 -I. examples/inspect.c examples/inspect/*.c -o "$out/inspect" -lm -pthread \
    $(pkg-config --cflags --libs libcjson) &&
    ${CC:-cc} -O2 -std=c99 -I. tests/inspect_files.c -o "$out/files" -lm &&
    ${CC:-cc} -O2 -std=c99 tests/bench/measure.c -o "$out/measure" || exit 1
"$out/files" large "$dir/large.safetensors" "$bytes" || exit 1
"$out/files" large "$dir/small.safetensors" $((bytes / 16)) || exit 1
cat "$dir/large.safetensors" > /dev/null

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
row "cat" run cat "$dir/large.safetensors"
row "map and add up" sum "$dir/large.safetensors"
row "inspect, 4 formats, mapped" run "$out/inspect" "$dir/large.safetensors"
row "inspect, 4 formats, read" run "$out/inspect" --no-mmap "$dir/large.safetensors"
bytes=$((bytes / 16))
row "inspect, a sixteenth, mapped" run "$out/inspect" "$dir/small.safetensors"
row "inspect, a sixteenth, read" run "$out/inspect" --no-mmap "$dir/small.safetensors"
