#!/bin/sh
# run_compile.sh BUILD_DIR -- checks that the headers compile and link in every way a user may include them,
# and leave no macros, symbols or state behind. A missing compiler is a SKIP; with MPT_CI=1 it is a failure.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=${1:-build}/compile
rm -rf "$out"
mkdir -p "$out"

headers='mpt_half.h mpt.h'
[ -f mpt_cuda.h ] && headers="$headers mpt_cuda.h"
from=tests/compile
common="$all_warnings -I."
strict="$common -Wstrict-prototypes"

# lines FILE LINE... -- write a source file
lines() {
    file=$1
    shift
    printf '%s\n' "$@" > "$file"
}

# refuse NAME TEXT COMMAND... -- passes if the command fails and prints TEXT
refuse() {
    name=$1 text=$2
    shift 2
    if said=$("$@" 2>&1); then
        fail "$name: was accepted"
    elif echo "$said" | grep -q "$text"; then
        pass "$name"
    else
        fail "$name: refused for another reason"
        echo "$said" | head -5
    fi
}

cc=$(first_of "${CC:-cc}" gcc clang)
[ -n "$cc" ] || { fail "no C compiler"; summary; exit 1; }

# ---- each header: first in a file, alone, twice, in any order ----

for h in $headers; do
    lines "$out/alone.c" "#include \"$h\"" 'typedef int not_empty;'
    lines "$out/twice.c" "#include \"$h\"" "#include \"$h\"" 'typedef int not_empty;'
    for c in gcc clang; do
        have $c || continue
        check "$h alone, $c -pedantic" $c -std=c99 -pedantic -Werror -fsyntax-only -I. "$out/alone.c"
        check "$h twice, $c" $c -std=c99 $strict -fsyntax-only "$out/twice.c"
    done
done
for a in $headers; do
    for b in $headers; do
        lines "$out/order.c" "#include \"$a\"" "#include \"$b\"" 'typedef int not_empty;'
        check "$a, $b" $cc -std=c99 $strict -fsyntax-only "$out/order.c"
        lines "$out/order.c" "#include \"$a\"" '#define MPT_IMPLEMENTATION' "#include \"$b\"" \
              "#include \"$a\""
        check "$a, then implemented in $b, $a" $cc -std=c99 $strict -fsyntax-only "$out/order.c"
    done
done

# ---- enumerations have one size in C and C++, also with the default of Arm's bare-metal ABI ----

lines "$out/enums.c" '#include "mpt.h"' \
    'typedef char same[sizeof(mpt_format) == sizeof(int) && sizeof(mpt_order) == sizeof(int) ? 1 : -1];'
for c in gcc clang; do
    have $c || continue
    check "enumerations are ints, $c -fshort-enums" \
        $c -std=c99 -fshort-enums $strict -fsyntax-only "$out/enums.c"
done
# With -flto, gcc takes enumerations of other signedness for other objects: a C++ file's stores are then lost
lines "$out/lto_impl.c" '#define MPT_IMPLEMENTATION' '#include "mpt.h"'
lines "$out/lto_user.c" '#include "mpt.h"' 'static mpt_opts zero;' 'int main(void)' '{' \
    '    mpt_opts o = zero;' '    o.overflow = MPT_OVERFLOW_SATURATE, o.rounding = MPT_RND_UP;' \
    '    return mpt_encode(MPT_F16, 1e9, &o, NULL) != 31743 ||' \
    '        mpt_encode(MPT_F16, 1.00001, &o, NULL) != 15361;' '}'
lto() {         # lto LANGUAGE_OF_THE_IMPLEMENTATION OF_THE_PROGRAM
    gcc -x "$1" -O2 -flto -I. -c "$out/lto_impl.c" -o "$out/lto_impl.o" &&
        gcc -x "$2" -O2 -flto -I. -c "$out/lto_user.c" -o "$out/lto_user.o" &&
        g++ -O2 -flto "$out/lto_user.o" "$out/lto_impl.o" -o "$out/lto" && "$out/lto"
}
if have gcc && have g++; then
    check "-flto, C++ uses an implementation in C" lto c c++
    check "-flto, C uses an implementation in C++" lto c++ c
