"""judge.py -- shared by judge_*.py: access to the shared object of judge.c, formats, counting of checks."""
import ctypes
import sys

import ml_dtypes
import numpy as np

passed = failed = 0


def check(name, ok, detail=""):
    global passed, failed
    if ok:
        passed += 1
    else:
        failed += 1
        print(f"FAIL  {name} {detail}")


def finish():
    print(f"{passed} passed, {failed} failed, 0 skipped")
    sys.exit(failed > 0)


so = ctypes.CDLL(sys.argv[1])
so.judge_format.restype = ctypes.c_char_p
so.judge_text.restype = ctypes.c_size_t


def at(array):
    assert array.flags.c_contiguous
    return array.ctypes.data_as(ctypes.c_void_p)        # this pointer keeps the array alive


def size(n):
    return ctypes.c_size_t(n)


class Format:
    """One of our formats, and the type of numpy or ml_dtypes with the same numbers, if there is one."""

    def __init__(self, number, name, facts):
        self.number, self.name = number, name
        self.bits, self.mantissa, self.bytes, self.signed = (int(x) for x in facts[:4])
        self.facts = facts
        self.words = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[self.bytes]
        self.type = next((t for t in JUDGES if self.is_like(t)), None)

    def is_like(self, judge):
        i = ml_dtypes.finfo(judge)
        theirs = i.bits, float(i.max), float(i.smallest_subnormal)
        return theirs == (self.bits, self.facts[4], self.facts[5])

    def values(self, codes):
        """The values of codes according to numpy or ml_dtypes, in float64."""
        return codes.astype(self.words).view(self.type).astype(np.float64)

    def encode(self, x):
        out = np.empty(len(x), np.uint64)
        so.judge_encode(self.number, at(x), at(out), size(len(x)))
        return out

    def decode(self, codes):
        out = np.empty(len(codes))
        so.judge_decode(self.number, at(codes.astype(np.uint64)), at(out), size(len(codes)))
        return out


JUDGES = [np.float64, np.float32, np.float16] + [getattr(ml_dtypes, n) for n in dir(ml_dtypes)
                                                if n.startswith(("bfloat", "float"))]


def formats():
    facts = (ctypes.c_double * 6)()
    number = 0
    while (name := so.judge_format(number, facts)) is not None:
        yield Format(number, name.decode(), list(facts))
        number += 1


def same(a, b):
    """Equal numbers, zeros with the same sign, or both NaN."""
    return np.where(np.isnan(a) | np.isnan(b), np.isnan(a) & np.isnan(b),
                    (a == b) & (np.signbit(a) == np.signbit(b)))


def wrong(ok, *shown):
    """A text with the number of wrong elements and the first one; empty if all are right."""
    i = np.flatnonzero(~ok)
    return f"{len(i)} of {len(ok)} wrong, first: " + ", ".join(repr(s[i[0]]) for s in shown) if len(i) else ""
