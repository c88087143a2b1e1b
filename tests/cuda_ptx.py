"""cuda_ptx.py LIBRARY ARCH PTX LOG [judge [first]] [model] -- tests the PTX of mpt_cuda.h without a GPU.

judge  The kernels run thread by thread in a PTX interpreter (ptx.py). The bytes must equal those of the CPU
       functions or of the same kernels, which tests/emu runs from their C source (LIBRARY: ptx_host.cu). So
       an instruction in inline assembly that differs from the C formula beside it shows. first: stop at the
       first failure.
model  For each kernel: registers (from LOG, the output of ptxas), blocks on a multiprocessor, bytes that a
       thread has requested before it uses the first of them, instructions per element on the path taken, and
       from these the expected share of the memory's bandwidth on the card of ARCH. Less than asked fails.

The model counts PTX instructions, which ptxas turns into a few more or fewer, and knows neither caches nor
the scheduler. It shows what limits a kernel. Where it says 1.00, cards reach 0.77 (stochastic rounding on
an H200) to 1.03 of what cudaMemcpy does: tests/bench/results/gpu-*/notes.md.
"""
import ctypes
import functools
import random
import re
import struct
import sys

from ptx import Kernel, add32, f32, from_half, mul32

F64, F32, F16, BF16, E5M2, E4M3 = 0, 1, 3, 4, 5, 6
BYTES = {F64: 8, F32: 4, F16: 2, BF16: 2, E4M3: 1, E5M2: 1}
NAME = {F64: "f64", F32: "f32", F16: "f16", BF16: "bf16", E4M3: "e4m3", E5M2: "e5m2"}
CODE = {8: "m", 4: "j", 2: "t", 1: "h"}         # the type's letter in a mangled name
CHUNK, LANES, VEC, THREADS = 16384, 2048, 8, 256

host = ctypes.CDLL(sys.argv[1])
arch = int(sys.argv[2])
text = open(sys.argv[3]).read()
log = open(sys.argv[4]).read()
host.host_make.restype = ctypes.c_void_p
host.host_pointer.restype = ctypes.c_void_p
host.host_chunks.restype = host.host_config.restype = host.host_blocks.restype = ctypes.c_size_t
passed = failed = 0
kernels = {}


def check(name, good, why=""):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print("FAIL  sm_%d: %s %s" % (arch, name, why))
        if "first" in sys.argv:
            sys.exit(1)


def kernel(name):
    if name not in kernels:
        kernels[name] = Kernel(text, name)
    return kernels[name]


def array(data, spare=64):
    """A copy of the bytes, at an address that is a multiple of 256."""
    b = ctypes.create_string_buffer(len(data) + spare + 256)
    at = (ctypes.addressof(b) + 255) // 256 * 256
    ctypes.memmove(at, bytes(data), len(data))
    array.kept.append(b)
    return at


array.kept = []


def read(at, n):
    return ctypes.string_at(at, n)


# ---- numbers that are hard to round ----
def floats(n):
    random.seed(5)
    special = [0, 1, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC12345]
    for e in (96, 100, 102, 103, 110, 112, 113, 117, 118, 119, 121, 126, 127, 134, 135, 136, 141, 142, 143):
        for m in (0, 1, 0xFFF, 0x1000, 0x1001, 0x3000, 0xFFFFF, 0x100000, 0x180000, 0x200000, 0x280000,
                  0x600000, 0x700000, 0x7FF000, 0x7FFFFF):
            special.append(e << 23 | m)
    u = special + [s | 0x80000000 for s in special]
    while len(u) < n:
        u.append(random.getrandbits(32))
    return u[:n]


