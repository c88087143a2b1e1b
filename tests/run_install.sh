#!/bin/sh
# run_install.sh BUILD_DIR -- checks that make install puts the headers, and the files for pkg-config and
# CMake, where a program finds them, and that a fresh clone builds with nothing but a C compiler, make and the
# shell's tools.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=$(mkdir -p "${1:-build}/install" && cd "${1:-build}/install" && pwd)
install_umask() { (umask 077; make --no-print-directory "$1" PREFIX="/my tools" DESTDIR="$out/root"); }
rm -rf "$out/root"
check "make install" install_umask install
hidden=$(find "$out/root/my tools" ! -perm -o=r)
if [ -z "$hidden" ]; then pass "everyone may read what it installed"
else fail "only the owner may read $hidden"; fi
check "make uninstall" install_umask uninstall
left=$(find "$out/root" ! -type d)
if [ -z "$left" ]; then pass "nothing is left"; else fail "left: $left"; fi
check "make install, again" install_umask install
cat > "$out/user.c" <<'C'
#define MPT_IMPLEMENTATION
#include <mpt.h>
int main(void) { return mpt_f16_from_f32(1.0f).bits == 0x3c00 && mpt_version() == MPT_VERSION ? 0 : 1; }
C
if have pkg-config; then
    flags=$(PKG_CONFIG_SYSROOT_DIR="$out/root" PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 \
            PKG_CONFIG_PATH="$out/root/my tools/lib/pkgconfig" pkg-config --cflags --libs mpt)
    check "a program builds from the installed headers" \
        sh -c "cc '$out/user.c' $flags -o '$out/user' && '$out/user'"
    version=$(PKG_CONFIG_PATH="$out/root/my tools/lib/pkgconfig" pkg-config --modversion mpt)
    check "mpt.pc knows the version $version" sh -c "echo '$version' | grep -qE '^[0-9]+\.[0-9]+\.[0-9]+$'"
else
    skip "pkg-config is not installed"
fi

# A CMake project must find the package, which is moved to another place here, with its headers and libm.
if have cmake; then
    rm -rf "$out/moved" "$out/cmake" "$out/lib" && mkdir -p "$out/cmake"
    mv "$out/root/my tools" "$out/moved"
    cp "$out/user.c" "$out/cmake"
    # cmake_project VERSION FLAG -- configure a project that requires this version
    cmake_project() {
        cat > "$out/cmake/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.5)
project(user C)
find_package(mpt $1 REQUIRED CONFIG)
find_package(mpt REQUIRED)
add_executable(user user.c)
target_link_libraries(user mpt::mpt)
CMAKE
        rm -rf "$out/cmake/build"
        cmake -S "$out/cmake" -B "$out/cmake/build" "$2"
    }
    version=$(sed -n 's/^set(PACKAGE_VERSION \(.*\))$/\1/p' "$out/moved/lib/cmake/mpt/mptConfigVersion.cmake")
    check "CMake finds mpt $version" cmake_project "$version EXACT" "-DCMAKE_PREFIX_PATH=$out/moved"
    check "CMake finds mpt ${version%.*}" cmake_project "${version%.*}" "-DCMAKE_PREFIX_PATH=$out/moved"
    check "its program builds" cmake --build "$out/cmake/build"
    check "its program runs" "$out/cmake/build/user"
    for other in 99 99.0 "${version%.*}.99" "$((${version%%.*} + 1)).${version#*.}"; do
        if cmake_project "$other" "-DCMAKE_PREFIX_PATH=$out/moved" > "$out/cmake.log" 2>&1; then
            fail "CMake took it for mpt $other"
        elif grep -q "version: $version" "$out/cmake.log"; then pass "CMake says that it is not mpt $other"
        else fail "CMake does not say why it is not mpt $other"; cat "$out/cmake.log"; fi
    done
    ln -s moved/lib "$out/lib"
    check "CMake finds mpt through a link to lib" cmake_project "$version" "-Dmpt_DIR=$out/lib/cmake/mpt"
    check "that program builds too" cmake --build "$out/cmake/build"
    rm -f "$out/lib"
    cat > "$out/cmake/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.14)
project(user C)
include(FetchContent)
FetchContent_Declare(mpt SOURCE_DIR "$PWD")
FetchContent_MakeAvailable(mpt)
add_executable(user user.c)
target_include_directories(user PRIVATE \${mpt_SOURCE_DIR})
target_link_libraries(user m)
CMAKE
    rm -rf "$out/cmake/build"
    check "CMake takes the source folder by FetchContent" cmake -S "$out/cmake" -B "$out/cmake/build"
    check "that program builds" cmake --build "$out/cmake/build"
    check "its program runs" "$out/cmake/build/user"
else
    skip "cmake is not installed"
fi
if git rev-parse --git-dir >/dev/null 2>&1; then
    rm -rf "$out/clone"
    check "a fresh clone" git clone -q . "$out/clone"
    # A test of each header and an example are enough to show that nothing else is needed.
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
