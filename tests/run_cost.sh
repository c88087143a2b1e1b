#!/bin/sh
# run_cost.sh BUILD_DIR [--table [COMPILER]] -- checks what each way to include the headers costs: processor
# time to compile at -O2, relative to stb_image.h's implementation, which is compiled in turn with it, and
# bytes of code; and the number of public functions and of lines of the headers. --table prints the ways as a
# Markdown table, from the last measurement if nothing has changed since; with COMPILER, such as
# "gcc 12, x86_64", only if that is this machine's.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=${1:-build}/cost
mkdir -p "$out" || exit 1
cc=${CC:-cc}
have gcc && cc=gcc

lines() { printf '%s\n' "$@"; }

# One way per line: name | limit of the time, relative to stb_image | limit of the bytes | its text in the
# README; 0: no limit. The goal for all of mpt.h is 2.5. Processors differ by a third in this ratio; it was
# 2.3 to 2.9 at the last measurement (an EPYC of 2022). The limit is one that all of them keep.
ways()
{
    cat <<'END'
scalar|0|0|numbers one at a time, no implementation
first|0.4|24000|`MPT_STATIC`: the program above
step|0.7|0|`MPT_STATIC`: a loss scaler and AdamW
convert|0.6|50000|`MPT_STATIC`: one call of `mpt_convert_n`, any format and option
half|1.4|130000|`MPT_IMPLEMENTATION`: all of `mpt_half.h`
mpt|3.2|310000|`MPT_IMPLEMENTATION`: all of `mpt.h` and `mpt_half.h`
END
    for only in $(grep -ohE 'MPT_ONLY_[A-Z0-9_]+' mpt_half.h mpt.h | sort -u); do
        echo "$only|0|0|the same with \`$only\`"
    done
    echo 'stb|0|0|`STB_IMAGE_IMPLEMENTATION`: all of `stb_image.h`'
}

# Write the source of each way to $out/NAME.c
sources()
{
    lines '#include "mpt_half.h"' 'float one(mpt_f16 h) { return mpt_f32_from_f16(h); }' > "$out/scalar.c"
    awk '/^<!-- compile: first -->$/ { on = 1; next } on && /^```$/ { exit } on && !/^```/' README.md \
        > "$out/first.c"
    cp tests/compile/cost_step.c "$out/step.c"
    lines '#define MPT_STATIC' '#define MPT_IMPLEMENTATION' '#include "mpt_half.h"' \
        'mpt_status one(mpt_format to, void *a, mpt_format f, const void *b, const mpt_opts *o);' \
        'mpt_status one(mpt_format to, void *a, mpt_format f, const void *b, const mpt_opts *o)' \
        '{ return mpt_convert_n(to, a, f, b, 1000, o, NULL); }' > "$out/convert.c"
    lines '#define MPT_IMPLEMENTATION' '#include "mpt_half.h"' > "$out/half.c"
    lines '#define MPT_IMPLEMENTATION' '#include "mpt.h"' > "$out/mpt.c"
    for way in $(ways | cut -d '|' -f 1 | grep '^MPT_ONLY_'); do
        lines "#define $way" '#define MPT_IMPLEMENTATION' '#include "mpt.h"' > "$out/$way.c"
    done
    lines '#define STB_IMAGE_IMPLEMENTATION' '#include <stb/stb_image.h>' > "$out/stb.c"
}

# measure NAME -- compile $out/NAME.c; the least processor time so far is in $out/NAME.time
measure()
{
    # shellcheck disable=SC2016
    sh -c '"$@" && times' sh $cc -O2 -I. -fstack-usage -c "$out/$1.c" -o "$out/$1.o" \
        > "$out/$1.times" 2>&1 || return 1
    { cat "$out/$1.time" 2> /dev/null; processor_time "$out/$1.times"; } | sort -n | head -n 1 \
        > "$out/$1.least" && mv "$out/$1.least" "$out/$1.time"
}

