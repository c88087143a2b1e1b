#!/bin/sh
# run_portable.sh BUILD_DIR -- checks machines that are not at hand, by the clang in Zig's PyPI package: it
# compiles for macOS on both processors and for Windows on Arm, and builds test_digest for WebAssembly, where
# wasmtime runs it with the same digests. It also checks the headers with all warnings of this newest clang.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=${1:-build}/portable
mkdir -p "$out" || exit 1
python=$(python_with ziglang,wasmtime)
if [ -z "$python" ]; then
    skip "no Python with ziglang and wasmtime: pip install them, and set PYTHON"
    summary
    exit
fi
export ZIG_GLOBAL_CACHE_DIR="$out/cache" ZIG_LOCAL_CACHE_DIR="$out/cache"

zig() { "$python" -m ziglang cc -std=c99 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -I. "$@"; }

# All warnings except those that contradict our style: a default beside all enumerators, switches without one,
# commas between assignments, arrays behind pointers, padding in structs, functions marked as unused.
check "-Weverything" zig -O0 -Weverything -Wno-covered-switch-default -Wno-switch-enum \
    -Wno-switch-default -Wno-comma -Wno-unsafe-buffer-usage -Wno-padded -Wno-used-but-marked-unused \
    -Wno-bad-function-cast -Wno-format-nonliteral -Wno-nrvo -c tests/impl.c -o "$out/everything.o"

for target in aarch64-macos x86_64-macos aarch64-windows-gnu; do
    for source in impl test_digest; do  # no linking: that would first build each system's libraries
        check "$source for $target" zig -O0 -target $target -c tests/$source.c -o "$out/$target-$source.o"
    done
done
check "builds for wasm32-wasi" \
    zig -O1 -target wasm32-wasi tests/test_digest.c tests/impl.c -o "$out/digest.wasm"
cat > "$out/run.py" <<'PYTHON'
import sys, wasmtime
engine = wasmtime.Engine()
linker, store, wasi = wasmtime.Linker(engine), wasmtime.Store(engine), wasmtime.WasiConfig()
linker.define_wasi()
wasi.argv = [sys.argv[1]]
wasi.inherit_stdout()
store.set_wasi(wasi)
program = linker.instantiate(store, wasmtime.Module.from_file(engine, sys.argv[1]))
try:
    program.exports(store)["_start"](store)
except wasmtime.ExitTrap as end:
    sys.exit(end.code)
PYTHON
"$python" "$out/run.py" "$out/digest.wasm" > "$out/digest.log" 2>&1
code=$?
case $(result_of $code "$out/digest.log") in
passed) pass "the digest in WebAssembly" ;;
*) fail "the digest in WebAssembly: exit $code"; tail -n 20 "$out/digest.log" ;;
esac
summary
