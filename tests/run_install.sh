#!/bin/sh
# run_install.sh BUILD_DIR -- make install puts the headers and mpt.pc where pkg-config finds them, and a
# program builds from there; a fresh clone builds and passes its tests with nothing but cc and make.
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
    # with less optimization than by default: what must show here is that nothing else is needed
    check "make test in it" \
        env -i PATH=/usr/bin:/bin make --no-print-directory -C "$out/clone" CFLAGS=-O1 test
    check "make examples in it" \
        env -i PATH=/usr/bin:/bin make --no-print-directory -C "$out/clone" CFLAGS=-O0 examples
else
    skip "fresh clone: this is no git checkout"
fi
summary
