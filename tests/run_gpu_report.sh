#!/bin/sh
# run_gpu_report.sh BUILD_DIR -- tests gpu_report.sh without a GPU: once complete, with a stub of nvcc that
# compiles for tests/emu, and once for each way it can go wrong. Each run must end with a clear line, the
# table, a summary in its folder, and, except for the complete one, a nonzero exit status.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
out=${1:-build}/gpu-report
rm -rf "$out"
mkdir -p "$out/tools" "$out/cache" || exit 1
out=$(cd "$out" && pwd)
real_cc=$(command -v "${CC:-cc}")
unset MPT_CI CI CC NVCC MPT_EMU_SHUFFLE MPT_EMU_DEFERRED MPT_EMU_RESIDENT MPT_EMU_HIDE

# The stubs. nvcc and cc cache what they made, so that they compile everything once; or nvcc takes what the
# suite cuda-emu, if it ran before, has compiled for the emulation.
cat > "$out/tools/nvidia-smi" << 'END'
#!/bin/sh
case $* in *=name,*) echo "name, driver" ;; *compute_cap*) echo 9.0 ;; esac
echo "Emulated H200"
END
cat > "$out/tools/compute-sanitizer" << 'END'
#!/bin/sh
for last; do [ -x "$last" ] && echo "========= ERROR SUMMARY: 0 errors" && exit 0; done
exit 9
END
cat > "$out/tools/nvcc" << END
#!/bin/sh
cache=$out/cache made=$(cd "$out/.." && pwd)/cuda-emu
END
cat >> "$out/tools/nvcc" << 'END'
case $* in
*--version*) echo "nvcc: a stub" && exit ;;
*-arch=sm_90*) ;;
*) echo "error: no explicit -arch" && exit 1 ;;
esac
case $* in *"${STUB_BREAKS:-nothing}"*) echo "error: this one does not compile" && exit 1 ;; esac
kept=$cache/$(echo "$*" | cksum | tr ' ' '-')
for to; do :; done                      # -o FILE comes last
source=$(echo "$*" | sed -n 's/.* -c \([^ ]*\) .*/\1/p')
for ready in "$made"/g++_-O[012]_"$(echo "$source" | tr / _)".o; do    # what run_cuda_emu.sh has compiled
    [ -f "$ready" ] && [ -z "$(find mpt*.h tests -newer "$ready")" ] && cp "$ready" "$kept"
done
if [ ! -f "$kept" ]; then
    set -- $(printf '%s\n' "$@" | grep -vE '^-(arch|l|O3)')
    case $* in *examples/*) speed=-O1 ;; *) speed=-O0 ;; esac       # examples run longer than they compile
    case $* in
    *10_drop_into_cuda*)
        name=$(echo "$*" | tr ' ' '\n' | grep '\.cu$')
        (. tests/lib.sh && without_triple "$name") > "$kept.cu"
        g++ $speed -x c++ -DMPT_CUDA_EMU -std=c++17 -Itests/emu -I. -include tests/emu/triple.h "$kept.cu" \
            -o "$kept" ;;
    *.cu*) g++ $speed -x c++ -DMPT_CUDA_EMU -Itests/emu $(echo "$*" | sed "s| -o .*||") -o "$kept" ;;
    *) g++ $(echo "$*" | sed "s| -o .*||; s|-std=[^ ]*||") -o "$kept" ;;
    esac || exit 1
fi
cp "$kept" "$to"
END
cat > "$out/tools/cc" << END
#!/bin/sh
kept=$out/cache/impl.o cc='$real_cc'
END
cat >> "$out/tools/cc" << 'END'
case $* in *tests/impl.c*) ;; *) exec "$cc" "$@" ;; esac
for to; do :; done
[ -f "$kept" ] || "$cc" -O1 -I. -c tests/impl.c -o "$kept" || exit 1
cp "$kept" "$to"
END
chmod +x "$out"/tools/*
tools=$out/tools:$PATH

report() {      # report NAME VARIABLE=VALUE...: run a report; its output is in $log, its exit status in $code
    name=$1 log=$out/$1.out
    shift
    mkdir -p "$out/$name"
    env PATH="$tools" MPT_REPORT_SMALL=1 MPT_REPORT_DIR="$out/$name" "$@" \
        sh tests/gpu_report.sh "$out/build" > "$log" 2>&1
    code=$?
}
ends() {        # ends WHAT STATUS PATTERN...: checks exit status, table, summary, and each pattern in $log
    what=$1 status=$2
    shift 2
    if [ "$((code != 0))" != "$status" ]; then
        fail "$what: exit status $code"
        grep FAILED "$log"
        return
    fi
    for pattern in "^[0-9]* ok, [0-9]* failed, [0-9]* skipped" '^| part | result' "$@"; do
        grep -qE "$pattern" "$log" && continue
        fail "$what: no \"$pattern\""
        tail -n 8 "$log"
        return
    done
    if ! grep -q '^| part | result' "$out/$name/summary.md"; then fail "$what: no summary"; return; fi
    pass "$what"
}

report whole MPT_REPORT_SECONDS=3000
ends "the whole report" 0 '\| builds \| ok \|.*\| 17 of 17' '\| test_cuda \| ok .* 0 failed, 0 skipped' \
    '\| test_cuda_report \| ok' '\| example 05 \| ok .*97' '\| example 10_after \| ok' \
    '\| PyTorch \| (ok|skipped)' '\| benchmark \| ok' '\| synccheck test_cuda_report \| ok' \
    '\| memcheck test_cuda_gemm \| ok' ' 0 failed, [01] skipped'
check "its summary has the benchmark" grep -q '^### Kernels of the step' "$out/whole/summary.md"
check "its summary has the machine" grep -q 'nvcc: a stub' "$out/whole/summary.md"
check "a log for each part" test -s "$out/whole/test_cuda_optim.log"

report no-device PATH=/usr/bin:/bin
ends "no device" 1 'machine .*FAILED .*no NVIDIA GPU'
report no-nvcc NVCC=/no/such/nvcc
ends "no nvcc" 1 'machine .*FAILED .*no nvcc: install the CUDA toolkit'
report old-driver MPT_EMU_ERROR=35
ends "an old driver" 1 'device .*FAILED .*driver version is insufficient.*update the NVIDIA driver'
report broken STUB_BREAKS=test_cuda_optim.cu MPT_REPORT_SECONDS=3000
ends "a program that does not compile" 1 'build test_cuda_optim.o .*FAILED .*does not compile' \
    '\| test_cuda_optim \| skipped .*not built' '\| test_cuda_report \| ok' '\| benchmark \| ok'
report no-time MPT_REPORT_SECONDS=1
ends "no time" 1 'skipped .*the 1 s of the report were over|FAILED .*stopped after 1 s'

# killed in the middle
name=killed log=$out/killed.out
mkdir -p "$out/killed"
env PATH="$tools" MPT_REPORT_SMALL=1 MPT_REPORT_DIR="$out/killed" sh tests/gpu_report.sh "$out/build" \
    > "$log" 2>&1 &
pid=$!
for i in $(seq 6000); do
    if grep -q 'device .*ok' "$log" 2> /dev/null || ! kill -0 $pid 2> /dev/null; then break; fi
    sleep 0.1
done
kill $pid
wait $pid
code=$?
ends "killed in the middle" 1 'FAILED .*the report was stopped here' '\| device \| ok'
summary
