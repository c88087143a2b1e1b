#!/bin/sh
# lint.sh -- checks the project's style as far as a script can.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
sources=$(ls ./*.h examples/*.h examples/*.c* examples/*/*.[ch] examples/*/*.cu tests/*.h tests/*.c* \
    tests/*/*.h tests/*/*.c* tests/*.sh)
headers='mpt_half.h mpt.h mpt_cuda.h'

# shellcheck disable=SC2086
nothing "lines of at most 110 columns" awk 'length > 110 {print FILENAME ":" FNR}' $sources
# shellcheck disable=SC2086
nothing "no tabs" grep -n "$(printf '\t')" $sources
# shellcheck disable=SC2086
nothing "no trailing blanks" grep -nE ' +$' $sources
# shellcheck disable=SC2086
nothing "no unfinished marks" grep -nwE 'T[O]DO|F[I]XME|X[X]X|H[A]CK' $sources Makefile README.md

# such loads may return stale data: see run_cuda_nvcc.sh
nothing "no non-coherent loads" grep -nE '__ldg|__restrict|ld\.global\.nc' mpt_cuda.h mpt.h
nothing "in C++ an enumeration may hold any number" grep -nE '^typedef enum mpt_[a-z0-9_]+ \{' $sources
nothing "examples use no private name" grep -rnE 'mpti_|MPTI_' examples

# Every public function must stand right below its doc block, alone or in a group without a blank line.
for header in $headers; do
    nothing "$header: doc blocks" awk '
        /^\/\/ >>[A-Z][0-9]+ (core|implementation|kernel)/ { exit }
        /\*\/$/ { documented = 1; next }
        /^$/ { documented = 0 }
        /^(MPT_(CUDA_)?DEF|MPT_HD|static inline) / && /[ *]mpt_[a-z0-9_]*\(/ && !documented {
            print FNR ": " $0 }
    ' "$header"
done
# Every public function with a size is in the test of impossible sizes, not only in its comments.
sized() {
    called=$(tr '\n' ' ' < tests/test_mpt_sizes.c | sed 's:/\*[^*]*\*\+\([^/*][^*]*\*\+\)*/::g')
    ${CC:-cc} -E -P -x c mpt.h | tr '\n' ' ' | grep -oE 'mpt_[a-z0-9_]+ *\([^()]*size_t [^()]*\) *[;{]' |
        sed 's/ *(.*//' | sort -u | while read -r name; do
            case $name$called in mpt_reduce_fn*|*"$name("*) ;; *) echo "$name" ;; esac
        done
}
nothing "functions with a size are in tests/test_mpt_sizes.c" sized
# shellcheck disable=SC2046
for script in tests/*.sh; do check "sh -n $script" sh -n "$script"; done
check "bash -n .ci/run" bash -n .ci/run
summary
