#!/bin/sh
# lint.sh -- the style of the house, as far as a script can see it.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
sources=$(git ls-files '*.h' '*.c' '*.cc' '*.cu' '*.sh' 2>/dev/null || find . -name '*.[ch]' -o -name '*.cu' -o -name '*.sh')
headers='mpt_half.h mpt.h mpt_cuda.h'

none() {    # none NAME COMMAND... -- passes if the command prints nothing
    name=$1
    shift
    found=$("$@" 2>/dev/null)
    if [ -z "$found" ]; then pass "$name"; else fail "$name"; echo "$found" | head -5; fi
}
# shellcheck disable=SC2086
none "lines of at most 110 columns" awk 'length > 110 {print FILENAME ":" FNR}' $sources
# shellcheck disable=SC2086
none "no tabs" grep -n "$(printf '\t')" $sources
# shellcheck disable=SC2086
none "no trailing blanks" grep -nE ' +$' $sources
# shellcheck disable=SC2086
none "no unfinished marks" grep -nwE 'T[O]DO|F[I]XME|X[X]X|H[A]CK' $sources Makefile README.md

# Every public function has a doc block that names it.
for header in $headers; do
    for f in $(sed -n 's/^\(MPT_DEF\|MPT_HD\|static inline\) .*[ *]\(mpt_[a-z0-9_]*\)(.*/\2/p' "$header" | sort -u); do
        grep -qE "^( \*|/\*).*\b$f\b.* --|^/\* .*\b$f\b" "$header" && pass "$f" && continue
        stem=$(echo "$f" | sed 's/^mpt_\(cuda_\)\{0,1\}//')
        if grep -qE "^( \*|/\*).*(_${stem#*_}\b|\b$stem\b|the (seven|three) others|and for bf16)" "$header"
        then pass "$f"; else fail "$header: $f has no doc block"; fi
    done
done
# shellcheck disable=SC2046
for script in $(git ls-files '*.sh' .ci/run 2>/dev/null); do check "sh -n $script" sh -n "$script"; done
summary