else
    skip "gcc -flto: gcc or g++ is not installed"
fi
# shellcheck disable=SC2086
check 'every public enumeration is an MPTI_ENUM' sh -c "! grep -n 'typedef enum mpt_' $headers"

# ---- every language, every compiler ----

# Some warnings of gcc need its optimizer, so it optimizes once; clang and the C++ compilers give all warnings
# with -fsyntax-only. compiles COMPILER FLAGS... -- compile the files in $files, with all warnings
compiles() {
    c=$1
    shift
    for file in $files; do
        [ $file = use_cuda ] && [ ! -f mpt_cuda.h ] && continue
        check "$file, $c $*" $c "$@" -I. -c $from/$file.c -o "$out/x.o"
    done
}
every='use_half use_mpt use_cuda static_used static_unused'
! have gcc || cat mpt_half.h mpt.h | gcc -fpreprocessed -dD -E -P -x c - 2> "$out/words.log" |
    grep -oE '"([^"\\]|\\.)*"|\b[A-Z][A-Z0-9_]*\b' | grep -vE '"|^MPTI?_|^(NULL|FILE)$' | sort -u |
    sed 's/.*/#define & (0 + 1)/' > "$out/words.h"
: >> "$out/words.h"
! have gcc || check "the headers use words in capitals: CONST ..." grep -q CONST "$out/words.h"
for c in gcc clang; do
    have $c || { skip "$c is not installed"; continue; }
    case $c in gcc) all=-O2 some='-O1 -S' ;; *) all=-fsyntax-only some=$all ;; esac
    files=$every            compiles $c -std=c99 $all $strict
    files='static_unused use_cuda' compiles $c -std=c2x $strict
    for std in c11 c17 c2x gnu99; do files=impl compiles $c -std=$std -fsyntax-only $strict; done
    files=impl_late compiles $c -std=c99 -fsyntax-only -Wc++-compat $strict     # optimized: see impl.c below
    files=impl      compiles $c -std=c99 -DMPT_NO_STDIO $some $strict
    [ $c = clang ] || mv "$out/x.o" "$out/impl-O1.s"        # $some has -S
    files=impl      compiles $c -std=c99 -DMPT_SIMD=0 $some $strict
    files=impl      compiles $c -std=c99 -fsyntax-only $strict \
                             '-DMPT_DEF=__attribute__((visibility("default"))) extern'
    files=hostile   compiles $c -std=c99 -fsyntax-only $strict
    files=hostile   compiles $c -std=c99 -fsyntax-only -include "$out/words.h"
done
for c in g++ clang++; do
    have $c || { skip "$c is not installed"; continue; }
    files="$every impl_late" compiles $c -x c++ -std=c++11 -fsyntax-only $common
    files='static_unused use_cuda' compiles $c -x c++ -std=c++20 $common
    for std in c++14 c++17 c++20; do files=impl compiles $c -x c++ -std=$std -fsyntax-only $common; done
    files=hostile   compiles $c -x c++ -std=c++17 -fsyntax-only -include "$out/words.h" $common
done

# Each header with its implementation in one file. run_matrix.sh compiles it with -Ofast.
for h in $headers; do
    lines "$out/whole.c" '#define MPT_IMPLEMENTATION' "#include \"$h\""
    for c in gcc clang; do
        have $c || continue
        check "$h implemented, $c -pedantic -Wc++-compat -Wshadow" \
              $c -std=c99 -pedantic -Wc++-compat -Wshadow -Werror -fsyntax-only -I. "$out/whole.c"
    done
done

# ---- programs of several files ----