def source(fmt, n):
    if fmt == F32:
        return struct.pack("<%dI" % n, *floats(n))
    if fmt == F64:
        wide = [struct.unpack("<Q", struct.pack("<d", f32(u)))[0] for u in floats(n)]
        return struct.pack("<%dQ" % n, *[w ^ (random.getrandbits(30) if i % 2 else 0)
                                         for i, w in enumerate(wide)])
    random.seed(6)
    if fmt in (F16, BF16):
        codes = [random.getrandbits(16) if i % 2 else i * 65535 // n for i in range(n)]
        return struct.pack("<%dH" % n, *codes)
    return bytes(i % 256 for i in range(n))


def opts(rounding=0, overflow=0, seed=0, first=0, stream=0, step=0):
    return struct.pack("<iiIiiIQQQQII", rounding, overflow, 0, 0, 0, 0, 0, seed, first, step, stream, 0)


def each_of(to, frm):
    """Elements of a thread of mpti_k_convert, and of one of its rows."""
    out, into = BYTES[to], BYTES[frm]
    return (128 // out if out > 2 * into else 64 // into), 16 // max(out, into)


def at_places(data, size, places, n):
    """Elements of `size` bytes at these places among n; the others are zeros."""
    spread = bytearray(n * size)
    for i, at in enumerate(places):
        spread[at * size:(at + 1) * size] = data[i * size:(i + 1) * size]
    return bytes(spread)


def judge_conversions():
    """All of a block, of which the first threads run; and an array that ends within their first elements."""
    for to in (F64, F32, F16, BF16, E4M3, E5M2):
        for frm in (F64, F32, F16, BF16, E4M3, E5M2):
            if to == frm:
                continue
            for saturate in ((0, 1) if BYTES[to] == 1 else (0,)):
                (each, width), k = each_of(to, frm), kernel("mpti_k_convertI" + CODE[BYTES[to]] +
                                                            CODE[BYTES[frm]] + "E")
                threads = 640 // each
                places = [row * THREADS * width + i for row in range(each // width)
                          for i in range(threads * width)]
                for n in (THREADS * each, 7):
                    data = at_places(source(frm, 640), BYTES[frm], places, n) if n > 7 else source(frm, n)
                    src, got, want = array(data), array(bytes(n * BYTES[to])), array(bytes(n * BYTES[to]))
                    o = opts(overflow=1 if saturate else 0)
                    status = host.mpt_convert_n(to, ctypes.c_void_p(want), frm, ctypes.c_void_p(src),
                                                ctypes.c_size_t(n), o, None)
                    for tid in range(threads):
                        k.run(struct.pack("<QiiQiiQQ?", got, to, 0, src, frm, 0, n, 0, saturate), tid)
                    a, b = read(got, n * BYTES[to]), read(want, n * BYTES[to])
                    wrong = [i for i in (places if n > 7 else range(n)) if
                             a[i * BYTES[to]:(i + 1) * BYTES[to]] != b[i * BYTES[to]:(i + 1) * BYTES[to]]]
                    check("%s from %s%s, %d" % (NAME[to], NAME[frm], ", saturating" if saturate else "", n),
                          status == 0 and not wrong, "element %s" % wrong[:1])


def judge_stochastic():
    n = 320
    for to in (F16, BF16, E4M3, E5M2):
        src, got, want = array(source(F32, n)), array(bytes(n * 2)), array(bytes(n * 2))
        status = host.mpt_convert_n(to, ctypes.c_void_p(want), F32, ctypes.c_void_p(src), ctypes.c_size_t(n),
                                    opts(6, 0, 99, 3, 5, 7), None)
        k, width = kernel("mpti_k_stochasticI" + CODE[BYTES[to]] + "E"), 16 // BYTES[to]
        for tid in range((n + width - 1) // width):
            k.run(struct.pack("<QiiQQQQIIQQ", got, to, 0, src, n, 99, 3, 5, 0, 7, 0), tid)
        check("%s stochastically" % NAME[to], status == 0 and read(got, n * 2) == read(want, n * 2))


def judge_fp8():
    n = 640
    for to in (E4M3, E5M2):
        for frm in (F32, F16, BF16):
            for scale in (1.0, 37.5, 1e30):
                for tame in (0, 1):             # 1: finite numbers only, for the packed path
                    data = bytearray(source(frm, n))
                    if tame:
                        top = 3 if frm == F32 else 1
                        for i in range(top, len(data), top + 1):
                            data[i] &= 0xBF if frm != F16 or data[i] & 0x7C == 0x7C else 0xFF
                    src, got, want = array(data), array(bytes(n)), array(bytes(n))
                    s, amax = array(struct.pack("<f", scale)), (array(bytes(4)), array(bytes(4)))
                    status = host.mpt_fp8_encode_n(to, ctypes.c_void_p(want), frm, ctypes.c_void_p(src),
                                                   ctypes.c_size_t(n), ctypes.c_void_p(s),
                                                   ctypes.c_void_p(amax[0]))
                    k = kernel("mpti_k_fp8_encodeI" + CODE[BYTES[frm]] + "E")
                    for tid in range(n // 16):
                        k.run(struct.pack("<QQiiQQQ?", got, src, frm, 0, n, s, amax[1], to == E5M2), tid)
                    name = "fp8_encode %s from %s, scale %g" % (NAME[to], NAME[frm], scale)
                    check(name + (", tame" if tame else ""),
                          status == 0 and read(got, n) == read(want, n))


# The block formats of the device: number, name, elements of a block. A thread has 16 elements, so except for
# NVFP4 two threads share a block. They cannot communicate here: both halves get the same magnitudes.
BLOCKS = ((0, "mxfp8_e4m3", 32), (1, "mxfp8_e5m2", 32), (4, "mxfp4", 32), (5, "nvfp4", 16))


def blocks_of(block, scaling, packed, tensor_scale):
    o = ctypes.create_string_buffer(512)
    size = host.host_blocks(block, scaling, packed, ctypes.c_float(tensor_scale), o)
    return o.raw[:size]


def judge_blocks():
    n = 512
    random.seed(8)
    codes = []
    for half in range(n // 32):
        top = random.choice((3, 0x3F8, 0x400, 0x7F7, 0x380 + half)) << 20
        some = [0 if half == 2 else random.randrange(top + (1 << 20)) if half != 5 else 0x7F800000
                for _ in range(16)]
        for values in (some, reversed(some)):
            codes += [u | random.getrandbits(1) << 31 for u in values]
    for frm in (F32, BF16, F16):
        data = (struct.pack("<%dI" % n, *codes) if frm == F32 else
                struct.pack("<%dH" % n, *[u >> 16 for u in codes]))
        wide = [u if frm == F32 else u & 0xFFFF0000 if frm == BF16 else from_half(u >> 16) for u in codes]
        src, floats32 = array(data), array(struct.pack("<%dI" % n, *wide))
        for block, name, size in BLOCKS:
            for scaling, tensor_scale in ((0, 1.0), (2, 0.37), (3, 3e-39), (1, 1e30)):
                if not name.startswith("nvfp4"):     # MX formats have no tensor scale
                    tensor_scale = 1.0
                packed = scaling % 2 == 0
                got, want = [(array(bytes(n)), array(bytes(n // size))) for _ in range(2)]
                status = host.host_quantize(block, scaling, packed, ctypes.c_float(tensor_scale),
                                            *[ctypes.c_void_p(x) for x in (*want, floats32)],
                                            ctypes.c_size_t(n))
                k = kernel("mpti_k_blocksI" + CODE[BYTES[frm]] + "E")
                for tid in range(n // 16):
                    k.run(struct.pack("<QQQiiQQ", *got, src, frm, 0, n, 0) +
                          blocks_of(block, scaling, packed, tensor_scale), tid)
                check("%s from %s, scaling %d" % (name, NAME[frm], scaling),
                      status == 0 and read(got[0], n) == read(want[0], n) and
                      read(got[1], n // size) == read(want[1], n // size))


# ---- the step: the emulated kernel on one copy, the PTX on another ----
@functools.lru_cache(None)
def numbers(n):
    random.seed(9)
    return {"grad": [random.gauss(0, 1) for _ in range(n)], "m": [random.gauss(0, 0.1) for _ in range(n)],
            "v": [random.random() * 0.01 for _ in range(n)],
            "master": [random.gauss(0, 1) for _ in range(n)]}


@functools.lru_cache(None)
def encoded(which, fmt, n):
    return b"".join(encode(fmt, x) for x in numbers(n)[which])


class Step:
    def __init__(self, grad, param, storage, moments, n, scale=8.0):
        self.n = n
        mformat = BF16 if moments else F32
        self.sizes = {"grad": BYTES[grad], "master": 4, "param": BYTES[param], "extra": 2,
                      "m": BYTES[mformat], "v": BYTES[mformat]}
        self.at = {x: array(encoded(x, f, n)) for x, f in
                   (("grad", grad), ("m", mformat), ("v", mformat), ("master", F32))}
        self.at["param"] = array(encoded("master", param, n))
        self.at["extra"] = array(bytes(2 * n))
        a = self.at
        self.host = ctypes.c_void_p(host.host_make(grad, param, storage, moments, ctypes.c_size_t(n),
                                                   *[ctypes.c_void_p(a[x]) for x in
                                                     ("grad", "master", "param", "extra", "m", "v")],
                                                   ctypes.c_float(scale)))
        self.pointer = [host.host_pointer(self.host, i) for i in range(4)]
        self.chunks = host.host_chunks(self.host)

    def arguments(self, *which):
        """The arguments of a kernel: pointers, and the number of chunks for None."""
        return b"".join(struct.pack("<Q", self.chunks if w is None else self.pointer[w]) for w in which)

    def bytes_of(self, which, thread):
        """The bytes of an array that this thread of block 0 works on, in all chunks."""
        size, out = self.sizes[which], b""
        for first in range(0, self.n, LANES):
            at = first + thread * VEC
            out += read(self.at[which] + at * size, size * VEC)
        return out


def encode(fmt, x):
    if fmt == F32:
        return struct.pack("<f", x)
    if fmt == F16:
        return struct.pack("<e", x)
    return struct.pack("<I", (struct.unpack("<I", struct.pack("<f", x))[0] + 0x8000) & 0xFFFF0000)[2:]


def judge_steps():
    o = ctypes.create_string_buffer(256)
    kinds = ((F16, F16, 0, 0), (F32, BF16, 2, 1), (BF16, F16, 3, 1), (BF16, BF16, 4, 0))
    for name, kind in ((x, y) for x in ("sgd", "adamw", "adam", "lion") for y in kinds):
        size = host.host_config(name.encode(), o)
        a, b, start = (Step(*kind, CHUNK + 4096) for _ in range(3))
        status = host.host_check(a.host, 0) | host.host_check(b.host, 0)
        l2 = name == "adam"             # it has AdamW's kernel
        k = kernel("mpti_k_stepI\\d+mpti_%s_ops" % ("adamw" if l2 else name))
        arguments = b.arguments(0, 1, None) + bytes(8) + b.arguments(3) + o.raw[:size] + struct.pack("?", l2)
        before = read(b.pointer[3], host.host_state_bytes())
        for tid in (0, 1, 77, 255):     # thread 0 puts the constants into shared memory, and ends the step
            ctypes.memmove(b.pointer[3], before, len(before))
            k.run(arguments, tid)
        status |= host.host_step(a.host, name.encode(), o)
        good = all(a.bytes_of(x, tid) == b.bytes_of(x, tid) for tid in (0, 1, 77, 255)
                   for x in ("master", "param", "extra", "m", "v"))
        moved = a.bytes_of("param", 0) != start.bytes_of("param", 0)
        check("%s, gradient %s, weights %s, storage %d" % (name, NAME[kind[0]], NAME[kind[1]], kind[2]),
              status == 0 and good and moved)


def judge_checks():
    for grad in (F32, F16, BF16):
        for write in (0, 1):
            for scale in (8.0, 3.7, 2.0 ** 120):
                a, b = (Step(grad, F16, 0, 0, CHUNK + 4096, scale) for _ in range(2))
                k = kernel("mpti_k_checkILb%dE" % write)
                k.run(b.arguments(0, 1, None, 2, 3) + bytes(16), 0)
                # only thread 0 runs: the tree's first slot gets 32 times its sum
                got = struct.unpack("<d", read(b.pointer[2], 8))[0]
                x = b.bytes_of("grad", 0)
                status = host.host_check(a.host, write)
                want = lanes(a if write else b, grad, 1.0 if write else 1.0 / scale)
                same = a.bytes_of("grad", 0) == x
                check("check %s, write %d, scale %g" % (NAME[grad], write, scale),
                      status == 0 and same and got == 32 * want, "%r %r" % (got, 32 * want))


def lanes(s, fmt, factor, shift=1.0):
    """The sum of squares of thread 0's lanes in chunk 0, added as in the summation tree."""
    bits = [struct.unpack("<I", struct.pack("<f", f))[0] for f in (factor, shift)]
    lane = [0] * VEC
    for row in range(0, CHUNK, LANES):
        raw = read(s.at["grad"] + row * BYTES[fmt], VEC * BYTES[fmt])
        for i in range(VEC):
            c = raw[i * BYTES[fmt]:(i + 1) * BYTES[fmt]]
            u = int.from_bytes(c, "little") << (16 if fmt == BF16 else 0)
            x = mul32(mul32(from_half(u) if fmt == F16 else u, bits[0]), bits[1])
            lane[i] = add32(lane[i], mul32(x, x))
    while len(lane) > 1:
        lane = [add32(lane[i], lane[i + 1]) for i in range(0, len(lane), 2)]
    sum = f32(lane[0])
    return lanes(s, fmt, factor, 2.0 ** 100) if shift == 1 and sum < 2.0 ** -96 else sum / shift ** 2


# ---- the model of speed ----
# name, GB/s, multiprocessors, GHz, most threads of a multiprocessor, double operations and conversions to
# double per multiprocessor and clock. Published: NVIDIA's data sheets, and the table of arithmetic
# throughput in the CUDA C++ Programming Guide.
CARDS = {75: ("T4", 320, 40, 1.59, 1024, 2, 2), 80: ("A100", 2039, 108, 1.41, 2048, 32, 16),
         89: ("RTX 4090", 1008, 128, 2.52, 1536, 2, 2), 90: ("H200", 4800, 132, 1.98, 2048, 64, 16),
         103: ("B300", 8000, 160, 1.92, 2048, 2, 2)}
LATENCY_NS = 750                # of a load from memory under load
FREE = ("mov", "cvta", "bra")   # only rename registers; setp counts for its branch


def cost(i):
    """About how many machine instructions an instruction of PTX is."""
    p = i.op.split(".")
    if p[0] in ("div", "sqrt", "rcp"):
        return 10 if p[-1] == "f32" else 30
    if p[0] in FREE or i.op.startswith("ld.param") or i.op in ("cvt.u64.u32", "cvt.u32.u16", "cvt.u16.u32",
                                                               "cvt.u32.u64", "cvt.u16.u8"):
        return 0
    if p[-1] in ("u64", "s64", "b64") and p[0] not in ("ld", "st", "cvt", "atom"):
        return 4 if p[0] == "mul" else 2
    return 1


def walk(k, trace):
    """Instructions, double operations, conversions to double, and the most bytes requested before a use."""
    slots = doubles = conversions = most = under_way = 0
    waiting = set()
    for number in trace:
        for i in k.blocks[number]:
            slots += cost(i)
            doubles += i.op.endswith(".f64") and i.op.split(".")[0] in ("fma", "add", "mul", "sub")
            conversions += i.op in ("cvt.f64.f32", "cvt.rn.f32.f64")
            if waiting and not waiting.isdisjoint(i.read):
                if i.op.startswith("mov") and len(i.written) == 1:      # no word is taken apart
                    waiting.update(i.written)
                else:
                    waiting.clear()
                    under_way = 0
            if i.op.startswith("ld.global.cs"):
                under_way += 4 * len(i.written) if ".v" in i.op else 4
                waiting.update(i.written)
                most = max(most, under_way)
    return slots, doubles, conversions, most


def registers_of(k):
    """From the output of ptxas -v: registers, and bytes of stack and spills."""
    found = re.search(r"entry function '%s'.*?(\d+) bytes stack frame, (\d+) bytes spill.*?Used (\d+) reg" %
                      re.escape(k.name), log, re.S)
    return int(found[3]), int(found[1]) + int(found[2])


def rows():
    """The rows of the model: name, kernel, run, elements of a thread (0: it loops over all), bytes read and
    written per element, asked shares by ARCH. run(n) returns the basic blocks that a thread executes for n
    elements per thread."""
    ones = {F32: b"\0\0\x80?", F16: b"\0\x3c", BF16: b"\x80?"}
    o = ctypes.create_string_buffer(256)

    def convert(to, frm):
        k = kernel("mpti_k_convertI" + CODE[BYTES[to]] + CODE[BYTES[frm]] + "E")
        src, dst = array(ones[frm] * (THREADS * 128)), array(bytes(BYTES[to] * THREADS * 128))
        return (k, lambda n: k.run(struct.pack("<QiiQiiQQ?", dst, to, 0, src, frm, 0, n * THREADS, 0, 1)),
                each_of(to, frm)[0])

    def stochastic(to):
        k = kernel("mpti_k_stochasticI" + CODE[BYTES[to]] + "E")
        src, dst = array(ones[F32] * (THREADS * 128)), array(bytes(BYTES[to] * THREADS * 128))
        return (k, lambda n: k.run(struct.pack("<QiiQQQQIIQQ", dst, to, 0, src, n * THREADS, 9, 0, 5, 0, 7,
                                               0)), 16 // BYTES[to])

    def encode8(frm):
        k = kernel("mpti_k_fp8_encodeI" + CODE[BYTES[frm]] + "E")
        src, dst = array(ones[frm] * (THREADS * 128)), array(bytes(THREADS * 128))
        s, amax = array(struct.pack("<f", 2)), array(bytes(4))
        return (k, lambda n: k.run(struct.pack("<QQiiQQQ?", dst, src, frm, 0, n * THREADS, s, amax, 0)),
                64 // BYTES[frm])

    def blocks(block, frm):
        k = kernel("mpti_k_blocksI" + CODE[BYTES[frm]] + "E")
        src = array(ones[frm] * (THREADS * 128))
        dst = array(bytes(THREADS * 128)), array(bytes(THREADS * 8))
        o = blocks_of(block, 0, 1, 1.0)
        return k, lambda n: k.run(struct.pack("<QQQiiQQ", *dst, src, frm, 0, n * THREADS, 0) + o), 16

    def scale(f):
        k = kernel("mpti_k_convertI" + CODE[BYTES[f]] * 2 + "E")
        x = array(ones[f] * (THREADS * 128))
        state = Step(F32, F16, 0, 0, 64).pointer[3]
        return (k, lambda n: k.run(struct.pack("<QiiQiiQQ?", x, f, 0, x, f, 0, n * THREADS, state, 0)),
                64 // BYTES[f])

    def checks(f, write):
        k = kernel("mpti_k_checkILb%dE" % write)

        def run(n):
            # no chunk, or one: thread 0, which also adds for others, would have to ask for a second
            s = Step(f, F16, 0, 0, (n - 64) * THREADS, 8.0)
            return k.run(s.arguments(0, 1, None, 2, 3) + bytes(16), 33)
        return k, run, 0

    def step(name, f, storage=0, moments=0):
        k = kernel("mpti_k_stepI\\d+mpti_%s_ops" % name)
        size = host.host_config(name.encode(), o)
        config = o.raw[:size] + b"\0"

        def run(n):
            s = Step(f, BF16, storage, moments, n * THREADS)
            host.host_check(s.host, 0)
            return k.run(s.arguments(0, 1, None) + bytes(8) + s.arguments(3) + config)
        return k, run, 0

    yield "check, f16", *checks(F16, 0), 2, 0, {}
    yield "check, bf16", *checks(BF16, 0), 2, 0, {}
    yield "check, f32", *checks(F32, 0), 4, 0, {}
    yield "unscale, f16", *checks(F16, 1), 2, 2, {}
    yield "AdamW, gradient bf16", *step("adamw", BF16), 14, 14, {}
    yield "AdamW, gradient f32", *step("adamw", F32), 16, 14, {}
    yield "AdamW, split, moments bf16", *step("adamw", BF16, 4, 1), 10, 8, {90: 0.85, 103: 0.6}
    yield "SGD, momentum", *step("sgd", F16), 10, 10, {}
    yield "scale, f32", *scale(F32), 4, 4, {}
    yield "scale, f16", *scale(F16), 2, 2, {}
    yield "f32 -> f16", *convert(F16, F32), 4, 2, {}
    yield "f32 -> bf16", *convert(BF16, F32), 4, 2, {}
    yield "f16 -> f32", *convert(F32, F16), 2, 4, {}
    yield "f32 -> e4m3", *convert(E4M3, F32), 4, 1, {}
    yield "f32 -> bf16, stochastic", *stochastic(BF16), 4, 2, {90: 0.85, 103: 0.7}
    yield "fp8_encode, f32", *encode8(F32), 4, 1, {}
    yield "fp8_encode, f16", *encode8(F16), 2, 1, {}
    # FP4 is bound by instructions: only sm_100a and sm_120a have one that converts to it
    yield "mxfp8, f32", *blocks(0, F32), 4, 1.03, {}
    yield "mxfp8, bf16", *blocks(0, BF16), 2, 1.03, {80: 0.75}     # without instructions for FP8
    yield "mxfp4, bf16", *blocks(4, BF16), 2, 0.53, {80: 0.8, 90: 0.55, 103: 0.4}
    yield "nvfp4, f32", *blocks(5, F32), 4, 0.56, {90: 0.8, 103: 0.6}
    yield "nvfp4, bf16", *blocks(5, BF16), 2, 0.56, {80: 0.6, 90: 0.45, 103: 0.33}


def model():
    kernels.clear()             # and the judge's data in their shared memory
    name, bandwidth, sms, clock, room, double_rate, conversion_rate = CARDS[arch]
    print("%-27s regs spill blocks B/thread  slots/el memory  issue double  expected, asked" %
          ("sm_%d, %s" % (arch, name)))
    for row, k, run, each, reads, writes, asked in rows():
        few, many = ((0, 0, 0), walk(k, run(each))) if each else (walk(k, run(64)), walk(k, run(128)))
        slots, doubles, conversions = ((many[i] - few[i]) / (each or 64) for i in range(3))
        registers, spill = registers_of(k)
        blocks = min(65536 // ((registers + 7) // 8 * 8 * THREADS), room // THREADS)
        per_ns = bandwidth / sms                        # bytes per nanosecond and multiprocessor
        elements = per_ns / (reads + writes) / clock    # per clock, at full bandwidth
        memory = blocks * THREADS * many[3] / (per_ns * reads / (reads + writes) * LATENCY_NS)
        issue = 128 / (elements * slots)
        double = 1 / (elements * (doubles / double_rate + conversions / conversion_rate) or 1e-9)
        share, want = min(memory, issue, double, 1), asked.get(arch, 0.9)
        print("%-27s %4d %5d %6d %8d %9.1f %6.2f %6.2f %6.2f  %.2f %.2f" % (
            row, registers, spill, blocks, many[3], slots, memory, issue, min(double, 99), share, want))
        check("%s: %.2f of the bandwidth expected, %.2f asked" % (row, share, want),
              share >= want and not spill)


if __name__ == "__main__":
    if "judge" in sys.argv:
        for part in (judge_conversions, judge_stochastic, judge_fp8, judge_blocks, judge_steps, judge_checks):
            try:
                part()
            except NotImplementedError as e:
                check(part.__name__, False, "an instruction that ptx.py does not know: %s" % e)
    if "model" in sys.argv:
        model()
    print("%d passed, %d failed" % (passed, failed))
    sys.exit(failed != 0)
