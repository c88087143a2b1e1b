#!/bin/sh
# check_toc.sh HEADER... -- checks that a header's contents list and its section marks are equal, in the same
# order and with the same titles; and that no section uses functions of a later one: a function is defined in
# the section that uses it or in an earlier one. A public function counts as defined where it is implemented,
# and its uses count only in implementations. The script reads preprocessed text, in several configurations,
# so that names made by macros count too, in the section where the macro is used.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
for header in "$@"; do
    listed=$(sed -n '1,/#ifndef MPT/p' "$header" | grep '>>' |
             sed 's/^ \*//; s/  *\(>>[A-Z][0-9]*\)/\n\1/g' |
             sed -n 's/^ *\(>>[A-Z][0-9]* .*\)$/\1/p' | sed 's/ *$//' | sort -t'>' -k3.2n)
    marked=$(sed -n 's|^// \(>>[A-Z][0-9]* .*[^ -]\) -*$|\1|p' "$header")
    if [ -n "$marked" ] && [ "$listed" = "$marked" ]; then
        pass "$header: contents"
    else
        fail "$header: the contents list and the section marks differ"
        printf 'listed:\n%s\nmarked:\n%s\n' "$listed" "$marked"
    fi
done

# calls_up HEADERS: reads preprocessed text from standard input; prints each use of a function of a later
# section, and at the end, on standard error, the number of functions and of uses that it found.
calls_up()
{
    awk -v headers="$1" '
    function token(t) {
        if (t == "{") {
            if (!depth && name != "") { defined[name] = section; place_of[name] = file ":" line }
            depth++
        } else if (t == "}") {
            if (!--depth) { name = ""; value = 0 }
        } else if (t == "(") {
            if (!depth && !parens && last ~ /^mpti?_/) name = last
            parens++
        } else if (t == ")") parens--
        else if (t == ";" && !depth) { name = ""; value = 0 }
        else if (t == "=" && !depth) value = 1
        else if (t ~ /^mpti?_/ && (depth || value) && !((t, section) in used)) {
            used[t, section] = file ":" line
            in_api[t, section] = line < implemented[file]
            uses++
        }
        last = t
    }
    BEGIN {
        count = split(headers, list, " ")
        for (i = 1; i <= count; i++) {
            rank[list[i]] = i
            number = 1000 * i       # of a section; the numbers rise through the headers
            for (n = 1; (getline text < list[i]) > 0; n++) {
                if (text ~ /^\/\/ >>[A-Z][0-9]* /) {
                    split(text, word, " ")
                    title[++number] = word[2]
                }
                section_of[list[i], n] = number
                if (text ~ /^# *define MPTI_[A-Z_]*IMPLEMENTED/ && !implemented[list[i]])
                    implemented[list[i]] = n
            }
        }
    }
    /^# [0-9]+ "/ { split($0, part, "\""); sub(/^.*\//, "", part[2]); file = part[2]; line = $2 - 1; next }
    { line++ }
    !(file in rank) { next }
    {
        gsub(/"([^"\\]|\\.)*"/, "0"); gsub(/\047([^\047\\]|\\.)*\047/, "0")
        section = section_of[file, line]
        while (match($0, /[A-Za-z_][A-Za-z0-9_]*|[][{}();=]/)) {
            token(substr($0, RSTART, RLENGTH)); $0 = substr($0, RSTART + RLENGTH)
        }
    }
    END {
        for (key in used) {
            split(key, part, SUBSEP); f = part[1]; s = part[2]
            if (!(f in defined) || defined[f] <= s || (f ~ /^mpt_/ && in_api[key])) continue
            printf "%s: %s uses %s of %s, defined at %s\n", used[key], title[s], f, title[defined[f]],
                place_of[f]
        }
        for (f in defined) functions++
        print functions + 0, uses + 0 > "/dev/stderr"
    }'
}

cc=$(first_of "${CC:-cc}" gcc clang)
emulated='-x c++ -std=c++17 -DMPT_CUDA_EMU -DMPT_USE_CUBLASLT -DMPT_USE_NCCL -Itests/emu'
seen=$(mktemp) found=$(mktemp)
trap 'rm -f "$seen" "$found"' EXIT
# shellcheck disable=SC2086
for way in "-x c mpt.h" "-x c -DMPT_SIMD=0 mpt.h" "-x c -DMPT_MALLOC=malloc -DMPT_FREE=free mpt.h" \
           "$emulated mpt_cuda.h"; do
    $cc -E -I. -DMPT_IMPLEMENTATION $way 2> "$seen.cc" | calls_up "$*" > "$found" 2> "$seen"
    read -r functions uses < "$seen"
    name="no section calls up into a later one ($way)"
    if [ "${functions:-0}" -lt 500 ] || [ "${uses:-0}" -lt 1000 ]; then
        fail "$name: only ${functions:-0} functions and ${uses:-0} uses were found"
        head -5 "$seen.cc"
    elif [ -s "$found" ]; then
        fail "$name: $(grep -c . "$found") do"
        sort -t: -k1,1 -k2,2n "$found"
    else
        pass "$name"
    fi
    rm -f "$seen.cc"
done
summary