both='-DUSE=use_half()+use_mpt()'
# program NAME COMMAND... -- build $out/program and run it
program() {
    name=$1
    shift
    check "$name: builds" "$@" -I. -o "$out/program" -lm
    check "$name: runs" "$out/program"
}
users="$from/use_half.c $from/use_mpt.c $from/main.c"

# each header in a file of its own
lines "$out/half.c" '#define MPT_HALF_IMPLEMENTATION' '#include "mpt_half.h"'
lines "$out/train.c" '#define MPT_TRAIN_IMPLEMENTATION' '#include "mpt.h"'
lines "$out/cuda.cc" '#define MPT_CUDA_IMPLEMENTATION' '#include "mpt_cuda.h"'
for name in half train; do
    rm -f "$out/$name.o"
    check "$name.c" $cc -std=c99 $strict -I. -c "$out/$name.c" -o "$out/$name.o"
done
program "mpt_half.h and mpt.h, each in a file of its own" \
        $cc -std=c99 "$both" $users "$out/half.o" "$out/train.o"
if have g++; then
    check "cuda.cc" g++ -std=c++17 -DMPT_CUDA_EMU -Itests/emu -I. -c "$out/cuda.cc" -o "$out/cuda.o"
    program "all three, each in a file of its own" \
            g++ -DMPT_CUDA_EMU -Itests/emu -x c++ "$both+use_emulated()" $users $from/use_emulated.c \
            -x none "$out/half.o" "$out/train.o" "$out/cuda.o"
fi
check "an implementation to link with" $cc -std=c99 -I. -c $from/impl.c -o "$out/impl.o"
program "two files and one implementation" $cc -std=c99 "$both" $users "$out/impl.o"
program "implemented after a first include" $cc -std=c99 "$both" $users $from/impl_late.c
program "mpt_half.h alone" $cc -std=c99 '-DUSE=use_half()' $from/use_half.c $from/main.c $from/impl_half.c
program "without SIMD" $cc -std=c99 -DMPT_SIMD=0 "$both" $users $from/impl.c
program "all, and mpt_half.h once more in a file of its own" \
        $cc -std=c99 "$both" $users "$out/impl.o" $from/impl_half.c
refuse "implemented nowhere" 'mpt_' $cc -I. "$both" $users -o "$out/program" -lm

program "two private copies and a public one" $cc -std=c99 "$both+use_static()" $users "$out/impl.o" \
        $from/static_used.c $from/static_unused.c
if have g++; then
    program "C++ users of a C object" g++ -x c++ "$both" $users -x none "$out/impl.o"
    check "C++ object" g++ -x c++ -I. -c $from/impl.c -o "$out/impl++.o"
    program "C users of a C++ object" $cc "$both" $users "$out/impl++.o"
fi
if have tcc; then
    program "tcc" tcc "$both" $users $from/impl.c
else
    skip "tcc is not installed"
fi
lines "$out/empty.c" 'int main(void) { return 0; }'
if $cc -m32 "$out/empty.c" -o "$out/program" 2>/dev/null; then
    program "-m32" $cc -m32 -std=c99 $strict "$both" $users $from/impl.c
elif have i686-linux-gnu-gcc; then
    program "32 bits" i686-linux-gnu-gcc -std=c99 $strict "$both" $users $from/impl.c -static
    # with -ffast-math gcc computes in SSE registers where it may, so that it refuses to inline across targets
    check "32 bits, -ffast-math" i686-linux-gnu-gcc -std=c99 $strict -ffast-math -I. -c $from/impl.c \
          -o "$out/x.o"
else
    skip "no 32-bit C library (gcc-multilib or gcc-i686-linux-gnu)"
fi

# ---- examples, as users copy them: no warning at any level, for every way to include mpt.h ----

