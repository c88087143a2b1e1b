#!/bin/sh
# run_inspect.sh BUILD_DIR -- tests examples/inspect: it builds without a warning, counts the same as
# tests/inspect_files.c, prints the right words, converts, and refuses broken and hostile files with a reason.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=${1:-build}/inspect-check
rm -rf "$out"
mkdir -p "$out/good" "$out/bad" "$out/model" "$out/crossing" "$out/new"
if ! have pkg-config || ! pkg-config --exists libcjson; then
    skip "cJSON is not installed: libcjson-dev and pkg-config"
    summary
    exit
fi
flags=$(inspect_flags)
pkg-config --exists minizip || skip "minizip is not installed, .npz and .pt are not read: libminizip-dev"
strict='-std=c99 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wdouble-promotion -Wcast-qual -Werror'
sources='examples/inspect.c examples/inspect/*.c'
openmp='-fopenmp -DMPT_USE_OPENMP'
files=$out/files
inspect=$out/inspect

# shellcheck disable=SC2086
{
check "the generator builds" ${CC:-cc} -O2 $strict -I. tests/inspect_files.c -o "$files" -lm
for cc in gcc clang; do have $cc || skip "inspect with $cc: no such compiler"; done
! have gcc || check "inspect builds with gcc and sanitizers" gcc -O1 -g1 $strict \
    -fsanitize=address,undefined -fno-sanitize-recover=all -I. $sources -o "$out/inspect-gcc" $openmp $flags
! have clang || check "inspect compiles with clang" clang $strict -fsyntax-only -I. $sources \
    $(echo "$flags" | tr ' ' '\n' | grep -v '^-l')
}
lines=$(sed -n "s|^//  \\(flags=.*\\)|\\1; |p
                s|^//  \\(cc -O2 .*\\) -o inspect |\\1 -o $inspect |p" examples/inspect.c)
pkg-config --exists minizip || lines="${CC:-cc} -O2 -I. $sources -o $inspect $openmp $flags"
check "inspect builds by the lines in its comment" sh -c "$lines"
for kind in good bad model crossing; do
    check "the generator makes $kind files" "$files" $kind "$out/$kind"
done

# says NAME CODE TEXT COMMAND... -- passes if COMMAND exits with CODE and prints TEXT
says() {
    name=$1 code=$2 text=$3
    shift 3
    "$@" > "$out/said" 2> "$out/said.err"
    got=$?
    if [ $got = "$code" ] && cat "$out/said" "$out/said.err" | grep -qF -e "$text"; then pass "$name"
    else
        fail "$name: exit $got, wanted $code and '$text' in:"
        cat "$out/said" "$out/said.err" | head -20
    fi
}

# ---- parts of a large tensor, read by several threads: they find what one thread finds ----

check "a large file" "$files" large "$out/large.safetensors" 33554432
head -c 16777212 "$out/large.safetensors" > "$out/large.f32"   # bare numbers, which make uneven parts
mkdir -p "$out/first" "$out/second"                            # the two ends of large.f32, for --diff
head -c 12582912 "$out/large.f32" > "$out/first/x.f32"
tail -c 12582912 "$out/large.f32" > "$out/second/x.f32"
check "a large file with a scale" "$inspect" "$out/large.safetensors" --convert "$out/scaled.safetensors" \
    --to f16 --scale 2^5
for file in "$out/large.safetensors" "--raw f32 $out/large.f32" \
            "--diff $out/large.safetensors $out/scaled.safetensors" \
            "--raw f32 --diff $out/first/x.f32 $out/second/x.f32"; do
    # shellcheck disable=SC2086
    "$inspect" --json --jobs 1 $file > "$out/one" 2> "$out/one.err"
    for how in "$inspect --jobs 2" "$inspect --jobs 7" "$inspect" "$inspect --no-mmap" \
               "$out/inspect-gcc --jobs 3"; do
        [ -x "${how%% *}" ] || continue
        # shellcheck disable=SC2086
        $how --json $file > "$out/many" 2> "$out/many.err"
        check "$how $file finds what one thread does" cmp "$out/one" "$out/many"
    done
    check "$file has numbers at all" grep -q '"values":[348][0-9]*' "$out/one"
done
check "threads divide by the scale" "$inspect" --jobs 3 --fail-if 'change>0.001' --diff \
    "$out/large.safetensors" "$out/scaled.safetensors"
# Threads from tests/pool.c instead of OpenMP, because ThreadSanitizer does not see into gcc's OpenMP library.
tsan="$out/inspect-tsan"
# shellcheck disable=SC2086
check "inspect builds with ThreadSanitizer" \
    gcc -O1 -g1 -fsanitize=thread $strict -include tests/pool.h -I. $sources tests/pool.c -o "$tsan" $flags
# Newer kernels place memory too randomly for ThreadSanitizer; setarch -R turns that off, where it is allowed.
works=
for runner in env "setarch $(uname -m) -R"; do
    [ -n "$works" ] || ! $runner "$tsan" --help > /dev/null 2>&1 || works=$runner
done
# shellcheck disable=SC2086
if [ -n "$works" ]; then
    for file in "$out/large.safetensors" "--raw f32 --diff $out/first/x.f32 $out/second/x.f32"; do
        check "ThreadSanitizer is silent" \
            env TSAN_OPTIONS=atexit_sleep_ms=0 POOL_THREADS=3 $works "$tsan" --jobs 3 $file
    done
else skip "ThreadSanitizer does not work here"; fi

# ---- the figures: of files mapped, of files read, and under the sanitizers ----

# figures FILE... -- print lines as in $out/good/figures (put_figures of tests/inspect_files.c) from the JSON
figures() {
    for file in "$@"; do
        awk -v file="$(basename "$file")" '/"file":/ { next } /"name":/ && /"formats":/ {
            match($0, /"name":"[^"]*"/)
            line = file " " substr($0, RSTART + 8, RLENGTH - 9)
            match($0, /"values":[0-9]*/)
            line = line " " substr($0, RSTART + 9, RLENGTH - 9)
            n = split($0, word, /[^A-Za-z0-9_]+/)
            for (i = 1; i < n; i++)
                if (word[i + 1] == "flushed")
                    line = line " " word[i] " " word[i + 2] " " word[i + 4] " " word[i + 6] " " word[i + 8]
            print line
        }' "$out/json/$(basename "$file")"
    done
}
for how in "$inspect" "$inspect --no-mmap" "$out/inspect-gcc --no-mmap"; do
    [ -x "${how%% *}" ] || continue
    rm -rf "$out/json"
    mkdir "$out/json"
    for file in "$out"/good/*.npy "$out"/good/*.safetensors "$out/good/cells.csv"; do
        $how --json "$file" > "$out/json/$(basename "$file")" || fail "$how --json $file"
    done
    figures "$out"/good/*.npy "$out"/good/types.safetensors "$out/good/cells.csv" |
        grep -v -e ' empty ' -e ' scalar ' | sort > "$out/counted"
    sort "$out/good/figures" > "$out/wanted"
    check "the figures by ${how##*/}" diff "$out/wanted" "$out/counted"
