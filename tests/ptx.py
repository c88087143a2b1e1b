"""ptx.py -- a small interpreter of PTX, written from the PTX ISA. It runs one thread of one block at a time.

It tests what an emulation of the C source cannot: the instructions in inline assembly. Kernel(text, part of a
name) translates a kernel to Python, one function for each basic block; run(arguments, tid) executes it on
the memory of this process and returns the blocks that it went through. Collective operations of a warp or a
block return this thread's own value, which is right for everything but sums over threads.
"""
import ctypes
import math
import re
import struct
from fractions import Fraction

M = {8: 0xFF, 16: 0xFFFF, 32: 0xFFFFFFFF, 64: 0xFFFFFFFFFFFFFFFF}
WHOLE = {n: getattr(ctypes, "c_uint%d" % n) for n in M}


def get(address, bits):
    return WHOLE[bits].from_address(address).value


def put(address, bits, value):
    WHOLE[bits].from_address(address).value = value


def signed(x, bits):
    return x - (1 << bits) if x >> (bits - 1) else x


def f32(u):
    return struct.unpack("<f", struct.pack("<I", u))[0]


def f64(u):
    return struct.unpack("<d", struct.pack("<Q", u))[0]


def u64(x):
    return struct.unpack("<Q", struct.pack("<d", x))[0] if x == x else 0x7FFFFFFFFFFFFFFF


def rounded(x, exponent, mantissa):
    """The code of the nearest number in a format with these field widths, ties to even. x is a Fraction above
    0. Codes above the largest finite number continue as if exponents had no upper limit."""
    bias = (1 << (exponent - 1)) - 1
    e = max(x.numerator.bit_length() - x.denominator.bit_length(), 1 - bias)
    while Fraction(2) ** e > x and e > 1 - bias:
        e -= 1
    units = round(x / Fraction(2) ** (e - mantissa))        # Python's round: ties to even
    return units + ((e + bias - 1) << mantissa)


def to_f32(x, sign=0):
    """The FP32 code of a Fraction, or of a float that is zero, Inf or NaN."""
    if isinstance(x, float):
        if x != x:
            return 0x7FFFFFFF
        return (0x80000000 if math.copysign(1, x) < 0 else 0) | (0x7F800000 if x else 0)
    if not x:
        return sign << 31
    code = rounded(abs(x), 8, 23)
    return (0x80000000 if x < 0 else 0) | min(code, 0x7F800000)


def exact(op, *u):
    """op on exact numbers if all are finite, else on doubles, which have FP32's rules for Inf and NaN."""
    x = [f32(v) for v in u]
    if all(math.isfinite(v) for v in x):
        r = op(*[Fraction(v) for v in x])
        return to_f32(r, int(math.copysign(1, op(*x)) < 0) if not r else 0)
    return to_f32(op(*x) + 0.0)


def fma32(a, b, c):
    return exact(lambda x, y, z: x * y + z, a, b, c)


def mul32(a, b):
    return exact(lambda x, y: x * y, a, b)


def add32(a, b):
    return exact(lambda x, y: x + y, a, b)


def div32(a, b):
    x, y = f32(a), f32(b)
    if y == 0.0:
        s = math.copysign(1, x) * math.copysign(1, y)
        return 0x7FFFFFFF if x == 0 or x != x or y != y else to_f32(math.copysign(math.inf, s))
    return exact(lambda p, q: p / q, a, b)


def root32(a):
    x = f32(a)
    if x < 0 or x != x:
        return 0x7FFFFFFF
    return a if x in (0.0, math.inf) else struct.unpack("<I", struct.pack("<f", math.sqrt(x)))[0]


def fma64(a, b, c):
    x = [f64(v) for v in (a, b, c)]
    if all(math.isfinite(v) for v in x):
        r = Fraction(x[0]) * Fraction(x[1]) + Fraction(x[2])
        try:
            return u64(float(r) if r else x[0] * x[1] + x[2])
        except OverflowError:
            return u64(math.copysign(math.inf, r))
    return u64(x[0] * x[1] + x[2])


