#!/usr/bin/env python3
"""inspect_torch.py FILE [THREADS] -- computes with PyTorch the figures that examples/inspect prints: for each
float tensor range, mean, deviation, zeros, NaN and Inf; for each format how many values become zero or
overflow, and the decibels. For tests/bench/inspect.sh."""
import sys
import torch
from safetensors import safe_open

torch.set_num_threads(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
formats = (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
with safe_open(sys.argv[1], "pt") as f:
    for name in f.keys():
        x = f.get_tensor(name)
        for part in x.flatten().split(1 << 26):         # limits the memory for copies of a large tensor
            a = part.abs()
            finite = torch.isfinite(part)
            print(name, float(a.max()), float(a[a > 0].min()), float(part.mean(dtype=torch.double)),
                  float(part.std()), int((part == 0).sum()), int(part.isnan().sum()), int((~finite).sum()))
            for kind in formats:
                y = part.to(kind).float()
                noise = (part - y).double().square().sum()
                print(kind, int(((y == 0) & (part != 0)).sum()), int((~torch.isfinite(y)).sum()),
                      float(10 * torch.log10(part.double().square().sum() / noise)))
