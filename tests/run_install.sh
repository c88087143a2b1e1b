#!/bin/sh
# run_install.sh BUILD_DIR -- make install puts the headers and mpt.pc where pkg-config finds them, and a
# program builds from there; a fresh clone builds with nothing but a C compiler, make and the shell's tools.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=$(mkdir -p "${1:-build}/install" && cd "${1:-build}/install" && pwd)
check "make install" make --no-print-directory install PREFIX=/usr DESTDIR="$out/root"
cat > "$out/user.c" <<'C'
#define MPT_IMPLEMENTATION
#include <mpt.h>
int main(void) { return mpt_f16_from_f32(1.0f).bits == 0x3c00 && mpt_version() == MPT_VERSION ? 0 : 1; }
C
if have pkg-config; then
    flags=$(PKG_CONFIG_SYSROOT_DIR="$out/root" PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 \
            PKG_CONFIG_PATH="$out/root/usr/lib/pkgconfig" pkg-config --cflags --libs mpt)
    check "a program builds from the installed headers" \
        sh -c "cc '$out/user.c' $flags -o '$out/user' && '$out/user'"
    version=$(PKG_CONFIG_PATH="$out/root/usr/lib/pkgconfig" pkg-config --modversion mpt)
    check "mpt.pc knows the version $version" sh -c "echo '$version' | grep -qE '^[0-9]+\.[0-9]+\.[0-9]+$'"
else
    skip "pkg-config is not installed"
fi
if git rev-parse --git-dir >/dev/null 2>&1; then
    rm -rf "$out/clone"
    check "a fresh clone" git clone -q . "$out/clone"
    # What must show here is that nothing else is needed: a test of each header and an example do.
    rm -rf "$out/bin" && mkdir "$out/bin"
    for tool in cc as ld make sh awk mkdir cp rm; do
        ln -s "$(command -v $tool)" "$out/bin/$tool" || fail "no $tool here"
    done
    bare() { env -i PATH="$out/bin" make --no-print-directory -C "$out/clone" CFLAGS=-O1 "$@"; }
    check "make test in it" bare TESTS='test_half test_mpt' test
    check "an example in it" bare build/examples/01_anatomy
    check "make inspect says what it lacks" sh -c "env -i PATH='$out/bin' make -C '$out/clone' inspect 2>&1 |
        '$(command -v grep)' -q 'left out: install cJSON'"
    if bare build/tests/no_such_test > /dev/null 2>&1; then fail "a test that is not there was built"
    else pass "a test that is not there cannot be built"; fi
else
    skip "fresh clone: this is no git checkout"
fi
summary