def double(op):
    def f(a, b):
        try:
            return u64(op(f64(a), f64(b)))
        except OverflowError:
            return u64(math.inf)
        except ZeroDivisionError:
            x, y = f64(a), f64(b)
            return u64(math.nan if not x or x != x else math.copysign(math.inf, x) * math.copysign(1, y))
    return f


add64, sub64, mul64 = double(lambda a, b: a + b), double(lambda a, b: a - b), double(lambda a, b: a * b)
div64 = double(lambda a, b: a / b)


def small(u, exponent, mantissa, most, inf, nan):
    """FP32 to a small format; codes above `most` become `inf`."""
    x, sign = f32(u), (u >> 31) << (exponent + mantissa)
    if x != x:
        return nan
    code = inf if math.isinf(x) else rounded(Fraction(abs(x)), exponent, mantissa) if x else 0
    return sign | (inf if code > most else code)


def half(u):
    return small(u, 5, 10, 0x7BFF, 0x7C00, 0x7FFF)


def pair(kind, high, low):
    a, b = (small(u, *((4, 3, 0x7E, 0x7E, 0x7F) if kind == "e4m3x2" else (5, 2, 0x7B, 0x7B, 0x7F)))
            for u in (high, low))
    return a << 8 | b


def from_half(h):
    sign, e, m = (h >> 15) << 31, h >> 10 & 31, h & 1023
    if e == 31:
        return 0x7FFFFFFF if m else sign | 0x7F800000
    return sign | (to_f32(Fraction(m + (1024 if e else 0)) * Fraction(2) ** (max(e, 1) - 25)))


def convert(to, frm, u, mode):
    """The cvt instruction between types of these names."""
    if to == "f64":
        if frm == "f32":
            return u64(f32(u)) if f32(u) == f32(u) else 0x7FFFFFFFFFFFFFFF
        return u64(float(signed(u, int(frm[1:])) if frm[0] == "s" else u))
    if frm == "f64":
        x = f64(u)
        if to == "f32":
            return to_f32(Fraction(x) if math.isfinite(x) and x else x)
        return int(x) & M[int(to[1:])]
    if to == "f32" and frm[0] in "us":
        x = signed(u, int(frm[1:])) if frm[0] == "s" else u
        return to_f32(Fraction(x)) if x else 0
    bits, wide = int(to[1:]), int(frm[1:])
    return (signed(u & M[wide], wide) if frm[0] == "s" else u & M[wide]) & M[bits]


def prmt(a, b, selector):
    both, r = a | b << 32, 0
    for i in range(4):
        s = selector >> 4 * i & 15
        byte = both >> 8 * (s & 7) & 255
        r |= ((255 if byte >> 7 else 0) if s & 8 else byte) << 8 * i
    return r


def bfi(a, b, at, n):
    mask = ((1 << n) - 1) << at
    return (b & ~mask | (a << at) & mask) & M[32]


def compare(op, kind, a, b):
    if kind[0] == "f":
        x, y = (f32(a), f32(b)) if kind == "f32" else (f64(a), f64(b))
        if x != x or y != y:
            return len(op) == 3         # equ, ltu ... are true also if one is NaN
        op = op[:2]
    else:
        n = int(kind[1:])
        x, y = (signed(a & M[n], n), signed(b & M[n], n)) if kind[0] == "s" else (a & M[n], b & M[n])
    return {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y,
            "lo": x < y, "ls": x <= y, "hi": x > y, "hs": x >= y}[op]


LINE = re.compile(r"(?:@(!?)(%\w+)\s+)?([a-z][\w.:]*)\s*(.*?);$")


class Instruction:
    def __init__(self, text):
        no, guard, op, rest = LINE.match(text).groups()
        self.guard, self.no, self.op, self.text = guard, bool(no), op, text
        self.args = [a.strip() for a in re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s{}\[\]]+", rest)]
        registers = [re.findall(r"%\w+(?:\.[xyz])?", a) for a in self.args]
        first_is_source = op.startswith(("st.", "bra", "bar", "ret", "membar", "exit")) or not self.args
        self.written = [] if first_is_source else registers[0]
        self.read = [r for a in (registers if first_is_source else registers[1:]) for r in a]
        self.read += [guard] if guard else []


