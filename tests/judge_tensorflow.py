"""judge_tensorflow.py JUDGE.so -- compares our graph rewrite with TensorFlow's own pass on random graphs with
loops, tensor lists and variables: every type of every node, the number of casts and the summary must agree.
TensorFlow's pass is told of a GPU that is not there, and asks which kernels it has: this needs the package
`tensorflow`; `tensorflow-cpu` has no GPU kernels."""
import collections
import ctypes
import os
import random
import re
import tempfile

os.environ.update(TF_CPP_MIN_LOG_LEVEL="0", CUDA_VISIBLE_DEVICES="", TF_ENABLE_ONEDNN_OPTS="1",
                  TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_IGNORE_PERFORMANCE="1")
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, device_properties_pb2, rewriter_config_pb2
from tensorflow.python.framework import kernels, op_def_registry
from tensorflow.python.grappler import cluster, tf_optimizer

from judge import check, finish, size, so

v1, raw = tf.compat.v1, tf.raw_ops
v1.disable_control_flow_v2()
v1.disable_resource_variables()
so.judge_graph.restype = ctypes.c_int
print("TensorFlow", tf.__version__)
FLOAT, HALF, BFLOAT, VARIANT = 1, 19, 14, 21
GRAPHS = 400
ACTIVATIONS = [raw.Relu, raw.Relu6, raw.Elu, raw.Softplus]
UNARY = [raw.Exp, raw.Log, raw.Tanh, raw.Sigmoid, raw.Neg, raw.Sqrt, raw.Rsqrt, raw.Square, raw.Abs, raw.Erf,
         raw.Floor, raw.Reciprocal] + ACTIVATIONS
BINARY = [raw.Add, raw.AddV2, raw.Sub, raw.Mul, raw.RealDiv, raw.Maximum, raw.Minimum, raw.Pow,
          raw.SquaredDifference, raw.BatchMatMulV2]
rng = random.Random(1)
CARD = {"architecture": "8.0", "cuda": "12030", "cudnn": "8900"}


class Mode:
    """A way to run the pass: the low format, the device whose kernels count, the other one, the option."""

    def __init__(self, name, low, here, there, option):
        self.name, self.low, self.here, self.there, self.option = name, low, here, there, option
        self.machine = cluster.Cluster(devices=[device_properties_pb2.NamedDevice(
            name=f"/job:localhost/replica:0/task:0/device:{kind}:0",
            properties=device_properties_pb2.DeviceProperties(type=kind, vendor="NVidia", environment=CARD))
            for kind in {here, "CPU"}])         # if there is a GPU, nodes are placed on it


def step(pick):
    """A random op on tensors that pick() returns."""
    kind = rng.random()
    a = pick()
    if kind < 0.28:
        return raw.MatMul(a=a, b=pick(), transpose_b=rng.random() < 0.5)
    if kind < 0.50:
        op = rng.choice(UNARY)
        return op(features=a) if op in ACTIVATIONS else op(x=a)
    if kind < 0.68:
        return rng.choice(BINARY)(x=a, y=pick())
    if kind < 0.72:
        return rng.choice([raw.Sum, raw.Mean, raw.Max])(input=a, axis=[0], keep_dims=True)
    if kind < 0.75:
        return rng.choice([raw.Softmax, raw.LogSoftmax])(logits=a)
    if kind < 0.80:
        return raw.ConcatV2(values=[a, pick()], axis=0)
    if kind < 0.84:
        return rng.choice([raw.Identity, raw.StopGradient])(input=a)
    if kind < 0.88:
        return raw.Reshape(tensor=a, shape=[8, 8])
    if kind < 0.90:
        return raw.Transpose(x=a, perm=[1, 0])
    if kind < 0.93:
        return raw.AddN(inputs=[a, pick(), pick()])
    if kind < 0.96:
        return rng.choice(raw.Split(axis=0, value=a, num_split=2))
    if kind < 0.98:
        return raw.Cast(x=raw.Cast(x=a, DstT=tf.int32), DstT=tf.float32)
    return raw.Select(condition=raw.Greater(x=a, y=pick()), x=a, y=pick())


def source():
    kind = rng.random()
    if kind < 0.5:
        return v1.placeholder(tf.float32, None)
    if kind < 0.7:
        return tf.constant(1.0, shape=[8, 8])
    if kind < 0.85:
        variable = raw.VariableV2(shape=[8, 8], dtype=tf.float32)
        return raw.Identity(input=variable) if rng.random() < 0.7 else variable
    handle = raw.VarHandleOp(dtype=tf.float32, shape=[8, 8])
    return raw.ReadVariableOp(resource=handle, dtype=tf.float32)