done
$inspect --json --raw f32 "$out/good/cells.f32" | sed 's/.*"min_abs"/"min_abs"/' | grep min_abs > "$out/raw"
$inspect --json "$out/good/v2_little_f4_c.npy" | sed 's/.*"min_abs"/"min_abs"/' | grep min_abs > "$out/same"
check "raw floats count as the same floats in .npy" diff "$out/same" "$out/raw"
says "a byte-order mark, a long cell" 0 '"shape":[2,3],"order":"c","values":6,' \
    "$inspect" --json "$out/good/marked.csv"
says "long lines and blocks of a CSV file" 0 '"shape":[2,50000],"order":"c","values":100000' \
    "$inspect" --json "$out/good/long.csv"
# 0.5, 1.5 ... 99999.5, times 2^-8: the last is below e4m3's 448, and four are below its least normal 2^-6.
says "what a scale leaves" 0 '"log2_scale":-8,"scaled_flushed":0,"scaled_subnormal":4' \
     "$inspect" --json "$out/good/long.csv"
says "largest of a CSV file" 0 '"max_abs":99999.5' "$inspect" --json "$out/good/long.csv"

# Words and tensors that cross the ends of blocks and of mapped windows.
for how in "$inspect" "$inspect --no-mmap" "$out/inspect-gcc"; do
    [ -x "${how%% *}" ] || continue
    for k in 0 1 2 3 4 5 6; do
        says "a word across a block, $k, by ${how##*/}" 0 \
            '"values":160000,"zero":0,"nan":0,"inf":0,"min_abs":1.5e-05,"max_abs":1.5e-05' \
            $how --json "$out/crossing/words_$k.csv"
    done
    $how --json "$out/crossing/windows.safetensors" > "$out/windows.json"
    for figures in '"name":"a".*"f16":.*"flushed":0,"subnormal":1310721,"normal":3932160,' \
        '"name":"b".*"f16":.*"flushed":0,"subnormal":2359296,"normal":3932160,' \
        '"name":"b".*"e4m3":.*"flushed":3670016,"subnormal":786432,"normal":1835008,'; do
        check "windows by ${how##*/}: $figures" grep -q "$figures" "$out/windows.json"
    done
