"""judge_numpy.py JUDGE.so -- compares our conversions, arithmetic and text with numpy and ml_dtypes: every
code of every format of up to 16 bits that both have, the values next to all midpoints, random floats."""
import ctypes
import warnings

import ml_dtypes
import numpy as np
from judge import JUDGES, at, check, finish, formats, same, size, so, wrong

warnings.filterwarnings("ignore")
np.seterr(all="ignore")
rng = np.random.default_rng(1)
all_formats = list(formats())
f64, f32 = (next(f for f in all_formats if f.name == n) for n in ("f64", "f32"))


def boundaries(f):
    """All numbers of the format, the midpoints, numbers out of its range, and the doubles next to these."""
    x = f.values(np.arange(2 ** f.bits))
    x = np.unique(x[np.isfinite(x)])
    top = x[-1] + (x[-1] - x[-2]) * np.array([0.5, 0.75, 1.0, 2.0])
    least = x[x > 0][0] * np.array([0.25, 0.5, 0.75])
    x = np.concatenate([x, (x[1:] + x[:-1]) / 2, top, -top, least, -least])
    x = np.concatenate([x, np.nextafter(x, np.inf), np.nextafter(x, -np.inf)])
    return np.concatenate([x, [0.0, -0.0, np.inf, -np.inf, np.nan, 1e300, -1e300, 5e-324, -5e-324]])


def nearest(f, x):
    """The nearest number of the format, in float64, from the list of its values; at a tie the even code, or
    the greater power of two. x lies between the format's least and greatest number."""
    codes = np.arange(2 ** f.bits)
    value = f.values(codes)
    codes, value = codes[np.isfinite(value)], value[np.isfinite(value)]
    order = np.argsort(value, kind="stable")
    value, codes = value[order], codes[order]
    value, first = np.unique(value, return_index=True)
    codes = codes[first]
    up = np.clip(np.searchsorted(value, x), 1, len(value) - 1)
    low, high, middle = value[up - 1], value[up], (value[up - 1] + value[up]) / 2
    to_high = (x > middle) | ((x == middle) & ((codes[up] % 2 == 0) if f.mantissa else True))
    return np.where(to_high, high, low)


def asked(f, x):
    """Where both should agree. ml_dtypes turns NaN into 0 in a format without NaN, and 0 into NaN without 0;
    we take the greatest and the least number. Its e8m0 rounds subnormals up, even 1.2 * 2^-127."""
    value = f.values(np.arange(2 ** f.bits))
    has_nan, has_zero = np.isnan(value).any(), (value == 0).any()
    return (has_nan | ~np.isnan(x)) & (has_zero | ~(np.abs(x) < 2.0 ** -126))


def significant(text):
    return text.lstrip("-").split("e")[0].replace(".", "").strip("0")


judged = {np.float64: f64}
for f in all_formats:
    if f.type is None or f.bits > 16:
        continue
    judged[f.type] = f
    codes = np.arange(2 ** f.bits)
    theirs, ours = f.values(codes), f.decode(codes)
    ok = same(ours, theirs)
    check(f"{f.name}: every code", ok.all(), wrong(ok, codes, ours, theirs))

    # numpy rounds float64 to float16 once; ml_dtypes goes through float32, so it gets float32 numbers.
    doubles = rng.integers(0, 2 ** 64, 200000, np.uint64).view(float)
    for name, x in ("boundaries", boundaries(f)), ("random", doubles):
        inside = np.abs(x) <= f.facts[4]
        inside &= (x >= f.facts[5]) if not f.signed else True
        theirs, ours = nearest(f, x[inside]), f.decode(f.encode(x[inside]))
        ok = ours == theirs
        check(f"{f.name}: {name} in double", ok.all(), wrong(ok, x[inside], ours, theirs))
        if f.type is not np.float16:
            x = x.astype(np.float32).astype(np.float64)
        x = x[asked(f, x)]
        theirs, ours = x.astype(f.type).astype(np.float64), f.decode(f.encode(x))
        ok = same(ours, theirs)
        check(f"{f.name}: {name}", ok.all(), wrong(ok, x, ours, theirs))

    # Array functions, which use vector instructions, from float32 and back: all exponents and rounding bits.
    floats = rng.integers(0, 2 ** 32, 500000, np.uint32).view(np.float32)
    x = np.concatenate([boundaries(f).astype(np.float32), floats])
    x = x[asked(f, x)]
    to, back = np.empty(len(x), f.words), np.empty(len(x), np.float32)
    check(f"{f.name}: the call", so.judge_convert(f.number, at(to), f32.number, at(x), size(len(x))) == 0)
    theirs = x.astype(f.type).astype(np.float64)
    ok = same(f.values(to), theirs)
    check(f"{f.name}: an array of float32", ok.all(), wrong(ok, x, f.values(to), theirs))
    so.judge_convert(f32.number, at(back), f.number, at(to), size(len(x)))
    ok = same(back.astype(np.float64), theirs)
    check(f"{f.name}: and back", ok.all(), wrong(ok, x, back, theirs))

    # Text reads back as the same number, and that of f16 is as short as numpy's.
    text = ctypes.create_string_buffer(64)
    finite = codes[np.isfinite(f.values(codes))]
    read, longer = [], 0
    for code in finite:
        so.judge_text(f.number, ctypes.c_uint64(int(code)), text, size(64))
        read.append(float(text.value))
        if f.name == "f16" and code % 7 == 1:
            digits = np.format_float_scientific(np.uint16(code).view(np.float16), unique=True)
            longer += len(significant(text.value.decode())) > len(significant(digits))
    ok = nearest(f, np.array(read)) == f.values(finite)
    check(f"{f.name}: text", ok.all() and not longer, wrong(ok, finite, read) or f"{longer} too long")

shared = [t for t in judged if t is not np.float64]
print("judged:", " ".join(sorted(judged[t].name for t in shared)))
left = [t.__name__ for t in JUDGES if t not in judged and t is not np.float32]
print("formats of the judges that we have no row for:", " ".join(left) or "none")
check("formats with a judge", len(shared) >= 10, f"only {len(shared)}")

# Arithmetic of f16 and bf16 on special and random pairs of codes. numpy computes in float32, which is precise
# enough for the rounding to 16 bits to be the only one that counts.
special = np.array([0, 0x8000, 1, 0x8001, 0x3ff, 0x400, 0x3c00, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00,
                    0x3f80, 0x7f7f, 0x7f80, 0xff80, 0x7fc0, 0x80, 0x7f], np.uint16)
a = np.concatenate([np.repeat(special, len(special)), rng.integers(0, 65536, 300000, np.uint16)])
b = np.concatenate([np.tile(special, len(special)), rng.integers(0, 65536, 300000, np.uint16)])
for base, t in (0, np.float16), (8, ml_dtypes.bfloat16):
    x, y = a.view(t), b.view(t)
    for op, (name, f) in enumerate([("add", np.add), ("sub", np.subtract), ("mul", np.multiply),
                                    ("div", np.divide), ("sqrt", lambda x, y: np.sqrt(x)),
                                    ("next", lambda x, y: np.nextafter(x, np.full_like(x, np.inf)))]):
        got = np.empty_like(a)
        so.judge_arithmetic(base + op, at(a), at(b), at(got), size(len(a)))
        ours, theirs = got.view(t).astype(float), f(x, y).astype(t).astype(float)
        ok = same(ours, theirs)
        if name == "next":      # next to a zero or NaN, our signs and payloads may differ
            ok |= (x == 0) | np.isnan(x)
        check(f"{t.__name__}: {name}", ok.all(), wrong(ok, x, y, ours, theirs))
finish()
