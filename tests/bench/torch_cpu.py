"""torch_cpu.py LIBRARY [MEBI] -- compares the passes of threads.c with PyTorch's on the CPU, on the same
arrays in turn, with 1, 2, 4 ... threads; for make bench-torch. LIBRARY is threads.c as a shared library.

A step's time depends on where its arrays are in memory, by a third on some machines. So both are measured in
one process, and the medians are over five processes, each of which has its own pages.
"""
import ctypes
import os
import statistics
import subprocess
import sys
import time

ROUNDS, RUNS = 5, 15
library, mebi = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 31


def measure():
    import torch
    ours = ctypes.CDLL(os.path.abspath(library))
    ours.threads_take.argtypes = [ctypes.c_size_t] + [ctypes.c_void_p] * 6
    ours.threads_run.argtypes = [ctypes.c_char_p, ctypes.c_int]
    n = mebi << 20
    weights = torch.nn.Parameter(torch.rand(n) * 0.6)
    weights.grad = torch.rand(n) * 6e-4
    half = torch.full((n,), 1e-3, dtype=torch.float16)
    brain = torch.full((n,), 1e-3, dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW([weights], lr=1e-3, fused=True)
    optimizer.step()
    m, v = (optimizer.state[weights][key] for key in ("exp_avg", "exp_avg_sq"))
    found, inverse = torch.zeros(1), torch.ones(1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
    scaler.scale(torch.zeros(1))

    def unscale(grad):
        torch._amp_foreach_non_finite_check_and_unscale_([grad], found, inverse)

    def unscale_and_norm(grad):
        unscale(grad)
        torch.nn.utils.get_total_norm([grad])

    def copy():
        with torch.no_grad():
            brain.copy_(weights)

    def step_and_copy():
        optimizer.step()
        copy()

    def whole():
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_([weights], 1.0)
        scaler.step(optimizer)
        scaler.update(1.0)
        copy()

    passes = {      # PyTorch's pass; and the 16-bit array that ours uses too
        "f32 -> f16": (lambda: half.copy_(weights.data), half),
        "f32 -> bf16": (lambda: brain.copy_(weights.data), brain),
        "f16 -> f32": (lambda: m.copy_(half), half),
        "bf16 -> f32": (lambda: m.copy_(brain), brain),
        "unscale, f32": (lambda: unscale(weights.grad), half),
        "unscale, f16": (lambda: unscale(half), half),
        "unscale and norm, f32": (lambda: unscale_and_norm(weights.grad), half),
        "unscale and norm, f16": (lambda: unscale_and_norm(half), half),
        "AdamW, f32 grad, no copy": (optimizer.step, half),
        "AdamW, f32 grad, bf16 copy": (step_and_copy, half),
        "check + AdamW, f32 grad, bf16 copy": (whole, half),
    }
    print("PyTorch", torch.__version__)
    for name, (theirs, sixteen) in passes.items():
        row = name.replace(" and norm", "").encode()        # our pass does both
        ours.threads_take(n, *(t.data_ptr() for t in (weights, m, v, weights.grad, sixteen, brain)))
        threads = 1
        while threads <= len(os.sched_getaffinity(0)):
            torch.set_num_threads(threads)
            times = [], []
            for _ in range(RUNS + 2):
                at = time.perf_counter()
                theirs()
                between = time.perf_counter()
                if ours.threads_run(row, threads):
                    sys.exit("threads.c has no row " + row.decode())
                times[0].append(time.perf_counter() - between)
                times[1].append(between - at)
            print("%s|%d|%.4f|%.4f" % (name, threads, *(1e3 * statistics.median(t[2:]) for t in times)))
            threads *= 2


if len(sys.argv) > 3:
    measure()
    sys.exit()
# threads that wait must not take processors from the other library
quiet = dict(os.environ, OMP_WAIT_POLICY="passive")
got, version = {}, ""
for _ in range(ROUNDS):
    done = subprocess.run([sys.executable, __file__, library, str(mebi), "measure"], env=quiet, text=True,
                          stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit("no PyTorch? PYTHON=... make bench-torch")
    version, *lines = done.stdout.splitlines()
    for line in lines:
        name, threads, ours, theirs = line.split("|")
        got.setdefault((name, threads), []).append((float(ours), float(theirs)))
print("%d Mi elements, %s; milliseconds and ratio, medians of %d processes\n%-36s %7s %9s %9s %7s  from, to" %
      (mebi, version, ROUNDS, "", "threads", "ours", "PyTorch", "ratio"))
for (name, threads), pairs in got.items():
    ratios = sorted(theirs / ours for ours, theirs in pairs)
    print("%-36s %7s %9.3f %9.3f %7.2f  %.2f, %.2f" %
          (name, threads, *(statistics.median(column) for column in zip(*pairs)), statistics.median(ratios),
           ratios[0], ratios[-1]))