done

# ---- verdicts, headings, rules ----

model=$out/model/model.safetensors
says "f16 safe"         0 "f16 safe: 74 dB" "$inspect" "$model"
says "f16 with a scale" 0 "f16 with scale 2^3: 73 dB" "$inspect" "$model"
says "some to 0"        0 "f16 with scale 2^5: 74 dB, 0.3% to 0" "$inspect" "$model"
says "bf16: max"        0 "bf16: 55 dB; f16 overflows at 2.0e10" \
    "$inspect" --headroom 20 --tolerate 5% "$model"
says "both signs"       0 "f16 with scale 2^-39: 69 dB" "$inspect" --headroom 20 "$model"
for sign in '' -; do                # 20% that become 0 are too many of one sign, not of both signs
    printf '1\n1\n1\n1\n1\n1\n1\n1\n1e-15\n%s1e-15\n' "$sign" > "$out/signs$sign.csv"
done
says "one sign"         0 "bf16: 368 dB; f16 makes 20.0% zero" "$inspect" "$out/signs.csv"
says "two signs"        0 "f16 safe: 306 dB, 20.0% to 0" "$inspect" "$out/signs-.csv"
says "metadata"         0 'metadata: format=pt, who=a "test"' "$inspect" "$out/good/types.safetensors"
says "metadata in JSON" 0 '"metadata":[{"format":"pt","who":"a \"test\""}]' \
    "$inspect" --json "$out/good/types.safetensors"
says "bytes by type"    0 "F64                  1       42   336 bytes  84 bytes  84 bytes  42 bytes" \
    "$inspect" "$out/good/types.safetensors"
says "bytes of all"     0 "all                 11      339   860 bytes 522 bytes 522 bytes 353 bytes" \
    "$inspect" "$out/good/types.safetensors"
says "percentiles"      0 " 2^-134   2^-6  2^127 " "$inspect" --wide "$out/good/types.safetensors"
says "bf16: lost"       0 "bf16: 57 dB; f16 makes 77.4% zero" "$inspect" "$model"
printf 'a,b\n1,5\n2,5\n' > "$out/pairs.csv"
says "lines and columns" 0 "csv, 2 rows, 2 columns, 12 bytes" "$inspect" "$out/pairs.csv"
says "all zero"         0 "all zero" "$inspect" "$out/good/zero.csv"
says "NaN and Inf"      0 "bad: 1 NaN at 1; 1 Inf at 2" "$inspect" "$out/good/nan.csv"
says "skipped"          0 " skipped" "$inspect" "$out/good/types.safetensors"
says "empty"            0 "empty" "$inspect" "$out/good/types.safetensors"
says "already"          0 "bf16 already" "$inspect" --format bf16,f16 "$out/good/types.safetensors"
says "keep"             0 "keep f32: f16 overflows at 3.4e38" \
    "$inspect" --tolerate 1% "$out/good/v2_big_f4_c.npy"
says "a tolerance"      0 "f16 with scale 2^8: 74 dB, 77.4% to 0" \
    "$inspect" --tolerate 80% --format f16 "$model"
