#!/bin/sh
# check_readme.sh FILE BUILD_DIR [--update] -- checks that the blocks in FILE show what the programs do. A
# comment before a block says what the block is:
#   <!-- run: COMMAND -->        the output of COMMAND, exactly
#   <!-- run~PERCENT: COMMAND -->  the same, but numbers may differ by PERCENT percent or 0.3: training
#                                  results depend on the last bits of the C library's tanh, and times on
#                                  the machine. run~PERCENT,LAST: by LAST percent in the last column. A
#                                  command that prints SKIP: and a reason is skipped
#   <!-- compile: NAME -->       a C program; it must build and run as BUILD_DIR/readme/NAME
# A block is fenced, or is a table that ends at an empty line. --update rewrites `run` blocks that differ. It
# also checks that every fenced block has such a comment, and that every mpt name in FILE is in a header.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
file=$1 build=${2:-build} update=${3:-}
out=$build/readme
rm -rf "$out"
mkdir -p "$out"
# -O1 takes half the time of the default, and the outputs are the same
make --no-print-directory -s B="$build" CFLAGS=-O1 examples "$build/tests/tables" > "$out/make.log" 2>&1 ||
    { fail "make examples"; cat "$out/make.log"; }
# a report that is older than what made it, or none: find names those files, or complains
[ -z "$(find mpt.h mpt_half.h examples/04_train_digits.c -newer "$build/demo/report.txt" 2>&1)" ] ||
    check "make demo" make --no-print-directory B="$build" demo

# Split the file: block K goes to $out/K.text, its comment to $out/K.mark.
blocks=$(awk -v out="$out" '
    /^<!-- (run|run~[0-9,]+|compile): .* -->$/ { k++; print > (out "/" k ".mark"); state = 1; next }
    state == 1 { state = /^```/ ? 2 : 3; if (state == 2) { printf "" > (out "/" k ".text"); next } }
    state == 2 && /^```/ { state = 0; next }
    state == 3 && /^$/ { state = 0; next }
    state >= 2 { print > (out "/" k ".text") }
    END { print k + 0 }' "$file")

# near PERCENT[,LAST] A B -- are two files equal, except that numbers may differ by PERCENT percent or 0.3?
near() {
    awk -v percents="$1" '
        BEGIN { if (split(percents, percent, ",") == 1) percent[2] = percent[1] }
        function number(s) { return s ~ /^[-+]?[0-9]+(\.[0-9]+)?%?$/ }
        function squeeze(s) {
            gsub(/#+/, "#", s); gsub(/\.\./, " .. ", s); gsub(/\^/, " ^ ", s); gsub(/[ |]+/, " ", s)
            return s
        }
        NR == FNR { a[FNR] = squeeze($0); n = FNR; next }
        { m = FNR; k = split(a[FNR], x, " "); if (k != split(squeeze($0), y, " ")) bad = 1
          for (i = 1; i <= k; i++) if (x[i] != y[i]) {
              d = x[i] - y[i]; if (d < 0) d = -d; s = y[i] + 0; if (s < 0) s = -s
              most = s * percent[1 + (i == k)] / 100
              if (!number(x[i]) || !number(y[i]) || (d > 0.3 && d > most)) bad = 1 } }
        END { exit bad || n != m }' "$2" "$3"
}

k=1
while [ "$k" -le "$blocks" ]; do
    mark=$(cat "$out/$k.mark")
    rest=${mark#*: }
    command=$(echo "${rest% -->}" | sed "s|build/|$build/|g")
    case $mark in
    *compile:*)
        name=$command
        cp "$out/$k.text" "$out/$name.c"
        check "block $k compiles: $name" cc -std=c99 -Wall -Wextra -Wpedantic -Werror -O2 -I. "$out/$name.c" \
            -o "$out/$name" -lm
        check "block $k runs: $name" "$out/$name"
        ;;
    *)
        sh -c "$command" > "$out/$k.now" 2>&1
        percent=$(echo "$mark" | sed -n 's/^<!-- run~\([0-9,]*\):.*/\1/p')
        if [ -n "$percent" ]; then same="near $percent"; else same=diff; fi
        if grep -q '^SKIP: ' "$out/$k.now"; then
            skip "block $k: $(sed 's/^SKIP: //;q' "$out/$k.now")"
            cp "$out/$k.text" "$out/$k.now"
        elif [ -s "$out/$k.now" ] && $same "$out/$k.text" "$out/$k.now" > "$out/$k.diff" 2>&1; then
            pass "block $k: $command"
            cp "$out/$k.text" "$out/$k.now"
        else
            fail "block $k differs from: $command"
            diff "$out/$k.text" "$out/$k.now" | head -20
        fi
        ;;
    esac
    k=$((k + 1))
done

if [ "$update" = --update ]; then
    awk -v out="$out" '
        /^<!-- (run|run~[0-9,]+|compile): .* -->$/ { k++; state = /compile/ ? 0 : 1; print; next }
        state == 1 { state = /^```/ ? 2 : 3; if (state == 2) print
                     while ((getline line < (out "/" k ".now")) > 0) print line; next }
        state == 2 && /^```/ { state = 0 }
        state == 3 && /^$/ { state = 0 }
        state >= 2 { next }
        { print }' "$file" > "$out/new" && cp "$out/new" "$file" && echo "updated $file"
fi

# A fenced block without a comment would not be checked above.
check "every fenced block has its comment" awk '
    /^```/ { open = !open; if (open && last !~ /^<!-- .* -->$/) { bad = 1; print FILENAME ":" FNR ": " $0 } }
    { last = $0 }
    END { exit bad }' "$file"

# Every mpt name must exist in the headers of today, and FILE must name all parts that can be left out.
ours='\b(mpt|MPT)_[A-Za-z0-9_]+'
parts='^MPT_(NO|ONLY)_'
cat mpt_half.h mpt.h mpt_cuda.h > "$out/today"
grep -oE "$ours" "$out/today" | sort -u > "$out/names"
grep -oE "$ours" "$file" | sort -u > "$out/named"
check "names that no header has" sh -c "! comm -13 '$out/names' '$out/named' | grep ."
grep -E '^ *# *(if|ifdef|ifndef|elif)' "$out/today" | grep -oE "$ours" | grep -E "$parts" | sort -u \
    > "$out/parts"
check "parts that $file does not name" sh -c "! comm -23 '$out/parts' '$out/named' | grep ."

# Every make target, file and section mark that FILE names must exist.
for target in $(grep -o '`make [a-z-]*`' "$file" | tr -d '\140' | sed 's/make //' | sort -u); do
    if grep -q "^$target:" Makefile; then pass "make $target"; else fail "there is no make $target"; fi
done
for path in $(grep -oE '`(examples|tests)/[A-Za-z0-9_./]*`' "$file" | tr -d '\140' | sort -u); do
    if [ -e "$path" ]; then pass "$path"; else fail "there is no $path"; fi
done
for mark in $(grep -oE '>>[HMC][0-9]+' "$file" | sort -u); do
    if grep -qE "^// $mark " mpt_half.h mpt.h mpt_cuda.h; then pass "$mark"; else fail "no section $mark"; fi
done
summary
