#!/bin/sh
# torch.sh BUILD_DIR [MEBI] -- the passes of threads.c beside PyTorch's on the same threads, turn about, three
# times; medians. PYTHON names the Python that has torch (pip install torch).
out=${1:-build}/bench
n=${2:-31}
python=${PYTHON:-python3}
most=${OMP_NUM_THREADS:-$(nproc)}
rm -f "$out"/torch.ours "$out"/torch.theirs
for round in 1 2 3; do
    OMP_NUM_THREADS=$most "$python" tests/bench/torch_cpu.py "$n" "$most" >> "$out/torch.theirs" || {
        echo "no PyTorch: PYTHON=... make bench-torch" >&2
        exit 1
    }
    OMP_NUM_THREADS=$most "$out/threads" --csv "$n" >> "$out/torch.ours" || exit 1
done
version=$(sed -n 's/^#torch //p' "$out/torch.theirs" | head -n 1)
echo "$n Mi elements, PyTorch $version, medians of $round rounds; milliseconds"
printf '%-36s %7s %9s %9s %7s\n' "" threads ours PyTorch ratio
awk -F'|' 'NF == 3 { key = $1 "|" $2; t[FILENAME == ARGV[1], key, ++c[FILENAME == ARGV[1], key]] = $3 + 0
                     if (FILENAME == ARGV[1] && !seen[key]++) order[++rows] = key }
    function median(f, key,   a, b, d) {
        a = t[f, key, 1]; b = t[f, key, 2]; d = t[f, key, 3]
        return a > b ? (b > d ? b : a > d ? d : a) : (a > d ? a : b > d ? d : b) }
    END { for (i = 1; i <= rows; i++) { split(order[i], part, "|")
          o = median(0, order[i]); p = median(1, order[i])
          if (o) printf "%-36s %7d %9.3f %9.3f %7.2f\n", part[1], part[2], o, p, p / o } }' \
    "$out/torch.theirs" "$out/torch.ours"
