"""PyTorch's passes on the CPU, under the names of threads.c, for bench-torch: FP32 gradients, a fused AdamW.

    python3 tests/bench/torch_cpu.py 31 2      # 31 Mi elements, 1 and 2 threads
Prints a line "#torch VERSION", then lines "name|threads|milliseconds"; exit status 3 without torch.
"""
import statistics
import sys
import time

try:
    import torch
except ImportError:
    sys.exit(3)

n = int(sys.argv[1]) << 20
most = int(sys.argv[2])
weights = torch.nn.Parameter(torch.rand(n) * 0.6)
weights.grad = torch.rand(n) * 6e-4
half = torch.full((n,), 1e-3, dtype=torch.float16)
brain = torch.full((n,), 1e-3, dtype=torch.bfloat16)
floats = torch.empty(n)
copy = torch.empty(n, dtype=torch.bfloat16)
optimizer = torch.optim.AdamW([weights], lr=1e-3, fused=True)
found = torch.zeros(1)
inverse = torch.ones(1)
scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
scaler.scale(torch.zeros(1))


def whole():
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_([weights], 1.0)
    scaler.step(optimizer)
    scaler.update(1.0)
    with torch.no_grad():
        copy.copy_(weights)


def unscale(grad):
    torch._amp_foreach_non_finite_check_and_unscale_([grad], found, inverse)


passes = {
    "f32 -> f16": lambda: half.copy_(weights.data),
    "f32 -> bf16": lambda: brain.copy_(weights.data),
    "f16 -> f32": lambda: floats.copy_(half),
    "bf16 -> f32": lambda: floats.copy_(brain),
    "unscale, f32": lambda: unscale(weights.grad),
    "unscale, f16": lambda: unscale(half),
    "unscale and norm, f32": lambda: (unscale(weights.grad), torch.nn.utils.get_total_norm([weights.grad])),
    "unscale and norm, f16": lambda: (unscale(half), torch.nn.utils.get_total_norm([half])),
    "AdamW, f32 grad, no copy": optimizer.step,
    "check + AdamW, f32 grad, bf16 copy": whole,
}
print("#torch", torch.__version__, flush=True)
for name, run in passes.items():
    threads = 1
    while threads <= most:
        torch.set_num_threads(threads)
        times = []
        for i in range(17):
            begin = time.perf_counter()
            run()
            times.append(time.perf_counter() - begin)
        print("%s|%d|%.4f" % (name, threads, statistics.median(times[2:]) * 1e3), flush=True)
        threads *= 2
