#!/bin/sh
# run_matrix.sh -- builds C tests in every supported way and runs each build.
#
#     sh tests/run_matrix.sh BUILD_DIR TEST...        # tests/test_half.c ...
#
# The ways: gcc and clang, as C99 and as C++17, at four levels of optimisation, with AddressSanitizer and
# UBSan, without SIMD; tcc. gcc C99 -O2 is `make test`, which runs in full; of these ways clang's -O2 does,
# and the others run with --short. Not all combinations are built: more for test_half and test_mpt, which
# cover a whole header each, fewer for the others (test_mpt_optim also with gcc's -Ofast, where test_mpt's
# known bits do not run). CC and CXX are ignored. Each way compiles the implementation (tests/impl.c) once,
# for all tests and for the next run of this script. A missing compiler is a skip; with MPT_CI=1 a skip is a
# failure. MPT_JOBS (2) run at a time. The last line is "N passed, N failed, N skipped"; the exit
# status is nonzero if one failed.

if [ $# -lt 2 ]; then
    echo "usage: sh tests/run_matrix.sh BUILD_DIR TEST..." >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd) || exit 2
. "$here/lib.sh"
out=$1/matrix-$(basename "$2" .c)
implementations=$1/matrix-implementations
shift
tests=$(for t; do basename "$t" .c; done)
mkdir -p "$out" "$implementations" && rm -f "$out"/*.log || exit 2

sanitize='-O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all'

# One variant of a test per line: test | name | compiler | flags
unnumbered_variants()
{
    for test in $tests; do
        case $test in
        test_half | test_mpt) all_variants | sed "s/^/$test|/" ;;
        test_mpt_optim) (some_variants; all_variants | grep '|gcc|.*-Ofast') | sed "s/^/$test|/" ;;
        *) some_variants | sed "s/^/$test|/" ;;
        esac
    done
}

some_variants()
{
    cat <<END
clang C99 ASan+UBSan|clang|-std=c99 -Wstrict-prototypes $sanitize
clang++ C++17 -Ofast|clang++|-std=c++17 -Ofast -x c++
g++ C++17 -O1 -DMPT_SIMD=0|g++|-std=c++17 -O1 -DMPT_SIMD=0 -x c++
tcc|tcc|
END
}

all_variants()
{
    cat <<END
g++ C++17 -O3 -march=native|g++|-std=c++17 -O3 -march=native -x c++
gcc C99 -Ofast|gcc|-std=c99 -Wstrict-prototypes -Ofast
clang++ C++17 -O0|clang++|-std=c++17 -O0 -x c++
clang C99 -O2|clang|-std=c99 -Wstrict-prototypes -O2
clang C99 -O3 -march=native|clang|-std=c99 -Wstrict-prototypes -O3 -march=native
END
    some_variants
}

# The same with a number in front, for the names of files.
variants() { unnumbered_variants | awk '{ printf "%03d|%s\n", NR, $0 }'; }

# implementation_of COMPILER FLAGS: print the name of its object file
implementation_of() { echo "$implementations/$(echo "$1 $2" | cksum | tr ' ' '-').o"; }

# implement COMPILER FLAGS: compile it, if its object file is missing or older than its sources
implement()
{
    object=$(implementation_of "$1" "$2")
    have "$1" || return
    [ -f "$object" ] && [ -z "$(find "$here"/../mpt*.h "$here"/impl.[ch] -newer "$object")" ] && return
    rm -f "$object"
    $1 $2 $all_warnings -I"$here/.." -c "$here/impl.c" -o "$object" >"$object.log" 2>&1
}

# run_variant NUMBER TEST NAME COMPILER FLAGS: print one line; all output goes to NUMBER.log
run_variant()
{
    exe=$out/$2.$1
    log=$out/$1.log
    implementation=$(implementation_of "$4" "$5")
    if ! have "$4"; then
        result="SKIP: $2 $3: no $4 here"
    elif ! [ -f "$implementation" ]; then
        result="FAIL: $2 $3: the implementation does not compile, see $implementation.log"
    elif ! $4 "$implementation" $5 $all_warnings -I"$here/.." "$here/$2.c" -o "$exe" -lm >"$log" 2>&1; then
        result="FAIL: $2 $3: does not compile, see $log"
    else
        case "$4 $5" in clang\ *-O2*) short= ;; *) short=--short ;; esac
        "$exe" $short >"$log" 2>&1
        case $(result_of $? "$log") in
        failed) result="FAIL: $2 $3: $(tail -n 1 "$log"), see $log" ;;
        *) result="ok: $2 $3: $(tail -n 1 "$log")" ;;
        esac
    fi
    rm -f "$exe"
    echo "$result"
}

variants | cut -d '|' -f 4,5 | sort -u | each implement
variants | each run_variant | tee "$out/results"
tally "$(variants | grep -c .)" "$out/results"
summary