def convolution(pick):
    """A random op on images; one of them has a second type."""
    x = raw.Reshape(tensor=pick(), shape=[1, 4, 4, 4])
    kind = rng.randint(0, 4)
    if kind == 0:
        x = raw.Conv2D(input=x, filter=raw.Reshape(tensor=pick(), shape=[2, 2, 4, 4]), strides=[1] * 4,
                       padding="SAME")
    elif kind == 1:
        vector = [raw.Reshape(tensor=pick(), shape=[4]) for _ in range(4)]
        norm = rng.choice([raw.FusedBatchNorm, raw.FusedBatchNormV2, raw.FusedBatchNormV3])
        x = norm(x=x, scale=vector[0], offset=vector[1], mean=vector[2], variance=vector[3],
                 is_training=False)[0]
    elif kind == 2:
        x = rng.choice([raw.MaxPool, lambda input, **k: raw.AvgPool(value=input, **k)])(
            input=x, ksize=[1] * 4, strides=[1] * 4, padding="SAME")
    elif kind == 3:
        x = raw.BiasAdd(value=x, bias=raw.Reshape(tensor=pick(), shape=[4]))
    else:
        x = raw.L2Loss(t=x)
    return x


def tensor_list(pick):
    if rng.random() < 0.5:
        handle = raw.TensorListReserve(element_shape=-1, num_elements=2, element_dtype=tf.float32)
        handle = raw.TensorListSetItem(input_handle=handle, index=0, item=pick())
        if rng.random() < 0.5:
            return raw.TensorListStack(input_handle=handle, element_shape=-1, element_dtype=tf.float32)
        return raw.TensorListGetItem(input_handle=handle, index=0, element_shape=-1, element_dtype=tf.float32)
    handle = raw.EmptyTensorList(element_shape=-1, max_num_elements=-1, element_dtype=tf.float32)
    for _ in range(rng.randint(1, 2)):
        handle = raw.TensorListPushBack(input_handle=handle, tensor=pick())
    handle, x = raw.TensorListPopBack(input_handle=handle, element_shape=-1, element_dtype=tf.float32)
    return x


def loop(pick):
    def body(i, a, b):
        inside = [a, b]
        for _ in range(rng.randint(1, 6)):
            inside.append(step(lambda: rng.choice(inside[-4:] + [pick()])))
        return i + 1, inside[-1], rng.choice(inside)
    unknown = tf.TensorShape(None)
    begin = [raw.Identity(input=pick()) for _ in range(2)]      # a loop cannot carry a variable itself
    return tf.while_loop(lambda i, a, b: i < 3, body, (tf.constant(0), *begin),
                         shape_invariants=(tf.TensorShape([]), unknown, unknown))[rng.randint(1, 2)]


def random_graph(mode):
    graph = tf.Graph()
    with graph.as_default():
        tensors = [source() for _ in range(rng.randint(1, 4))]
        pick = lambda: rng.choice(tensors[-6:])
        for _ in range(rng.randint(2, 30)):
            kind = rng.random()
            try:
                kinds = (loop, 0.03), (tensor_list, 0.08), (convolution, 0.18), (step, 1.0)
                with tf.device(f"/{mode.there}:0" if rng.random() < 0.03 else None):
                    tensors.append(next(make for make, below in kinds if kind < below)(pick))
            except ValueError:          # the shapes do not match
                pass
        fetched = {tensors[-1].op.name} | {rng.choice(tensors).op.name for _ in range(rng.randint(0, 1))}
        for name in fetched:
            v1.add_to_collection("train_op", graph.get_operation_by_name(name))
        return v1.train.export_meta_graph(graph=graph), fetched


def rewritten(meta, mode):
    config = config_pb2.ConfigProto()
    rewrite = config.graph_options.rewrite_options
    for field in rewrite.DESCRIPTOR.fields:     # run no other pass
        if field.enum_type and field.enum_type.name == "Toggle":
            setattr(rewrite, field.name, rewriter_config_pb2.RewriterConfig.OFF)
    setattr(rewrite, mode.option, rewriter_config_pb2.RewriterConfig.ON)
    rewrite.disable_model_pruning = True
    rewrite.min_graph_nodes = -1
    rewrite.meta_optimizer_iterations = rewriter_config_pb2.RewriterConfig.ONE
    log = tempfile.TemporaryFile()
    stderr = os.dup(2)
    os.dup2(log.fileno(), 2)            # the pass logs there how many nodes it converted, with how many casts
    try:
        graph = tf_optimizer.OptimizeGraph(config, meta, cluster=mode.machine)
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
    log.seek(0)
    said = re.search(r"Converted (\d+)/\d+ nodes .* using (\d+) cast", log.read().decode())
    return graph, f"{said[1]} {said[2]}" if said else "0 0"


