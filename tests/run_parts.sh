#!/bin/sh
# run_parts.sh BUILD_DIR -- checks the macros that leave out parts, MPT_NO_... and MPT_ONLY_...: with each and
# with pairs, the headers compile in C and C++, declared and implemented, with all warnings; what a part
# declares is gone, and using it is an error that names it; nothing that is left needs it; programs that do
# not use the part build and run.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=${1:-build}/parts
rm -rf "$out"
mkdir -p "$out"
from=tests/compile
common="$all_warnings -I."
strict="$common -Wstrict-prototypes"
emulated='-x c++ -std=c++17 -DMPT_CUDA_EMU -Itests/emu'
cc=$(first_of "${CC:-cc}" gcc clang)
for c in gcc g++ clang clang++; do have $c || skip "$c is not installed"; done

# The configuration comments of the headers list the macros, and their code tests no others.
documented=$(awk '/^\/\/ >>/ { on = /configuration/ } on && !/^#/' mpt_half.h mpt.h |
             grep -oE '\bMPT_(NO|ONLY)_[A-Z0-9_]+' | sort -u)
asked=$(grep -hE '^ *# *(if|ifdef|ifndef|elif)' mpt_half.h mpt.h mpt_cuda.h |
        grep -oE '\bMPT_(NO|ONLY)_[A-Z0-9_]+' | sort -u)
if [ -n "$documented" ] && [ "$documented" = "$asked" ]; then pass "the list of parts"
else
    fail "the configuration comments name other parts than the headers ask for"
    printf 'documented:\n%s\nasked:\n%s\n' "$documented" "$asked"
fi
parts=$documented
no=$(echo "$parts" | grep MPT_NO_)
only=$(echo "$parts" | grep MPT_ONLY_)

# compile NAME COMPILER FLAGS... -- passes if it compiles; does nothing if the compiler is missing
compile() {
    name=$1
    shift
    ! have "$1" || check "$name" "$@"
}

# names FLAGS... -- print the functions that mpt.h names with these flags, also those that inline functions
# call, but no function types
names()
{
    $cc -E -P -I. "$@" -x c mpt.h | grep -oE '\bmpt_[a-z0-9_]+ *\(' | tr -d ' (' | grep -v '_fn$' | sort -u
}

flags_of() { printf -- '-D%s ' "$@"; }

# in_c, in_cxx MACRO... -- compile the implementation with these macros
in_c() {
    # shellcheck disable=SC2046,SC2086
    compile "$*, clang" clang -std=c99 $strict $(flags_of "$@") -fsyntax-only $from/impl.c
}
in_cxx() {
    # shellcheck disable=SC2046,SC2086
    compile "$*, g++" g++ -std=c++11 $common $(flags_of "$@") -fsyntax-only -x c++ $from/impl.c
}