{
    lines "$out/loop.top" '#ifdef ONE_FILE' '#define MPT_IMPLEMENTATION' '#endif' '#include "mpt.h"' \
        'enum { n = 99 };' 'static float w[n], dw[n], dloss = 1.0f;' \
        'static void backward(float seed, float *d) { int i; for (i = 0; i < n; i++) d[i] = seed * w[i]; }' \
        'static void your_optimizer(float *v, float *d) { int i; for (i = 0; i < n; i++) v[i] -= d[i]; }' \
        'int main(void)' '{' '    int i;'
    cat "$out/loop.top"
    sed -n '/^ \*     mpt_scaler scaler; /,/^ \*     }/p' mpt.h |
        sed 's/^ \*//; s/(\.\.\.)/(i = 0; i < 9; i++)/'
    echo '    return scaler.updates != 9; }'
} > "$out/loop.c"
check "the example at the head of mpt.h was found" grep -q mpt_unscale "$out/loop.c"
for c in gcc clang; do
    have $c || continue
    case $c in gcc) levels='-O0 -O1 -O2 -O3@-march=native@-ffast-math' ;; *) levels=-fsyntax-only ;; esac
    for level in $levels; do
        for way in '-DMPT_STATIC -DONE_FILE' -DPROTOTYPES; do
            for file in "$out/loop.c" $from/adopter.c; do
                # shellcheck disable=SC2046,SC2086
                check "$(basename $file), $c $level $way" $c -std=c99 $(echo "$level" | tr @ ' ') \
                      -Wall -Wextra -Werror $way -I. -c "$file" -o "$out/x.o"
            done
        done
    done
    case $c in gcc) level=-O1 ;; *) level=-fsyntax-only ;; esac
    check "loop.c, $c, the whole in one file" $c -std=c99 $level -Wall -Wextra -Werror -DONE_FILE -I. -c \
          "$out/loop.c" -o "$out/x.o"
    refuse "an FP32 gradient in an f16 list, $c" 'incompatible' $c -std=c99 -Werror -DFLOAT_GRADIENT -I. \
           -fsyntax-only $from/adopter.c
done
# A verb that is called once, on arrays of a size that gcc knows, becomes code of its own for them.
if have gcc; then
    while IFS='|' read -r n call; do
        printf '%s\n' '#define MPT_STATIC' '#define MPT_IMPLEMENTATION' '#include "mpt.h"' \
            "static float a[$n], b[$n]; static mpt_f16 h[$n];" \
            "int main(void) { h[0].bits = 1; a[0] = b[0] = 1.0f; return (int)$call != 0; }" > "$out/once.c"
        check "$call on $n" gcc -O2 -Wall -Wextra -Werror -I. -c "$out/once.c" -o "$out/x.o"
    done <<'END'
33|mpt_dot(h, MPT_F16, b, MPT_F32, 33)
3|mpt_axpy(h, MPT_F16, 2.0f, b, MPT_F32, 3)
20|mpt_axpy_publish(h, MPT_F16, a, 1.0f, b, 20, NULL)
END
fi
program "adopter.c" $cc -std=c99 -O1 -DMPT_STATIC -DONE_FILE $from/adopter.c
program "the example at the head of mpt.h" $cc -std=c99 -O1 -DMPT_STATIC -DONE_FILE "$out/loop.c"

# ---- with OpenBLAS, which mpt.h may call ----

if have pkg-config && pkg-config --exists openblas; then
    blas=$(pkg-config --cflags --libs openblas)
    for c in gcc clang; do
        have $c || continue
        check "MPT_USE_CBLAS, $c: builds" $c -std=c99 -O1 $strict -DMPT_USE_CBLAS tests/test_mpt_policy.c \
              -o "$out/policy" $blas -lm
        check "MPT_USE_CBLAS, $c: the tests of the policy and of mpt_gemm" "$out/policy"
    done
    check "MPT_USE_CBLAS: the sums are the library's" sh -c "nm '$out/policy' | grep -q 'U cblas_sgemm'"
else
    skip "OpenBLAS is not installed (libopenblas-dev, pkg-config): mpt_gemm with MPT_USE_CBLAS"
fi

# ---- no macro changes a struct ----