def arguments(node, args):
    """For each port: the name of its type attribute, or "fixed", and its type."""
    for arg in args:
        count = node.attr[arg.number_attr].i if arg.number_attr else 1
        if arg.type_list_attr:
            for t in node.attr[arg.type_list_attr].list.type:
                yield "fixed", t
        else:
            for _ in range(count):
                yield arg.type_attr or "fixed", node.attr[arg.type_attr].type if arg.type_attr else arg.type


def has_low_kernel(node, attr, mode):
    """Is there a kernel of the op with this attribute low and the other attributes unchanged?"""
    op = op_def_registry.get(node.op)
    allowed = next(a.allowed_values.list.type for a in op.attr if a.name == attr)
    if allowed and mode.low not in allowed:
        return False
    for kernel in kernels.get_registered_kernels_for_op(node.op).kernel:
        if kernel.device_type in (mode.here, "DEFAULT") and all(
                (mode.low if c.name == attr else node.attr[c.name].type) in c.allowed_values.list.type
                for c in kernel.constraint if c.allowed_values.list.type):
            return True
    return False


def told(graph_def, fetched, mode):
    """The graph in the language of amp_graph_reader.h, and a table from its names to those of the text."""
    names = {n.name: f"n{i}" for i, n in enumerate(graph_def.node)}
    lines = []
    form = {FLOAT: "f32", VARIANT: "handle"}
    for n in graph_def.node:
        op = op_def_registry.get(n.op)
        fixed = {a: "" if has_low_kernel(n, a, mode) else "!" for a in
                 (a.name for a in op.attr if a.type == "type")}
        attr = lambda a: f"/{a}{fixed.get(a, '')}"
        data = [i for i in n.input if not i.startswith("^")]
        ins, outs = [], []
        for name, (a, t) in zip(data, arguments(n, op.input_arg), strict=True):
            a = a if a != "fixed" else f"fixed{t}"
            ins.append(":".join([names[name.split(":")[0]], *name.split(":")[1:]]) + attr(a))
        for a, t in arguments(n, op.output_arg):
            a = a if a != "fixed" else f"fixed{t}"
            outs.append(f"8={form.get(t % 100, 'int')}{attr(a)}")
        seen = {port.split("/")[1].rstrip("!") for port in ins + outs}
        # an attribute that no port has counts too
        outs += [f"8={form.get(n.attr[a].type, 'int')}{attr(a)}" for a in fixed if a not in seen]
        flags = [f for f, on in (("fetched", n.name in fetched), ("stateful", op.is_stateful)) if on]
        flags += [f"on {mode.there.lower()}"] if mode.there in n.device else []
        lines.append(f"{names[n.name]} = {n.op}({', '.join(ins)})" +
                     (f" -> {', '.join(outs)}" if outs else "") + " " + " ".join(flags))
    return "\n".join(lines) + "\n", names


def compare(name, mode, counted):
    kept = True
    while kept:         # not compared: a Cast or a loop's end that keeps its format with us, as other ops do
        meta, fetched = random_graph(mode)
        text, names = told(meta.graph_def, fetched, mode)
        kept = re.search(r"= (Cast|NextIteration)\(.*> 8=f32.*(fetched|stateful|on \w+)$", text, re.M)
        counted["kept"] += kept is not None
    theirs, said = rewritten(meta, mode)
    casts = so.judge_graph(text.encode(), int(mode.low == BFLOAT), buffer, size(len(buffer)))
    if casts < 0:
        check(f"{name}: it is read", False, f"{casts} {buffer.value.decode()}\n{text}")
        return
    after = {n.name: n for n in theirs.node}
    back = {ours: name for name, ours in names.items()}
    wrong = []
    *types, counts = buffer.value.decode().splitlines()
    for line in types:
        node, attr, low, why = line.split("|", 3)
        low_there = after[back[node]].attr[attr].type == mode.low
        counted[low_there] += 1
        if low_there != (low == "1"):
            wrong.append(f"{'low' if low_there else 'FP32'} there: {why}")
    added = sum(n.name not in names for n in theirs.node)
    check(f"{name}: types", not wrong, "\n".join(wrong + [text]))
    check(f"{name}: casts", wrong or added == casts, f"{casts}, there {added}\n{text}")
    check(f"{name}: summary", wrong or counts == said, f"{counts}, there {said}\n{text}")


buffer = ctypes.create_string_buffer(1 << 20)
for mode in (Mode("CUDA", HALF, "GPU", "CPU", "auto_mixed_precision"),
             Mode("BF16", BFLOAT, "CPU", "GPU", "auto_mixed_precision_onednn_bfloat16")):
    counted = collections.Counter()
    for number in range(GRAPHS):
        compare(f"{mode.name}, graph {number}", mode, counted)
    print(f"{mode.name}: {GRAPHS} graphs, {counted[True]} types low and {counted[False]} FP32; "
          f"{counted['kept']} with a Cast or NextIteration that is kept left out")
finish()