# whole MACRO... -- the same, and check everything that a user can notice
whole() {
    in_c "$@"
    in_cxx "$@"
    flags=$(flags_of "$@")
    # shellcheck disable=SC2086
    {
    compile "$*, clang++" clang++ -std=c++17 $common $flags -fsyntax-only -x c++ $from/impl.c
    for header in mpt_half mpt mpt_cuda; do
        printf '#include "%s.h"\ntypedef int not_empty;\n' $header > "$out/declared.c"
        compile "$*, $header.h, gcc" gcc -std=c99 $strict $flags -fsyntax-only "$out/declared.c"
        compile "$*, $header.h, g++" g++ -std=c++11 $common $flags -fsyntax-only -x c++ "$out/declared.c"
    done
    # the CUDA header may need a part, but then must say so
    printf '#define MPT_IMPLEMENTATION\n#include "mpt_cuda.h"\n' > "$out/cuda.cc"
    if said=$(g++ $emulated $common $flags -fsyntax-only "$out/cuda.cc" 2>&1) ||
       echo "$said" | grep -q '#error.*mpt_cuda.h needs'; then pass "$*, mpt_cuda.h implemented"
    else
        fail "$*, mpt_cuda.h implemented"
        echo "$said" | head -10
    fi
    rm -f "$out/x.o"
    compile "$*, gcc" gcc -std=c99 -O0 $strict $flags -c $from/impl.c -o "$out/x.o"
    check "$*: what is left needs nothing of it" sh -c "nm '$out/x.o' | grep ' [TW] mpt_' > '$out/left' &&
        ! nm '$out/x.o' | grep ' U mpt'"
    names > "$out/all"
    names $flags > "$out/declared"
    names $flags -DMPT_IMPLEMENTATION > "$out/implemented"
    }
    comm -23 "$out/all" "$out/declared" > "$out/gone"
    check "$*: something is gone" test -s "$out/gone"
    check "$*: nothing is new" sh -c "! comm -13 '$out/all' '$out/declared' | grep ."
    check "$*: nor is it implemented" sh -c "! comm -12 '$out/gone' '$out/implemented' | grep ."
    # every use of a missing function is an error that names it
    awk 'BEGIN { print "#include \"mpt.h\"" }
         { print "int use" NR "(void) { return sizeof(&" $1 ") > 1; }" }' "$out/gone" > "$out/misuse.c"
    check "$*: the misuse is none without it" $cc -I. -fsyntax-only "$out/misuse.c"
    # shellcheck disable=SC2086
    $cc -I. $flags -fmax-errors=0 -fsyntax-only "$out/misuse.c" 2>&1 | grep 'error' |
        grep -oE '\bmpt_[a-z0-9_]+' | sort -u > "$out/refused"
    check "$*: every misuse is refused by name" sh -c "! comm -23 '$out/gone' '$out/refused' | grep ."
    # and so is every call, for which C99 compilers by default only warn
    awk 'BEGIN { print "#include \"mpt.h\"" } { print "void call" NR "(void) { " $1 "(); }" }' "$out/gone" \
        > "$out/call.c"
    # shellcheck disable=SC2086
    for compiler in gcc "clang -ferror-limit=0"; do
        have ${compiler%% *} || continue
        $compiler -std=c99 -I. $flags -fsyntax-only "$out/call.c" 2>&1 | grep 'error:' |
            grep -oE '\bmpt_[a-z0-9_]+' | sort -u > "$out/refused"
        check "$*, $compiler: so is every call" sh -c "! comm -23 '$out/gone' '$out/refused' | grep ."
    done
}

# programs MACRO... -- build and run the programs that use no missing function (call after whole): use_mpt
# with the implementation that whole has compiled, the others each with a private one
programs() {
    flags=$(flags_of "$@")
    for program in use_half use_mpt cost_step; do
        grep -oE '\bmpt_[a-z0-9_]+' $from/$program.c | sort -u > "$out/uses"
        comm -12 "$out/uses" "$out/gone" | grep -q . && continue
        # shellcheck disable=SC2086
        case $program in
        cost_step) check "$*: $program builds" $cc -I. $flags $from/$program.c -o "$out/program" -lm ;;
        use_mpt) check "$*: $program builds" $cc -I. $flags "-DUSE=$program()" $from/$program.c $from/main.c \
               "$out/x.o" -o "$out/program" -lm ;;
        *) check "$*: $program builds" $cc -I. $flags -DMPT_STATIC -DMPT_IMPLEMENTATION "-DUSE=$program()" \
               $from/$program.c $from/main.c -o "$out/program" -lm ;;
        esac
        check "$*: $program runs" "$out/program"
        ran="$ran $program"
    done
}

ran=
for part in $parts; do
    whole "$part"
    programs "$part"
done
for program in use_half use_mpt cost_step; do
    check "$program ran without some part" sh -c "echo '$ran' | grep -qw $program"
done
# shellcheck disable=SC2086
if [ "$(echo "$no" | wc -l)" -gt 1 ]; then
    whole $no
    programs $no
fi
# Pairs: any two NO macros, and an ONLY macro with a NO that it does not imply.
for one in $no; do
    for other in $no; do
        expr "$one" '<' "$other" > /dev/null && in_c "$one" "$other"
    done
done
in_c MPT_NO_CHECKPOINT MPT_ONLY_TRAINING
in_c MPT_NO_STDIO MPT_ONLY_TRAINING
summary