class Kernel:
    """One kernel of a PTX text."""

    def __init__(self, text, name):
        found = re.search(r"\.entry (\w*%s\w*)\(([^)]*)\)[^{]*\{(.*?)\n\}" % name, text, re.S)
        if not found:
            raise KeyError(name)
        self.name, parameters, body = found.groups()
        self.parameters, at = {}, 0
        parameter = r"\.param (?:\.align (\d+) )?\.(\w+) (?:\.ptr (?:\.\w+ )*(?:\d+ )?)?(\w+)(?:\[(\d+)\])?"
        for align, kind, p, count in re.findall(parameter, parameters):
            size = int(kind[1:]) // 8
            step = int(align or size)
            at = (at + step - 1) // step * step
            self.parameters[p] = at
            at += size * int(count or 1)
        self.parameter_bytes = at
        self.shared, shared_bytes = {}, 0
        for align, kind, s, count in re.findall(r"\.shared \.align (\d+) \.(\w+) (\S+?)(?:\[(\d+)\])?;",
                                                text[:found.start()] + body):
            shared_bytes = (shared_bytes + 15) // 16 * 16
            self.shared[s] = shared_bytes
            shared_bytes += int(kind[1:]) // 8 * int(count or 1)
        self.memory = ctypes.create_string_buffer(shared_bytes + 64)
        self.blocks, self.labels = [[]], {}
        for line in body.split("\n"):
            line = line.split("//")[0].strip()
            scratch = re.match(r"\{ \.reg \.\w+ (\w+); (.*;) \}$", line)
            if scratch:
                line = scratch[2].replace(scratch[1], "%" + scratch[1])
            if not line or line.startswith(".") or line.startswith("//"):
                continue
            if line.endswith(":"):
                if self.blocks[-1]:
                    self.blocks.append([])
                self.labels[line[:-1]] = len(self.blocks) - 1
                continue
            self.blocks[-1].append(Instruction(line))
            if self.blocks[-1][-1].op.split(".")[0] in ("bra", "ret", "exit"):
                self.blocks.append([])
        self.registers = {}
        self.functions = [None] * len(self.blocks)

    # ---- translation ----
    def register(self, name):
        return "R[%d]" % self.registers.setdefault(name, len(self.registers))

    def value(self, a, kind="b32"):
        if a.startswith("%"):
            return self.register(a)
        if a.startswith("0f"):
            return str(int(a[2:], 16))
        if a.startswith("0d"):
            return str(int(a[2:], 16))
        if a in self.shared:
            return str(self.shared[a])
        if a in self.parameters:        # its address
            return "(PARAM + %d)" % self.parameters[a]
        width = re.search(r"\d+", kind)
        return str(int(a.rstrip("U"), 0) & M[int(width.group()) if width else 32])      # 0x5410U

    def address(self, a, space):
        base, _, offset = a[1:-1].partition("+")
        if base in self.parameters:
            return "(PARAM + %d + %s)" % (self.parameters[base], offset or 0)
        return "((%s + %s + %s) & %d)" % ("SHARED" if "shared" in space else 0, self.value(base, "b64"),
                                          offset or 0, M[64])

    def statement(self, i):
        p, a = i.op.split("."), i.args
        op, kind = p[0], p[-1]
        bits = int(re.search(r"\d+$", kind).group()) if re.search(r"[a-z]\d+$", kind) else 32
        mask = M.get(bits, M[32])
        r = lambda k: self.register(a[k])
        v = lambda k: self.value(a[k], kind)
        if op in ("bar", "membar", "fence", "barrier"):
            return "pass"
        if op in ("mov", "cvta") and "{" in i.text:
            parts = re.findall(r"%\w+", a[0] if a[0][0] == "{" else a[1])
            n = bits // len(parts)
            if a[0][0] == "{":
                return "; ".join("%s = %s >> %d & %d" % (self.register(x), v(1), n * k, M[n])
                                 for k, x in enumerate(parts))
            return "%s = %s" % (r(0), " | ".join("(%s & %d) << %d" % (self.register(x), M[n], n * k)
                                                 for k, x in enumerate(parts)))
        if op in ("mov", "cvta"):
            if kind == "pred":
                return "%s = bool(%s)" % (r(0), v(1))
            return "%s = %s%s" % (r(0), v(1), " + SHARED" if i.op.startswith("cvta.shared") else "")
        if op in ("ld", "ldu"):
            space, to = self.address(a[1], i.op), re.findall(r"%\w+", a[0])
            return "; ".join("%s = get(%s + %d, %d)%s" % (self.register(x), space, k * bits // 8, bits,
                             "" if kind[0] != "s" or bits > 16 else "; %s = signed(%s, %d) & %d" %
                             (self.register(x), self.register(x), bits, M[32 if bits == 8 else bits]))
                             for k, x in enumerate(to))
        if op == "st":
            space = self.address(a[0], i.op)
            parts = [x.strip() for x in a[1].strip("{}").split(",")]
            return "; ".join("put(%s + %d, %d, %s & %d)" % (space, k * bits // 8, bits, self.value(x, kind),
                                                            mask) for k, x in enumerate(parts))
        if op == "atom":
            how = {"add": "old + %s", "max": "max(old, %s)", "min": "min(old, %s)", "or": "old | %s",
                   "inc": "0 if old >= %s else old + 1"}[next(x for x in p[1:] if x in
                                                              ("add", "max", "min", "or", "inc"))] % v(2)
            return "q = %s; old = get(q, %d); put(q, %d, (%s) & %d); %s = old" % (
                self.address(a[1], i.op), bits, bits, how, mask, r(0))
        if op in ("shfl", "vote"):
            return "%s = %s" % (self.register(a[0].split("|")[0]), self.register(a[1]))
        if op == "setp":
            test = "compare(%r, %r, %s, %s)" % (p[1], kind, v(1), v(2))
            if len(p) > 3 and p[2] in ("and", "or"):
                test = "(%s %s %s)" % (test, p[2], v(3))
            return "%s = %s" % (r(0), test)
        if op == "selp":
            return "%s = %s if %s else %s" % (r(0), v(1), self.register(a[3]), v(2))
        if kind == "pred":
            sign = {"and": "and", "or": "or", "xor": "!="}
            return "%s = %s" % (r(0), "not %s" % v(1) if op == "not" else "%s %s %s" % (v(1), sign[op], v(2)))
        if op == "cvt":
            if "x2" in p[-2]:
                return "%s = pair(%r, %s, %s)" % (r(0), p[-2], v(1), v(2))
            modes = [x for x in p[1:-2]]
            if p[-2:] == ["f16", "f32"]:
                if modes != ["rn"]:
                    raise NotImplementedError(i.text)
                return "%s = half(%s)" % (r(0), v(1))
            if p[-2:] == ["f32", "f16"] and not modes:
                return "%s = from_half(%s)" % (r(0), v(1))
            if modes not in ([], ["rn"], ["rzi"], ["sat"]):
                raise NotImplementedError(i.text)
            return "%s = convert(%r, %r, %s, %r)" % (r(0), p[-2], p[-1], v(1), modes)
        if kind in ("f32", "f64"):
            modes, n = p[1:-1], kind[1:]
            if op == "neg":
                return "%s = %s ^ %d" % (r(0), v(1), 1 << (bits - 1))
            if op == "abs":
                return "%s = %s & %d" % (r(0), v(1), mask >> 1)
            if op == "copysign":
                return "%s = %s & %d | %s & %d" % (r(0), v(1), 1 << (bits - 1), v(2), mask >> 1)
            if modes not in ([], ["rn"]):
                raise NotImplementedError(i.text)
            if op == "sqrt":
                return ("%s = root32(%s)" if n == "32" else "%s = u64(math.sqrt(f64(%s)))") % (r(0), v(1))
            if op == "rcp":
                return "%s = div%s(%d, %s)" % (r(0), n, 0x3F800000 if n == "32" else 0x3FF << 52, v(1))
            return "%s = %s%s(%s)" % (r(0), op, n, ", ".join(v(k) for k in range(1, len(a))))
        s = lambda k: ("signed(%s & %d, %d)" % (v(k), mask, bits) if kind[0] == "s" else
                       "(%s & %d)" % (v(k), mask))
        if op in ("mul", "mad"):
            product = "%s * %s" % (s(1), s(2))
            if p[1] == "hi":
                product = "(%s >> %d)" % (product, bits)
            wide = M[64] if p[1] == "wide" and bits == 32 else M[32] if p[1] == "wide" else mask
            return "%s = (%s%s) & %d" % (r(0), product, " + " + v(3) if op == "mad" else "", wide)
        simple = {"add": "%s + %s", "sub": "%s - %s", "and": "%s & %s", "or": "%s | %s", "xor": "%s ^ %s"}
        if op in simple:
            return "%s = (%s) & %d" % (r(0), simple[op] % (v(1), v(2)), mask)
        if op in ("min", "max", "div", "rem"):
            how = {"min": "min(%s, %s)", "max": "max(%s, %s)", "div": "%s // %s", "rem": "%s %% %s"}[op]
            if op in ("div", "rem"):    # by 0: PTX does not trap, and the result is unspecified
                return "%s = (%s if %s else -1) & %d" % (r(0), how % (s(1), s(2)), s(2), mask)
            return "%s = (%s) & %d" % (r(0), how % (s(1), s(2)), mask)
        if op == "not":
            return "%s = ~%s & %d" % (r(0), v(1), mask)
        if op == "neg":
            return "%s = -%s & %d" % (r(0), v(1), mask)
        if op == "shl":
            return "%s = (%s << min(%s, 64)) & %d" % (r(0), v(1), self.value(a[2]), mask)
        if op == "shr":
            return "%s = (%s >> min(%s, 64)) & %d" % (r(0), s(1), self.value(a[2]), mask)
        if op == "shf":
            n = "(%s & 31)" % self.value(a[3]) if p[2] == "wrap" else "min(%s, 32)" % self.value(a[3])
            both = "(%s << 32 | %s)" % (v(2), v(1))
            return "%s = %s %s & %d" % (r(0), both, ("<< %s >> 32" if p[1] == "l" else ">> %s") % n, M[32])
        if op == "clz":
            return "%s = %d - (%s & %d).bit_length()" % (r(0), bits, v(1), mask)
        if op == "popc":
            return "%s = bin(%s).count('1')" % (r(0), v(1))
        if op == "bfi":
            return "%s = bfi(%s, %s, %s, %s)" % (r(0), v(1), v(2), v(3), v(4))
        if op == "bfe":
            return "%s = %s >> %s & ((1 << %s) - 1)" % (r(0), v(1), v(2), v(3))
        if op == "prmt":
            return "%s = prmt(%s, %s, %s)" % (r(0), v(1), v(2), v(3))
        raise NotImplementedError(i.text)

    def function(self, number):
        lines, following = ["def block(R, PARAM, SHARED):"], number + 1
        for i in self.blocks[number]:
            op = i.op.split(".")[0]
            test = "" if not i.guard else "if %s%s: " % ("not " if i.no else "", self.register(i.guard))
            if op == "bra":
                lines.append("    %sreturn %d" % (test, self.labels[i.args[0]]))
            elif op in ("ret", "exit"):
                lines.append("    %sreturn -1" % test)
            else:
                lines.append("    " + test + self.statement(i))
        lines.append("    return %d" % following)
        scope = dict(globals())
        exec("\n".join(lines), scope)
        return scope["block"]

    # ---- execution ----
    def run(self, arguments, tid=0, ctaid=0, nctaid=1, ntid=256, most=2000000):
        """arguments: bytes with the layout of the parameters. Returns the executed blocks, in order."""
        parameters = ctypes.create_string_buffer(bytes(arguments), self.parameter_bytes + 16)
        special = {"%tid.x": tid, "%ctaid.x": ctaid, "%nctaid.x": nctaid, "%ntid.x": ntid}
        registers = [0] * 20000
        for name, value in special.items():
            registers[self.registers.setdefault(name, len(self.registers))] = value
        pc, trace, where = 0, [], ctypes.addressof(self.memory)
        param = ctypes.addressof(parameters)
        while 0 <= pc < len(self.blocks):
            if not self.functions[pc]:
                self.functions[pc] = self.function(pc)
            trace.append(pc)
            if len(trace) > most:
                raise RuntimeError("%s does not end" % self.name)
            pc = self.functions[pc](registers, param, where)
        return trace