says "summary"          0 "of their own         20         0        43        24" "$inspect" "$model"
says "no NaN, no rule"  0 "1 tensor, " "$inspect" --fail-if 'nan>0' "$out/good/v2_big_f4_c.npy"
printf '\0\0\200\077\0\0\0\100' > "$out/first/n.f32"                 # 1, 2
printf '\0\0\300\177\0\0\0\100' > "$out/second/n.f32"                # NaN, 2
says "a new NaN is not kept" 0 '"f16":{"keeps":0,' "$inspect" --json --raw f32 --diff "$out/first/n.f32" \
    "$out/second/n.f32"
cp "$out/second/n.f32" "$out/other.f32"
says "names of single tensors do not matter" 1 "': changed>=50%" "$inspect" --fail-if 'changed>=50%' \
    --raw f32 --diff "$out/first/n.f32" "$out/other.f32"
says "a rule that holds" 1 "': f16.overflow>0" "$inspect" --fail-if 'f16.overflow>0' "$model"
says "a rule in dB"     1 "'model.logit_outliers': f16.db<60" "$inspect" --fail-if 'f16.db<60' "$model"
says "a rule in shares" 1 "flushed>=5%" "$inspect" --fail-if 'f16.flushed>=5%' "$model"
says "a filter"         0 ", 12 tensors, " "$inspect" --filter '*_attn.?_proj.weight' "$model"
says "first NaN"        0 '"first_nan":1,"first_inf":2,' "$inspect" --json "$out/good/nan.csv"
says "wide"             0 " 64x64 " "$inspect" --wide "$model"
says "top by flushed"   0 "the 3 tensors that come first by 'flushed' in f16" \
    "$inspect" --top 3 by flushed "$model"
"$inspect" --top 3 --by flushed "$model" > "$out/top"
if [ "$(grep -c '^model.* F32 ' "$out/top")" = 3 ] &&
   sed -n 5p "$out/top" | grep -q 'f16 makes 77.4% zero'; then
    pass "the top three"
else
    fail "the top three:"
    cat "$out/top"
fi
"$inspect" "$model" > "$out/table"
same=$(sed -n '4,63s/ .*//p' "$out/table" | sort | uniq -d | wc -l)
if [ "$same" = 0 ]; then pass "no two names look alike"; else fail "$same names look like others"; fi
"$inspect" --filter '*norm*' --format f16 "$model" > "$out/table"
wide=$(awk 'length > 110' "$out/table" | wc -l)
if [ "$wide" = 0 ]; then pass "110 columns"; else fail "$wide lines above 110 columns"; fi
says "help" 0 "Exit code: 0" "$inspect" --help
check "progress when asked for" sh -c "'$inspect' --progress '$model' 2>&1 >/dev/null"

# ---- archives and containers ----

python=$(python_with json)
if [ -n "$python" ]; then
    "$python" tests/inspect_containers.py "$out/inspect-gcc" "$out/containers" > "$out/containers.log" 2>&1 ||
        fail "inspect_containers.py: $(tail -n 3 "$out/containers.log")"
    while read -r result words; do
        case $result in
        pass) pass "$words" ;;
        FAIL) fail "$words" ;;
        absent) echo "not installed, its models are not read: $words" ;;
        esac
    done < "$out/containers.log"
else
    skip "archives: Python is not installed"
fi

# ---- JSON ----

"$inspect" --json "$model" "$out/good/types.safetensors" "$out/bad/escape.safetensors" "$out/good/nan.csv" \
    > "$out/all.json" 2> /dev/null
[ $? = 1 ] && pass "a bad file among good ones: exit code 1" || fail "a bad file among good ones"
moving="$(printf '\302\233')\|$(printf '\342\200\256')"
check "JSON holds no character that moves a cursor" sh -c "! grep -q '$moving' '$out/all.json'"
check "JSON opens and closes" sh -c \
    "head -c 10 '$out/all.json' | grep -q '{\"files\":' && tail -c 4 '$out/all.json' | grep -q ']}'"
if have python3; then check "JSON parses" python3 -m json.tool "$out/all.json" /dev/null; fi

# ---- converting ----