$cc -I. $from/layout.c -o "$out/program" && "$out/program" > "$out/layout"
check "the layout has been printed" grep -q 'mpt_scaler ' "$out/layout"
# layout COMMAND... -- is the layout the same when compiled by this command?
layout() {
    "$@" -I. $from/layout.c -o "$out/program" -lm && "$out/program" > "$out/layout.other"
    check "the layout with $*" cmp "$out/layout" "$out/layout.other"
}
layout $cc -DMPT_STATIC
layout $cc -DMPT_NO_STDIO -DMPT_SIMD=0
layout $cc -DMPT_IMPLEMENTATION -std=c99
have g++ && layout g++ -x c++

# ---- a bad configuration is an error ----

for h in $headers; do
    refuse "MPT_SIMD=5, $h" 'MPT_SIMD must be 0' $cc -I. -DMPT_SIMD=5 -fsyntax-only -x c $h
    refuse "MPT_STATIC and MPT_DEF, $h" 'exclude each other' $cc -I. -DMPT_STATIC -DMPT_DEF=extern \
           -fsyntax-only -x c $h
    lines "$out/late.c" "#include \"$h\"" '#define MPT_STATIC' "#include \"$h\""
    refuse "MPT_STATIC after a first include, $h" 'define MPT_STATIC before' \
           $cc -I. -fsyntax-only "$out/late.c"
done
! have gcc || refuse "constants in single precision" mpti_needs_double_constants \
                     gcc -I. -fsingle-precision-constant -fsyntax-only -x c mpt_half.h
if [ -f mpt_cuda.h ]; then
    lines "$out/cuda.c" '#define MPT_CUDA_IMPLEMENTATION' '#include "mpt_cuda.h"'
    refuse "MPT_CUDA_IMPLEMENTATION in a C file" 'needs nvcc' $cc -I. -fsyntax-only "$out/cuda.c"
    lines "$out/cuda.c" '#define MPT_IMPLEMENTATION' '#include "mpt_cuda.h"'
    check "MPT_IMPLEMENTATION of mpt_cuda.h in a C file" \
          $cc -std=c99 $strict -c "$out/cuda.c" -o "$out/cuda.o"
    nothing "it emits no mpt_cuda_ function" sh -c "nm '$out/cuda.o' | grep mpt_cuda_"
fi

# ---- the object file: only our symbols, known needs, no state ----

# In position-independent code, tables of pointers are relocated, and nm lists them as data.
fixed='-fno-pic -fno-pie'
memory='memcpy|memset|memmove|memcmp|bcmp|strcmp|strlen|strpbrk|strcspn|strspn'
runtime='__cpu_model|__cpu_indicator_init|__cpu_features2|_GLOBAL_OFFSET_TABLE_|__stack_chk_fail'
math='fma|fmaf|sqrt|sqrtf|exp|expf|log|log10|tanhf|erfc|ldexp'
print='fprintf|snprintf|fputc|fputs|putc|_IO_putc|fwrite|ferror'