# Measure each way, and stb_image before and after: if that is disturbed, all others seem cheap. A way that is
# disturbed seems expensive, and is measured again (cheap).
measure_all()
{
    rm -f "$out"/*.time
    sources
    for way in stb $(ways | cut -d '|' -f 1); do
        measure "$way" || { fail "$way does not compile"; cat "$out/$way.times"; return 1; }
    done
}

ratio() { awk -v x="$(cat "$out/$1.time")" -v y="$(cat "$out/stb.time")" 'BEGIN { printf "%.3f", x / y }'; }
bytes() { size "$out/$1.o" | awk 'NR == 2 { print $1 }'; }
below() { awk -v x="$1" -v y="$2" 'BEGIN { exit !(x <= y) }'; }

# cheap NAME MOST -- is the ratio at most MOST? Measures again if it is at most twice that: others disturb.
cheap()
{
    again=0
    while ! below "$(ratio "$1")" "$2" && [ $again -lt 6 ]; do
        awk -v x="$(ratio "$1")" -v y="$2" 'BEGIN { exit x > 2 * y }' || return 1
        measure stb && measure "$1"
        again=$((again + 1))
    done
    below "$(ratio "$1")" "$2"
}

if ! echo '#include <stb/stb_image.h>' | $cc -E - > /dev/null 2>&1; then
    skip "stb_image.h is not installed: libstb-dev"
    summary
    exit
fi
if [ "${2:-}" = --table ]; then
    ours="$cc $($cc -dumpversion | cut -d . -f 1), $(uname -m)"
    if [ -n "${3:-}" ] && [ "$3" != "$ours" ]; then
        skip "the table is that of $3, this is $ours"
        summary
        exit
    fi
    [ -f "$out/stb.time" ] && [ -z "$(find mpt*.h README.md tests/compile/cost_step.c "$0" \
        -newer "$out/stb.time")" ] || measure_all || exit 1
    echo "| $ours, -O2 | time to compile | KB of code |"
    echo '|---|---|---|'
    ways | while IFS='|' read -r name most_time most_bytes label; do
        awk -v label="$label" -v r="$(ratio "$name")" -v b="$(bytes "$name")" 'BEGIN {
            time = r < 0.05 ? "below 5%" : sprintf("%.0f%%", 100 * r)
            printf "| %s | %s | %.*f |\n", label, time, b < 9950 ? 1 : 0, b / 1000 }'
    done
    exit
fi

measure_all || { summary; exit 1; }
ways | grep -v '|0|0|' > "$out/limits"
while IFS='|' read -r name most_time most_bytes label; do
    if cheap "$name" "$most_time"; then pass "$name: time"
    else fail "$name: $(ratio "$name") times stb_image's time, $most_time are allowed"; fi
    [ "$most_bytes" = 0 ] && continue
    if below "$(bytes "$name")" "$most_bytes"; then pass "$name: bytes"
    else fail "$name: $(bytes "$name") bytes, $most_bytes are allowed"; fi
done < "$out/limits"
# No function's own frame is larger than what >>H1 says of stacks: 12 KB in mpt_half.h, 54 in all.
frames()
{
    awk -F '\t' -v most="$2" '$2 > 1024 * most { print $1, $2 } END { if (NR < 50) print NR }' "$out/$1.su"
}
nothing "frames above 12 KB in mpt_half.h" frames half 12
nothing "frames above 54 KB" frames mpt 54
check "the scaler with AdamW links" $cc "$out/step.o" -o "$out/step" -lm
check "and trains" "$out/step"
ways | while IFS='|' read -r name most_time most_bytes label; do
    echo "$name: $(cat "$out/$name.time") s, $(ratio "$name") of stb_image, $(bytes "$name") bytes"
done

functions=$($cc -E -P -I. -x c mpt_cuda.h | grep -oE '\bmpt_[a-z0-9_]+ *\(' | tr -d ' ' | sort -u | wc -l)
if [ "$functions" -gt 100 ] && [ "$functions" -le 330 ]; then pass "public functions"
else fail "$functions public functions, 330 are allowed"; fi
echo "$functions public functions"

# Limits of the headers' lengths, in lines: a change that adds lines must remove others.
while read -r header most; do
    lines=$(wc -l < "$header")
    if [ "$lines" -gt 1000 ] && [ "$lines" -le "$most" ]; then pass "$header: $lines lines"
    else fail "$header: $lines lines, $most are allowed"; fi
done <<'END'
mpt_half.h 5699
mpt.h 10924
mpt_cuda.h 2847
END
wc -l mpt_half.h mpt.h mpt_cuda.h
summary
