#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes a ResNet-50 v1.5 with random weights as ONNX, the same bytes every time.

The weights are He-initialised. The batch normalisations' statistics are measured on a few synthetic images while the
network is built, so that activations are centred, keep their scale, and the outputs depend on the input: with made-up
statistics a random network answers every image alike. It classifies nothing: it is for measuring and for comparing
implementations. Batch normalisation stays in the file as nodes of its own, as other exporters leave it.
"""

import argparse
import dataclasses
import hashlib
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SEED = 20250131
OPSET = 13
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))  # Blocks, and width of the middle convolution.
EXPANSION = 4
CLASSES = 1000
LOGIT_DEVIATION = 3.0
# Statistics are rounded to this many digits, so that the order in which a machine adds does not change the file.
DIGITS = 4
SAMPLE_COUNT = 12
SAMPLE_PIXELS = 160
BLOCK_PIXELS = 32


@dataclasses.dataclass
class Tensor:
    """A value of the graph, and what it is for the sample images: [images, channels, height, width]."""

    name: str
    sample: np.ndarray


def windows(sample: np.ndarray, kernel: int, stride: int, pad: int, fill: float) -> np.ndarray:
    """Every window of a padded sample: [images, channels, height, width, kernel, kernel]."""
    padded = np.pad(sample, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(2, 3))[:, :, ::stride, ::stride]


class Builder:
    """Collects nodes and initializers; every random number comes from one stream, in order."""

    def __init__(self) -> None:
        # RandomState's stream is frozen by numpy's compatibility policy; Generator's is not.
        self.random = np.random.RandomState(SEED)
        self.nodes = []
        self.initializers = []

    def constant(self, name: str, values: np.ndarray) -> str:
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(values, dtype=np.float32), name))
        return name

    def node(self, operator: str, inputs: list, name: str, **attributes) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [name + "_out"], name=name, **attributes))
        return name + "_out"

    def sample_images(self) -> np.ndarray:
        """Coarse blocks of colour under noise."""
        blocks_across = SAMPLE_PIXELS // BLOCK_PIXELS
        blocks = self.random.standard_normal((SAMPLE_COUNT, 3, blocks_across, blocks_across))
        noise = self.random.standard_normal((SAMPLE_COUNT, 3, SAMPLE_PIXELS, SAMPLE_PIXELS))
        # From all colour to all noise, so that neither is foreign to the statistics.
        share = np.linspace(0.0, 1.0, SAMPLE_COUNT).reshape(-1, 1, 1, 1)
        return np.kron(blocks, np.ones((1, 1, BLOCK_PIXELS, BLOCK_PIXELS))) * (1.0 - share) + noise * share

    def conv_norm(self, data: Tensor, name: str, out_channels: int, kernel: int, stride: int, gamma: float) -> Tensor:
        """Convolution without bias, then batch normalisation whose scale is around `gamma`."""
        in_channels = data.sample.shape[1]
        shape = (out_channels, in_channels, kernel, kernel)
        weights = self.random.standard_normal(shape) * np.sqrt(2.0 / (in_channels * kernel * kernel))
        weights_name = self.constant(name + ".weight", weights)
        pad = kernel // 2
        convolved = self.node("Conv", [data.name, weights_name], name, kernel_shape=[kernel, kernel],
                              strides=[stride, stride], pads=[pad, pad, pad, pad], dilations=[1, 1], group=1)
        sample = np.tensordot(windows(data.sample, kernel, stride, pad, 0.0), weights, axes=((1, 4, 5), (1, 2, 3)))
        mean = np.round(sample.mean(axis=(0, 1, 2)), DIGITS)
        variance = np.round(sample.var(axis=(0, 1, 2)), DIGITS)
        scale = gamma * self.random.uniform(0.8, 1.2, out_channels)
        shift = self.random.normal(0.0, 0.1, out_channels)
        norm = name + ".bn"
        inputs = [convolved, self.constant(norm + ".weight", scale), self.constant(norm + ".bias", shift),
                  self.constant(norm + ".running_mean", mean), self.constant(norm + ".running_var", variance)]
        sample = (sample - mean) / np.sqrt(variance + 1e-5) * scale + shift
        return Tensor(self.node("BatchNormalization", inputs, norm, epsilon=1e-5), sample.transpose(0, 3, 1, 2))

    def relu(self, data: Tensor, name: str) -> Tensor:
        return Tensor(self.node("Relu", [data.name], name), np.maximum(data.sample, 0.0))

    def add(self, left: Tensor, right: Tensor, name: str) -> Tensor:
        return Tensor(self.node("Add", [left.name, right.name], name), left.sample + right.sample)

    def max_pool(self, data: Tensor, name: str) -> Tensor:
        result = self.node("MaxPool", [data.name], name, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        return Tensor(result, windows(data.sample, 3, 2, 1, -np.inf).max(axis=(4, 5)))

    def classify(self, data: Tensor) -> None:
        averaged = self.node("GlobalAveragePool", [data.name], "pool")
        flat = self.node("Flatten", [averaged], "flatten", axis=1)
        features = data.sample.mean(axis=(2, 3))
        weights = self.random.standard_normal((CLASSES, features.shape[1]))
        # Centred and scaled by what the sample images give, so that no class wins whatever the input.
        deviation = np.round(features.std(axis=0).mean(), DIGITS)
        weights *= LOGIT_DEVIATION / (deviation * np.sqrt(features.shape[1]))
        bias = np.round(-(weights @ features.mean(axis=0)), DIGITS)
        inputs = [flat, self.constant("fc.weight", weights), self.constant("fc.bias", bias)]
        self.nodes.append(helper.make_node("Gemm", inputs, ["logits"], name="fc", transB=1))

    def bottleneck(self, data: Tensor, name: str, width: int, stride: int) -> Tensor:
        """1x1, 3x3 (which strides: v1.5), 1x1, and the shortcut."""
        out_channels = width * EXPANSION
        branch = self.relu(self.conv_norm(data, name + ".conv1", width, 1, 1, 1.0), name + ".relu1")
        branch = self.relu(self.conv_norm(branch, name + ".conv2", width, 3, stride, 1.0), name + ".relu2")
        branch = self.conv_norm(branch, name + ".conv3", out_channels, 1, 1, 0.7)
        if stride != 1 or data.sample.shape[1] != out_channels:
            data = self.conv_norm(data, name + ".downsample", out_channels, 1, stride, 0.7)
        return self.relu(self.add(branch, data, name + ".add"), name + ".relu3")


def build(small: bool = False) -> onnx.ModelProto:
    """`small`: one block a stage and an eighth of the channels, the same inputs and outputs."""
    builder = Builder()
    share = 8 if small else 1
    data = Tensor("data", builder.sample_images())
    data = builder.relu(builder.conv_norm(data, "stem.conv", 64 // share, 7, 2, 1.0), "stem.relu")
    data = builder.max_pool(data, "stem.pool")
    for stage, (blocks, width) in enumerate(STAGES, start=1):
        for block in range(1 if small else blocks):
            stride = 2 if block == 0 and stage > 1 else 1
            data = builder.bottleneck(data, f"layer{stage}.{block}", width // share, stride)
    builder.classify(data)
    graph = helper.make_graph(
        builder.nodes, "resnet50",
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, ["N", 3, 224, 224])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", CLASSES])],
        builder.initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="sluice")
    model.ir_version = 7  # What opset 13 came with; the library's default changes with its version.
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent / "models" / "resnet50" / "1" / "model.onnx",
                        help="file to write (default: %(default)s)")
    parser.add_argument("--small", action="store_true", help="one block a stage and an eighth of the channels")
    arguments = parser.parse_args()
    model = build(arguments.small)
    onnx.checker.check_model(model)
    serialized = model.SerializeToString(deterministic=True)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    # Written beside and renamed, so that a server never maps half a file.
    partial = arguments.output.with_suffix(".partial")
    partial.write_bytes(serialized)
    partial.replace(arguments.output)
    print(f"{hashlib.sha256(serialized).hexdigest()}  {arguments.output}")


if __name__ == "__main__":
    main()
