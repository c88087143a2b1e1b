#!/bin/sh
# check_toc.sh HEADER... -- every mark in a header's contents list stands once more at its section, in
# order and with the same title, and every section is in the list.
failed=0
passed=0
for header in "$@"; do
    listed=$(sed -n '1,/#ifndef MPT/p' "$header" | grep '>>' |
             sed 's/^ \*//; s/  *\(>>[A-Z][0-9]*\)/\n\1/g' |
             sed -n 's/^ *\(>>[A-Z][0-9]* .*\)$/\1/p' | sed 's/ *$//' | sort -t'>' -k3.2n)
    marked=$(sed -n 's|^// \(>>[A-Z][0-9]* .*[^ -]\) -*$|\1|p' "$header")
    if [ -n "$marked" ] && [ "$listed" = "$marked" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$header: the contents list and the section marks differ"
        printf 'listed:\n%s\nmarked:\n%s\n' "$listed" "$marked"
    fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