# converted NAME IN OPTIONS... -- convert IN to $out/new/c.safetensors, and print that as text to $out/new/c
converted() {
    name=$1 in=$2
    shift 2
    rm -f "$out"/new/*
    if "$inspect" "$in" --convert "$out/new/c.safetensors" "$@" > "$out/new/said" 2>&1; then
        "$files" values "$out/new/c.safetensors" > "$out/new/c"
    else
        fail "$name: $(cat "$out/new/said")"
    fi
    [ "$(find "$out/new" -name 'c.safetensors*' | wc -l)" = 1 ] || fail "$name: leaves a temporary file"
}
first=
for file in "$out"/good/v2_*.npy "$out/good/cells.f32"; do
    raw=
    [ "${file##*.}" = f32 ] && raw='--raw f32'
    # shellcheck disable=SC2086
    converted "convert $file" "$file" --to bf16 --scale auto --saturate $raw
    sed -n 's/^[a-z0-9_]* BF16 //p' "$out/new/c" > "$out/new.values"
    [ -n "$first" ] || { cp "$out/new.values" "$out/first.values"; first=$file; }
    check "$file converts as $first does" diff "$out/first.values" "$out/new.values"
done
converted "to e5m2" "$out/good/types.safetensors" --to e5m2 --scale 2^0 --saturate
check "e5m2: values and clamping" grep -q \
    '^t.F64 F8_E5M2 0 -0 1 -1 0.09375 3 57344 57344 57344 -57344 57344 448 448 448 57344' "$out/new/c"
check "integers are copied" grep -q '^steps I64 7 9$' "$out/new/c"
check "metadata is kept" grep -q '"format":"pt","who":"a \\"test' "$out/new/c"
converted "with a scale" "$out/good/types.safetensors" --to e5m2 --scale 2^-3 --saturate
check "stored = value * scale" grep -q '^t.F64 F8_E5M2 0 -0 0.125 -0.125 ' "$out/new/c"
converted "to f16" "$model" --to f16 --scale auto
check "f16: a scale in the metadata" \
    grep -q '"mpt.scale.model.layers.0.mlp.down_proj.weight":"8"' "$out/new/c"
check "f16: nothing for those without" sh -c "! grep -q 'mpt.scale.model.norm.weight' '$out/new/c'"
check "says what was lost" grep -q 'became zero' "$out/new/said"
check "says what does not fit" grep -q '^6 tensors do not fit f16: --keep would' "$out/new/said"
check "says that loaders must divide" grep -q '^26 tensors are stored scaled: after loading' "$out/new/said"
cp "$out/new/c.safetensors" "$out/once.safetensors"
converted "to f16, the rest kept" "$model" --to f16 --keep
check "a plain cast unless asked" sh -c "! grep -q 'mpt.scale' '$out/new/c'"
check "keeps what does not fit" grep -q '^model.logit_outliers F32 ' "$out/new/c"
check "converts what fits" grep -q '^model.layers.0.mlp.gate_proj.weight F16 ' "$out/new/c"
converted "a tensor with NaN, kept" "$out/good/types.safetensors" --to e4m3 --keep
check "keeps NaN" grep -q '^t.F16 F16 ' "$out/new/c"
says "the converted file is f16 already" 0 "f16 already" "$inspect" "$out/once.safetensors"
converted "again, to bf16" "$out/once.safetensors" --to e5m2 --scale 2^-3
check "a scale of 1 is none" sh -c "! grep -q 'scale.model.layers.0.mlp.down_proj.weight\"' '$out/new/c'"
cp "$out/new/c.safetensors" "$out/twice.safetensors"
converted "a third time" "$out/twice.safetensors" --to e4m3 --scale 2^-3 --saturate
check "scales multiply" grep -q '"mpt.scale.model.norm.weight":"0.015625"' "$out/new/c"
check "the first one, too" grep -q '"mpt.scale.model.layers.0.mlp.down_proj.weight":"0.125"' "$out/new/c"
says "after three conversions it can be read" 0 "60 tensors" "$inspect" "$out/new/c.safetensors"
# a file with metadata and without tensors
printf '"\000\000\000\000\000\000\000{"__metadata__":{"x":"1","x2":""}}' > "$out/empty.safetensors"
says "no tensors: converts" 0 "converted 0 values" "$inspect" "$out/empty.safetensors" \
    --convert "$out/new/c.safetensors" --to f16
says "no tensors: can be read" 0 "verdict" "$inspect" "$out/new/c.safetensors"

# refused NAME CODE TEXT COMMAND... -- as says; also, COMMAND must leave no file in $out/new
refused() {
    rm -f "$out"/new/*
    says "$@"
    if [ -n "$(ls "$out/new")" ]; then fail "$1: left $(ls "$out/new")"; fi
}
refused "overflow without --saturate" 1 "tensor 't.F64': overflows f16 with scale 2^0" "$inspect" \
    "$out/good/types.safetensors" --convert "$out/new/c.safetensors" --to f16 --scale 1
refused "Inf in a format that has none" 1 "holds Inf, but e4m3" "$inspect" "$out/good/nan.csv" \
    --convert "$out/new/c.safetensors" --to e4m3
refused "a folder that is not there" 1 "cannot be written" "$inspect" "$model" \
    --convert "$out/new/no/c.safetensors" --to bf16
refused "a disk that fills up" 1 "File too large" sh -c "trap '' XFSZ; ulimit -f 64
    exec '$inspect' '$model' --convert '$out/new/c.safetensors' --to bf16"
mkfifo "$out/fifo" 2> /dev/null
for device in /dev/null "$out/fifo"; do
    says "never onto $device" 1 "exists and is not a regular file" \
        "$inspect" "$model" --convert "$device" --to f16
    check "$device is what it was" test ! -f "$device"
done
chmod 600 "$model"
converted "a private file" "$model" --to bf16
check "no one may read more than before" sh -c "ls -l '$out/new/c.safetensors' | grep -q '^-rw-------'"
chmod 644 "$model"
env --default-signal=INT true 2> /dev/null || skip "signals: env has no --default-signal here"
for signal in INT TERM HUP; do
    env --default-signal=INT true 2> /dev/null || continue
    rm -f "$out"/new/*
    env --default-signal=$signal "$inspect" --jobs 1 "$out/large.safetensors" --convert \
        "$out/new/c.safetensors" --to f16 > /dev/null 2>&1 &
    pid=$!
    tries=0
    while [ -z "$(ls "$out/new")" ] && [ $tries -lt 400 ]; do sleep 0.01; tries=$((tries + 1)); done
    kill -$signal $pid
    wait $pid
    check "SIG$signal leaves nothing behind" sh -c "test $? -gt 128 && test -z \"\$(ls '$out/new')\""
done
cp "$model" "$out/copy.safetensors"
says "never over the input" 1 "is the input" "$inspect" "$out/copy.safetensors" --convert \
    "$out/../inspect-check/copy.safetensors" --to f16
check "the input is untouched" cmp "$model" "$out/copy.safetensors"
if [ -w /dev/full ]; then
    "$inspect" "$model" > /dev/full 2> "$out/said.err"
    if [ $? = 1 ] && grep -q "cannot be written" "$out/said.err"; then pass "a full disk for the report"
    else fail "a full disk for the report"; fi
fi

# ---- the command line ----

says "no file"          2 "no file given"               "$inspect"
says "no such option"   2 "no such option: --frmat"     "$inspect" --frmat f16 x
says "no value"         2 "--format needs a value"      "$inspect" x --format
says "no threads"       2 "bad value for --jobs"        "$inspect" --jobs 0 x
says "bad format"       2 "bad value for --format"      "$inspect" --format f16,f17 x
says "format twice"     2 "bad value for --format"      "$inspect" --format f16,f16 x
says "bad scale"        2 "bad value for --scale"       "$inspect" --scale 3 --convert y --to f16 x
says "bad key"          2 "cannot sort by 'colour'"     "$inspect" --top 3 by colour x
says "bad tolerance"    2 "bad value for --tolerate"    "$inspect" --tolerate 101% x
says "two to convert"   2 "--convert takes one file"    "$inspect" x y --convert z --to f16
says "convert to what"  2 "--convert needs --to FORMAT" "$inspect" x --convert z
says "convert and judge" 2 "--convert cannot be used with" "$inspect" x --convert z --to f16 --fail-if 'nan>0'
says "no such file"     1 "No such file"                "$inspect" "$out/nothing.npy"
says "a FIFO"           1 "is not a regular file"       "$inspect" "$out/fifo"
says "a FIFO, read"     1 "is not a regular file"       "$inspect" --no-mmap "$out/fifo"
says "a device"         1 "is not a regular file"       "$inspect" --no-mmap --raw f32 /dev/zero
says "standard input"   0 "60 tensors"                  sh -c "cat '$model' | '$inspect' -"
says "from a file"      0 "60 tensors"                  sh -c "'$inspect' --no-mmap /dev/stdin < '$model'"
says "a bad rule"       2 "bad value for --fail-if"     "$inspect" --fail-if 'f16.colour>0' x
says "a rule too few"   2 "bad value for --fail-if"     "$inspect" --fail-if 'f16.db' x
says "a rule on no column" 2 "that is not in --format"  "$inspect" --format bf16 --fail-if 'f16.db<60' x
mkdir -p "$out/nothing"
says "a folder"         1 "is a folder without any file"  "$inspect" "$out/nothing"

# ---- bad files: a message with the file and the reason, exit code 1, no file written ----

tab=$(printf '\t')
for how in "$out/inspect-gcc" "$inspect --no-mmap"; do
    [ -x "${how%% *}" ] || continue
    bad=0
    while IFS="$tab" read -r file message; do
        $how "$out/bad/$file" > "$out/said" 2> "$out/said.err"
        code=$?
        if [ $code = 1 ] && [ ! -s "$out/said" ] && grep -qF -e "$message" "$out/said.err" &&
           grep -qF "$file" "$out/said.err" && ! grep -q "$(printf '\033')" "$out/said.err"; then
            pass "$file"
        else
            fail "$file by ${how##*/}: exit $code, '$(head -3 "$out/said.err")', wanted '$message'"
        fi
        rm -f "$out"/new/*
        $how "$out/bad/$file" --convert "$out/new/c.safetensors" --to f16 > "$out/said" 2> "$out/said.err"
        if [ $? = 1 ] && [ -z "$(ls "$out/new")" ]; then pass "$file is not converted"
        else fail "$file is converted: $(ls "$out/new")"; fi
        bad=$((bad + 1))
    done < "$out/bad/bad"
    [ $bad -gt 60 ] && pass "$bad bad files" || fail "only $bad bad files"
done

# A file that is cut short is refused, wherever it is cut.
size=$(wc -c < "$out/good/types.safetensors")
cut=0
while [ $cut -lt "$size" ]; do
    head -c $cut "$out/good/types.safetensors" > "$out/cut.safetensors"
    "$inspect" "$out/cut.safetensors" > /dev/null 2> "$out/said.err"
    [ $? = 1 ] || fail "cut after $cut bytes: $(cat "$out/said.err")"
    cut=$((cut + 37))
done
pass "a file cut at each 37th byte"

# ---- pictures ----

mkdir -p "$out/plots"
check "plots" "$inspect" --plot "$out/plots" "$model"
for name in model ranges scale; do
    check "$name.csv and its script" test -s "$out/plots/$name.csv" -a -s "$out/plots/$name.gp"
    if have gnuplot; then check "$name.png" sh -c "head -c 4 '$out/plots/$name.png' | grep -q PNG"
    else skip "$name.png: gnuplot is not installed"; fi
done
check "shares of a row add up to 1" awk -F, 'NR > 1 && NF { s[$1] += $4 } END {
    for (i in s) if (s[i] < 0.99999 || s[i] > 1.00001) exit 1 }' "$out/plots/ranges.csv"
check "two overflows are in scale.csv" grep -q '^f16,-18,[0-9]*,2$' "$out/plots/scale.csv"
if have gnuplot; then
    "$inspect" --plot "$out/plots" "$model" "$model" > "$out/said" 2>&1
    check "120 tensors, two pages" test -s "$out/plots/ranges-1.png" -a -s "$out/plots/ranges-2.png"
    check "gnuplot has nothing to say" test ! -s "$out/plots/gnuplot.log"
fi
check "no name reaches a script" sh -c "! grep -q q_proj '$out/plots/ranges.gp'"
summary
