#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes one synthetic model, with its config.pbtxt, into a model repository: the same bytes every time.

kinds:
  mlp    LAYERS matrix products (Gemm and Relu, He weights): FEATURES -> WIDTH -> ... -> WIDTH -> OUTPUTS
  ffn    LAYERS blocks as a transformer has them, WIDTH -> HIDDEN, GELU, HIDDEN -> WIDTH; a row is a token
  copy   [N,3,224,224] -> mean of each channel: large inputs and hardly any compute
  fill   [N,1,1,1] + an image -> [N,3,224,224]: large outputs and hardly any compute
  probe  [N,FEATURES] -> mean: one kernel, for measuring what is around it
  mem    [N,FEATURES] -> LAYERS tensors of WIDTH x WIDTH numbers a row, each written by a kernel of its own that does next
         to nothing but move them -> OUTPUTS: bound by the device's memory
  long   [N,FEATURES] -> LINES lines of WIDTH a row, all multiplied by one WIDTH x WIDTH matrix -> OUTPUTS: nearly all its
         time is that one product's

It computes nothing of use: it is for measuring and for comparing implementations.
exit codes: 0 written, 2 usage
"""
import argparse
import hashlib
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SEED = 20250204
OPSET = 13
IR_VERSION = 7  # What opset 13 came with; the library's default changes with its version.


def tensor(name, shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


class Layers:
    """Nodes and weights of matrix products, one after the other; all random numbers come from one stream, in order."""

    def __init__(self):
        # RandomState's stream is frozen by numpy's compatibility policy; Generator's is not.
        self.random = np.random.RandomState(SEED)
        self.nodes, self.weights = [], []

    def constant(self, name, values):
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def node(self, operator, inputs, output, name):
        self.nodes.append(helper.make_node(operator, inputs, [output], name=name))
        return output

    def gemm(self, value, number, inputs, outputs, product):
        # Normal numbers are made in float64, which is large: row by row keeps the peak low.
        matrix = np.empty((inputs, outputs), np.float32)
        for row in matrix:
            row[:] = self.random.standard_normal(outputs)
        matrix *= np.float32(np.sqrt(2.0 / inputs))
        bias = self.random.uniform(-0.1, 0.1, outputs).astype(np.float32)
        inputs = [value, self.constant(f"w{number}", matrix), self.constant(f"b{number}", bias)]
        return self.node("Gemm", inputs, product, f"gemm{number}")


def mlp(arguments, batch):
    layers = Layers()
    widths = [arguments.features or arguments.width] + [arguments.width] * (arguments.layers - 1)
    widths.append(arguments.outputs or arguments.width)
    value, taken = "x", widths[0]
    if arguments.slice_of:
        # The first numbers of a long row: a large input for a small chain.
        taken = arguments.slice_of
        bounds = [layers.constant(name, np.array([at], np.int64))
                  for name, at in (("slice_start", 0), ("slice_end", widths[0]), ("slice_axis", 1))]
        value = layers.node("Slice", ["x", *bounds], "sliced", "slice")
    for layer, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
        last = layer == len(widths) - 2
        value = layers.gemm(value, layer, inputs, outputs, "y" if last else f"product{layer}")
        if not last:
            value = layers.node("Relu", [value], f"hidden{layer}", f"relu{layer}")
    return layers.nodes, layers.weights, [tensor("x", [batch, taken])], [tensor("y", [batch, widths[-1]])]


def ffn(arguments, batch):
    layers = Layers()
    width, hidden = arguments.width, arguments.hidden or 4 * arguments.width
    root, one, half = (layers.constant(name, np.array(number, np.float32))
                       for name, number in (("root_half", np.sqrt(0.5)), ("one", 1.0), ("half", 0.5)))
    value = "x"
    for block in range(arguments.layers):
        wide = layers.gemm(value, 2 * block, width, hidden, f"wide{block}")
        # GELU as exporters of this opset write it: x (1 + erf(x / sqrt 2)) / 2.
        for operator, other, name in (("Mul", root, "scaled"), ("Erf", None, "erf"), ("Add", one, "curve"),
                                      ("Mul", wide, "weighted"), ("Mul", half, "gelu")):
            value = wide if name == "scaled" else value
            inputs = [value] if other is None else [value, other]
            value = layers.node(operator, inputs, f"{name}{block}", f"{name}{block}")
        last = block == arguments.layers - 1
        value = layers.gemm(value, 2 * block + 1, hidden, width, "y" if last else f"narrow{block}")
    return layers.nodes, layers.weights, [tensor("x", [batch, width])], [tensor("y", [batch, width])]


def copy(arguments, batch):
    nodes = [helper.make_node("GlobalAveragePool", ["x"], ["pooled"], name="pool"),
             helper.make_node("Flatten", ["pooled"], ["y"], name="flatten", axis=1)]
    return nodes, [], [tensor("x", [batch, 3, 224, 224])], [tensor("y", [batch, 3])]


def fill(arguments, batch):
    image = np.linspace(-1.0, 1.0, 3 * 224 * 224, dtype=np.float32).reshape(1, 3, 224, 224)
    nodes = [helper.make_node("Add", ["x", "image"], ["y"], name="add")]
    return (nodes, [numpy_helper.from_array(image, "image")], [tensor("x", [batch, 1, 1, 1])],
            [tensor("y", [batch, 3, 224, 224])])


def probe(arguments, batch):
    nodes = [helper.make_node("ReduceMean", ["x"], ["y"], name="mean", axes=[1], keepdims=1)]
    return nodes, [], [tensor("x", [batch, arguments.features or arguments.width])], [tensor("y", [batch, 1])]


def mem(arguments, batch):
    layers = Layers()
    features, side = arguments.features or arguments.width, arguments.width
    outputs = arguments.outputs or features

    def reshaped(value, dims, name):
        shape = layers.constant(f"{name}_shape", np.array([0, *dims], np.int64))
        return layers.node("Reshape", [value, shape], name, name)

    def vector(name, count):
        return layers.constant(name, layers.random.uniform(-0.1, 0.1, count).astype(np.float32))
    value = reshaped("x", [features, 1], "column")
    value = layers.node("Add", [value, vector("table", side * side // features)], "large0", "spread")
    value = reshaped(value, [side, side], "square")
    for layer in range(1, arguments.layers):
        # In turns: two transposes next to each other undo each other, two additions are one kernel.
        if layer % 2:
            value = layers.node("Transpose", [value], f"large{layer}", f"transpose{layer}")
            layers.nodes[-1].attribute.append(helper.make_attribute("perm", [0, 2, 1]))
        else:
            value = layers.node("Add", [value, vector(f"b{layer}", side)], f"large{layer}", f"add{layer}")
    value = reshaped(value, [outputs, side * side // outputs], "parts")
    layers.nodes.append(helper.make_node("ReduceMean", [value], ["y"], name="mean", axes=[2], keepdims=0))
    return layers.nodes, layers.weights, [tensor("x", [batch, features])], [tensor("y", [batch, outputs])]


def long(arguments, batch):
    layers = Layers()
    features, width, outputs = arguments.features or arguments.width, arguments.width, arguments.outputs or arguments.width
    value = layers.gemm("x", 0, features, width, "line")
    shape = layers.constant("line_shape", np.array([0, 1, width], np.int64))
    value = layers.node("Reshape", [value, shape], "lines", "reshape")
    offsets = layers.random.standard_normal((arguments.lines, width)).astype(np.float32)
    value = layers.node("Add", [value, layers.constant("offsets", offsets)], "spread", "add")
    matrix = layers.random.standard_normal((width, width)).astype(np.float32) / np.float32(np.sqrt(width))
    value = layers.node("MatMul", [value, layers.constant("matrix", matrix)], "product", "long")
    layers.nodes.append(helper.make_node("ReduceMean", [value], ["means"], name="mean", axes=[1], keepdims=0))
    layers.gemm("means", 1, width, outputs, "y")
    return layers.nodes, layers.weights, [tensor("x", [batch, features])], [tensor("y", [batch, outputs])]


KINDS = {"mlp": mlp, "ffn": ffn, "copy": copy, "fill": fill, "probe": probe, "mem": mem, "long": long}


def config(arguments, inputs, outputs):
    """config.pbtxt; with max_batch_size 0 the dimensions are the model's own, else without the batch."""
    def declared(value):
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        dims = dims if arguments.max_batch_size == 0 else dims[1:]
        return f'{{ name: "{value.name}" data_type: TYPE_FP32 dims: [ {", ".join(map(str, dims))} ] }}'

    lines = [f"# Written by scripts/generate_mlp.py, kind {arguments.kind}.", f'name: "{arguments.name}"',
             'platform: "sluice_onnx"', f"max_batch_size: {arguments.max_batch_size}",
             "input [ " + ", ".join(map(declared, inputs)) + " ]",
             "output [ " + ", ".join(map(declared, outputs)) + " ]"]
    parameters = {"default_class": arguments.default_class, "buckets": arguments.buckets, "slots": arguments.slots}
    for key, value in parameters.items():
        if value and not (key == "buckets" and arguments.max_batch_size == 0):
            lines.append(f'parameters {{ key: "sluice.{key}" value {{ string_value: "{value}" }} }}')
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=tuple(KINDS), default="mlp")
    parser.add_argument("--name", help="name of the model (default: the kind)")
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--features", type=int, help="numbers in a row of the input (default: WIDTH)")
    parser.add_argument("--hidden", type=int, help="of kind ffn (default: four times WIDTH)")
    parser.add_argument("--slice-of", type=int, metavar="N",
                        help="of kind mlp: the input is N numbers, and the first FEATURES of them are taken")
    parser.add_argument("--outputs", type=int, help="numbers in a row of the output (default: WIDTH)")
    parser.add_argument("--lines", type=int, default=16, help="of kind long: lines of a row (default: %(default)s)")
    parser.add_argument("--batch-symbolic", action="store_true", help="batch dimension N; else batch 1")
    parser.add_argument("--max-batch-size", type=int, help="of config.pbtxt (default: 8 with N, else 0)")
    parser.add_argument("--buckets", default="", help="sluice.buckets, as 1,4,8")
    parser.add_argument("--slots", default="", help="sluice.slots")
    parser.add_argument("--default-class", default="", choices=("", "latency", "standard", "batch"))
    parser.add_argument("--output", type=pathlib.Path, required=True, help="the model repository to write into")
    arguments = parser.parse_args()
    arguments.name = arguments.name or arguments.kind
    if arguments.max_batch_size is None:
        arguments.max_batch_size = 8 if arguments.batch_symbolic else 0
    if arguments.layers < 1 or arguments.width < 1:
        parser.error("--layers and --width: expected at least 1")
    if arguments.kind == "mem" and any(arguments.width**2 % (part or arguments.width)
                                       for part in (arguments.features, arguments.outputs)):
        parser.error("--features, --outputs: expected divisors of WIDTH x WIDTH")
    if arguments.slice_of and arguments.slice_of <= (arguments.features or arguments.width):
        parser.error("--slice-of: expected more than FEATURES")
    if arguments.max_batch_size > 0 and not arguments.batch_symbolic:
        parser.error("--max-batch-size: needs --batch-symbolic")

    nodes, weights, inputs, outputs = KINDS[arguments.kind](arguments, "N" if arguments.batch_symbolic else 1)
    graph = helper.make_graph(nodes, arguments.name, inputs, outputs, weights)
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, producer_name="sluice", ir_version=IR_VERSION)
    onnx.checker.check_model(model)
    serialized = model.SerializeToString(deterministic=True)
    folder = arguments.output / arguments.name
    (folder / "1").mkdir(parents=True, exist_ok=True)
    (folder / "config.pbtxt").write_text(config(arguments, inputs, outputs))
    # Written beside and renamed, so that a server never maps half a file.
    partial = folder / "1" / "model.partial"
    partial.write_bytes(serialized)
    partial.replace(folder / "1" / "model.onnx")
    print(f"{hashlib.sha256(serialized).hexdigest()}  {folder / '1' / 'model.onnx'}")


if __name__ == "__main__":
    main()