# object NAME NEEDS COMMAND... -- compile and check the symbols
object() {
    object=$1 needs=$2
    shift 2
    check "$object: compiles" "$@" $fixed -I. -c -o "$out/object.o"
    nm "$out/object.o" > "$out/object.nm"
    nothing "$object: every symbol is ours" awk '$(NF-1) ~ /[A-TV-Z]/ && $NF !~ /^mpt_/' "$out/object.nm"
    nothing "$object: local functions are ours" awk '$(NF-1) == "t" && $NF !~ /mpti?_/' "$out/object.nm"
    nothing "$object: no state" awk '$(NF-1) ~ /^[DdBbCGgSs]$/' "$out/object.nm"
    nothing "$object: needs nothing else" \
        awk -v ok="^($needs)\$" '$(NF-1) == "U" && $NF !~ ok' "$out/object.nm"
    check "$object: is there" grep -q ' [Tt] mpti*_' "$out/object.nm"
}
if have nm; then
    all="$memory|$runtime|$math|$print"
    for c in gcc clang; do
        have $c || continue
        # shellcheck disable=SC2086
        check "mpt, $c -O2: compiles" $c -std=c99 -O2 $strict $fixed -S $from/impl.c -o "$out/impl-$c.s"
        object "mpt, $c -O2" "$all" $c -x assembler "$out/impl-$c.s"
        object "mpt without stdio, $c" "$memory|$runtime|$math" $c -DMPT_NO_STDIO $from/impl.c
        object "half, $c" "$memory|$runtime" $c $from/impl_half.c
        nothing "half, $c: no mpt_scaler_" grep mpt_scaler_ "$out/object.nm"
        check "static, $c: compiles" $c -O1 -I. -c $from/static_used.c -o "$out/object.o"
        nothing "static, $c: exports only the user's" \
                sh -c "nm '$out/object.o' | awk '\$(NF-1) ~ /[A-TV-Z]/ && \$NF != \"use_static\"'"
        check "static, unused, $c: compiles" $c -O1 -I. -c $from/static_unused.c -o "$out/object.o"
        nothing "static, unused, $c: leaves no function" sh -c "nm '$out/object.o' | grep mpt_"
    done
    object "mpt without SIMD" "$memory|$math|$print" $cc -DMPT_SIMD=0 $from/impl.c
    have g++ && object "mpt, g++" "$all" g++ -x c++ $from/impl.c
else
    skip "nm is not installed"
fi

# ---- the preprocessor: no leaks, no stdio, no pragma ----

grep -h '^ *# *include *<' $headers | grep -v cuda_runtime | sort -u > "$out/system.h"
case $($cc -dumpmachine 2>/dev/null) in
x86_64* | i?86*) grep -v arm_neon "$out/system.h" > "$out/x" && mv "$out/x" "$out/system.h" ;;
*) grep -v immintrin "$out/system.h" > "$out/x" && mv "$out/x" "$out/system.h" ;;
esac
# leaks HEADER FLAGS... -- print the macros that the header leaves defined, other than MPT_... and MPTI_...
leaks() {
    leaking=$1
    shift
    lines "$out/leak.c" '#include "system.h"'
    $cc "$@" -I. -I"$out" -dM -E "$out/leak.c" | sort > "$out/macros.before"
    lines "$out/leak.c" '#include "system.h"' "#include \"$leaking\""
    $cc "$@" -I. -I"$out" -dM -E "$out/leak.c" | sort > "$out/macros.after"
    comm -13 "$out/macros.before" "$out/macros.after" | grep -vE '^#define MPTI?_'
}
for h in $headers; do
    nothing "$h leaks no macro" leaks $h -std=c99
    nothing "$h leaks no macro, implemented" leaks $h -DMPT_IMPLEMENTATION
    nothing "$h leaks no MPTI_X" sh -c "$cc -I. -dM -E -x c -DMPT_IMPLEMENTATION $h | grep 'MPTI_X\\b'"
    check "$h has macros at all" sh -c "$cc -I. -dM -E -x c $h | grep -q 'define MPT_VERSION '"
