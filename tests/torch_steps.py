#!/usr/bin/env python3
"""torch_steps.py > tests/torch_steps.h -- runs PyTorch's optimizers on three tensors in groups, in double,
and prints the weights. tests/test_mpt_optim.c compares mpt.h with these and so needs no PyTorch."""
import torch

SHAPES = [(3, 4), (5,), (2, 3, 4)]
STEPS = 12
# learning rate and weight decay of each group, as multiples of the optimizer's
GROUPS = [(1.0, 1.0), (0.5, 0.0), (3.0, 0.25)]
# name, class, options; in the same order as in test_mpt_optim.c
CASES = [
    ("sgd", torch.optim.SGD, dict(lr=0.05, momentum=0.9, weight_decay=0.1)),
    ("sgd_nesterov", torch.optim.SGD, dict(lr=0.05, momentum=0.9, weight_decay=0.1, nesterov=True)),
    ("sgd_dampening", torch.optim.SGD, dict(lr=0.05, momentum=0.9, weight_decay=0.1, dampening=0.5)),
    ("sgd_maximize", torch.optim.SGD, dict(lr=0.05, momentum=0.5, weight_decay=0.1, maximize=True)),
    ("adamw", torch.optim.AdamW, dict(lr=0.01, weight_decay=0.1)),
    ("adamw_maximize", torch.optim.AdamW, dict(lr=0.01, weight_decay=0.1, maximize=True)),
    ("adam", torch.optim.Adam, dict(lr=0.01, weight_decay=0.1)),
    ("adam_amsgrad", torch.optim.Adam, dict(lr=0.01, betas=(0.9, 0.5), weight_decay=0.1, amsgrad=True)),
    ("adamw_amsgrad", torch.optim.AdamW, dict(lr=0.01, betas=(0.9, 0.5), weight_decay=0.1, amsgrad=True)),
    ("adafactor", torch.optim.Adafactor, dict(lr=0.02, weight_decay=0.1, eps=(2.0**-23, 1e-3))),
    ("adafactor_maximize", torch.optim.Adafactor,
     dict(lr=0.02, weight_decay=0.1, eps=(2.0**-23, 1e-3), maximize=True)),
]


def weight(k, i):
    return ((i * 29 + k * 11) % 32 + 1) / 32.0


def gradient(k, i, t):
    return ((i * 37 + k * 59 + t * 101) % 64 - 31) / 32.0


def run(kind, options):
    tensors = []
    for k, shape in enumerate(SHAPES):
        n = torch.Size(shape).numel()
        tensors.append(torch.tensor([weight(k, i) for i in range(n)], dtype=torch.float64).reshape(shape)
                       .requires_grad_())
    groups = [dict(params=[p], lr=options["lr"] * lr, weight_decay=options["weight_decay"] * decay)
              for p, (lr, decay) in zip(tensors, GROUPS)]
    optimizer = kind(groups, **options)
    for t in range(STEPS):
        for k, p in enumerate(tensors):
            p.grad = torch.tensor([gradient(k, i, t) for i in range(p.numel())],
                                  dtype=torch.float64).reshape(p.shape)
        optimizer.step()
    return [x for p in tensors for x in p.detach().flatten().tolist()]


version = torch.__version__.split("+")[0]
print(f"/* torch_steps.h -- by tests/torch_steps.py with PyTorch {version}, in double: weights of three\n"
      " * tensors in groups after 12 steps. */\n"
      "static const double torch_steps[][41] = {")
for name, kind, options in CASES:
    print(f"    {{ /* {name} */")
    values = run(kind, options)
    for i in range(0, len(values), 7):
        print("    " + " ".join(f"{x:.9g}," for x in values[i:i + 7]))
    print("    },")
print("};")
