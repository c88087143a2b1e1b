"""torch_step.py -- PyTorch's step, for bench_cuda: unscale_, clip_grad_norm_, fused AdamW, update, copy.

Prints a line "#version", then lines "name milliseconds"; nothing, and exit status 3, without torch or CUDA.
"""
import statistics
import sys

try:
    import torch
except ImportError:
    sys.exit(3)
if not torch.cuda.is_available():
    sys.exit(3)


class Training:
    def __init__(self, sizes):
        self.weights = [torch.nn.Parameter(torch.randn(n, device="cuda") * 0.1) for n in sizes]
        for w in self.weights:
            w.grad = torch.randn_like(w)
        self.copies = [torch.empty(n, dtype=torch.bfloat16, device="cuda") for n in sizes]
        self.optimizer = torch.optim.AdamW(self.weights, lr=1e-3, fused=True, capturable=True)
        self.scaler = torch.amp.GradScaler("cuda", init_scale=1.0)
        self.scaler.scale(torch.zeros(1, device="cuda"))

    def step(self):
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.weights, 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        with torch.no_grad():
            torch._foreach_copy_(self.copies, self.weights)


def median_ms(body):
    times = []
    for i in range(18):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        body()
        end.record()
        torch.cuda.synchronize()
        if i >= 3:
            times.append(begin.elapsed_time(end))
    return statistics.median(times)


def measure(name, sizes):
    training = Training(sizes)
    print(name + "_eager", median_ms(training.step), flush=True)
    try:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            training.step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            training.step()
        print(name + "_graph", median_ms(graph.replay), flush=True)
    except RuntimeError as e:       # not capturable in versions whose step synchronizes with the host
        print(name, "is not captured:", e, file=sys.stderr)


print("#torch", torch.__version__, flush=True)
measure("small", [1000 + 97 * i for i in range(1000)])
torch.cuda.empty_cache()
if torch.cuda.mem_get_info()[0] > 24e9:
    measure("flat", [1000000000])