done
# print the enumerators in preprocessed text
enumerators() {
    awk '{
        gsub(/"([^"\\]|\\.)*"/, "0")
        while (match($0, /[A-Za-z_][A-Za-z0-9_]*|[{}(),;]/)) {
            t = substr($0, RSTART, RLENGTH)
            $0 = substr($0, RSTART + RLENGTH)
            if (t == "{") { if (list == 1) list = 2 }
            else if (t == "}" || t == ";") list = 0
            else if (t == "(") parens++
            else if (t == ")") parens--
            else if (t == "enum") list = 1
            else if (list == 2 && !parens && (last == "{" || last == ",") && t != ",") print t
            last = t
        }
    }' | grep '^MPT' | sort -u
}
grep -ohE '^ *# *define +MPTI?_[A-Za-z0-9_]+' $headers | awk '{ print $NF }' | sort -u > "$out/macros"
{ $cc -E -P -I. -DMPT_IMPLEMENTATION -x c mpt.h; $cc -E -P -I. -DMPT_SIMD=0 -DMPT_IMPLEMENTATION -x c mpt.h
  $cc -E -P -I. -Itests/emu -DMPT_CUDA_EMU -DMPT_IMPLEMENTATION -x c++ mpt_cuda.h
} 2>/dev/null | enumerators > "$out/enumerators"
check "there are enumerators" grep -q '^MPT_F16$' "$out/enumerators"
check "there are macros" grep -q '^MPT_VERSION$' "$out/macros"
nothing "no name is a macro here and an enumerator there" comm -12 "$out/macros" "$out/enumerators"
check "mpt.h pulls in stdio" sh -c "$cc -I. -E -DMPT_IMPLEMENTATION -x c mpt.h | grep -q 'stdio\\.h'"
nothing "with MPT_NO_STDIO it does not" \
        sh -c "$cc -I. -E -DMPT_NO_STDIO -DMPT_IMPLEMENTATION -x c mpt.h | grep 'stdio\\.h'"
nothing "mpt_half.h does not" \
        sh -c "$cc -I. -E -DMPT_IMPLEMENTATION -x c mpt_half.h | grep 'stdio\\.h\\|math\\.h'"
check "mpt_half.h pulls in string.h" sh -c "$cc -I. -E -x c mpt_half.h | grep -q 'string\\.h'"

# ---- the source: calls that a header must not make ----

# The file without its comments; gcc and clang both keep the rest unchanged.
code() { $cc -fpreprocessed -dD -E -P -x c "$1" 2>/dev/null; }
# calls HEADER NAMES -- print the lines that call one of the names, which are separated by |
calls() { code "$1" | grep -nE "(^|[^A-Za-z0-9_])($2) *\\("; }
ends='exit|_Exit|quick_exit|abort|assert|longjmp|signal|raise'
prints='printf|puts|putchar|perror|vprintf|vfprintf'
allocates='malloc|calloc|realloc|free|alloca|strdup'
for h in $headers; do
    check "$h: comments can be taken off" sh -c "$cc -fpreprocessed -dD -E -P -x c $h | grep -q mpt_"
    nothing "$h ends no program" calls $h "$ends"
    nothing "$h prints nothing of itself" calls $h "$prints"
    # except one, for users who leave parts out: it makes calls of undeclared functions an error
    nothing "$h has no pragma to restore" \
            sh -c "grep -n '# *pragma\\|_Pragma' $h | grep -v '_Pragma(\"\(unroll\|omp .*\)\")' |
                   grep -v 'diagnostic error \"-Wimplicit-function-declaration\"'"
    # in mpt_cuda.h only the calls that say so allocate: the GPU's context and lists
    [ $h = mpt_cuda.h ] || nothing "$h allocates nothing" calls $h "$allocates"
done
nothing "mpt_half.h writes to no stream" calls mpt_half.h 'fprintf|fputc|fputs|fwrite'
nothing "mpt.h writes to no stream but the caller's" sh -c \
        "grep -nE '(fprintf|fputc|fputs|fwrite)\(' mpt.h |
         grep -vE 'fprintf\(out,|fput[cs]\(.*, out\)|fwrite\(text, 1, n, .FILE .*user\)'"

# ---- the code: wide vectors, and SSE code after them ----

for compiler in gcc clang; do
    [ "$(uname -m)" = x86_64 ] || { skip "upper halves: not an x86-64 processor"; break; }
    have $compiler && have python3 && have nm ||
        { skip "upper halves: no $compiler, no python3 or no nm"; continue; }
    check "$compiler leaves no upper halves of vectors" python3 tests/vzeroupper.py "$out/impl-$compiler.s"
    [ $compiler = clang ] || check "gcc -O1 returns with none" \
        python3 tests/vzeroupper.py "$out/impl-O1.s" returns
done
summary
