#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes a model repository of networks as PyTorch's and scikit-learn's exporters spell them, seeded.

models, with the batch left open in each:
  resnet50, mobilenet_v2, efficientnet_b0, vit_b_16    torchvision's
  bert_OPSET_ATTENTION                                 transformers' BertModel: ts14 and ts17 by the TorchScript exporter,
                                                       dy18, dy20 and dy23 by torch.export; attention eager or sdpa
  dlrm                                                 dense features, embeddings and their dot products
  mlp_KIND                                             scikit-learn's, fitted to random data, by skl2onnx: classifiers of
                                                       three classes (softmax) and two (sigmoid), a regressor, and a
                                                       classifier behind a StandardScaler (scaled)
--small shrinks each to a file of some 100 KB with the same kinds of nodes, as tests/models has them.
Purely random convolutional networks multiply an error from layer to layer, up to a tenth of the output and more in BF16, whoever
computes it. So theirs are calibrated (statistics from seeded images, modest residual branches) and errors add up as in trained
ones: in norm PyTorch's own FP16 is some 1e-3 to 2e-3 off its FP32, its BF16 some 1e-2.
Needs the packages of scripts/export-requirements.txt.
exit codes: 0 written, 1 one could not be exported (the others are), 2 usage
"""
import argparse
import logging
import pathlib
import sys
import warnings

import numpy as np
import torch
from torch import nn

SEED = 20261130
BERT_VARIANTS = [(exporter, opset, attention) for exporter, opset in
                 (("ts", 14), ("ts", 17), ("dy", 18), ("dy", 20), ("dy", 23)) for attention in ("eager", "sdpa")]


class Dlrm(nn.Module):
    """A recommendation model without EmbeddingBag: one index a table."""

    def __init__(self, tables, rows, width, dense):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(dense, 2 * width), nn.ReLU(), nn.Linear(2 * width, width), nn.ReLU())
        pairs = tables * (tables + 1) // 2
        self.top = nn.Sequential(nn.Linear(pairs + width, 2 * width), nn.ReLU(), nn.Linear(2 * width, 1), nn.Sigmoid())
        lower = torch.tril_indices(tables + 1, tables + 1, -1)
        self.register_buffer("pairs", lower[0] * (tables + 1) + lower[1])

    def forward(self, dense, indices):
        bottom = self.bottom(dense)
        vectors = torch.stack([bottom] + [table(indices[:, i]) for i, table in enumerate(self.tables)], dim=1)
        products = torch.matmul(vectors, vectors.transpose(1, 2)).flatten(1)
        return self.top(torch.cat([bottom, products[:, self.pairs]], dim=1))


def small_resnet():
    """ResNet-50 with one bottleneck a stage and an eighth of the channels, which torchvision's own class fixes."""
    from torchvision.models.resnet import Bottleneck
    channels, planes, stages = 8, (8, 16, 32, 64), []
    for i, width in enumerate(planes):
        stride = 1 if i == 0 else 2
        shortcut = nn.Sequential(nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))
        stages.append(Bottleneck(channels, width, stride, shortcut))
        channels = 4 * width
    return nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *stages,
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


class Encoder(nn.Module):
    """BertModel with the two outputs and three inputs that servers use."""

    def __init__(self, bert):
        super().__init__()
        self.bert = bert

    def forward(self, input_ids, attention_mask, token_type_ids):
        result = self.bert(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        return result.last_hidden_state, result.pooler_output


def block_ends(network):
    """(a block's last batch normalisation, with no activation of the block's own behind it; whether a shortcut is added)."""
    from torchvision.models.efficientnet import MBConv
    from torchvision.models.mobilenetv2 import InvertedResidual
    from torchvision.models.resnet import Bottleneck
    for block in network.modules():
        if isinstance(block, Bottleneck):
            yield block.bn3, True
        elif isinstance(block, InvertedResidual):
            yield block.conv[-1], block.use_res_connect
        elif isinstance(block, MBConv):
            yield block.block[-1][1], block.use_res_connect


def settle(module):
    """Affine parameters of normalisations away from 0 and 1, so that a wrong one shows."""
    for part in module.modules():
        if isinstance(part, (nn.BatchNorm2d, nn.LayerNorm)):
            nn.init.normal_(part.bias, std=0.2)
            nn.init.uniform_(part.weight, 0.6, 1.4)
    return module.eval()


@torch.no_grad()
def calibrate(network, images):
    """A convolutional network as well conditioned as a trained one, see the head of this file: batch normalisations with the
    statistics that `images` give them, most values to the right of the activations' kinks, and shortcuts above branches."""
    centred, normalisations = {end for end, _ in block_ends(network)}, []
    for part in network.modules():
        if isinstance(part, nn.BatchNorm2d):
            normalisations.append(part)
        elif isinstance(part, nn.MaxPool2d):
            centred.add(normalisations[-1])  # Pooling raises the mean by itself.
    for part in normalisations:
        if part not in centred:
            part.bias += 1
    for end, has_shortcut in block_ends(network):
        if has_shortcut:
            nn.init.uniform_(end.weight, 0.2, 0.5)
    # One batch, so that every layer's statistics are of what the layers before it send; dropout is off.
    for part in normalisations:
        part.train()
        part.momentum = 1.0
    network(images)
    return network.eval()


def vision(name, small):
    from torchvision import models
    from torchvision.models.efficientnet import EfficientNet, MBConvConfig
    size = 64 if small else 224
    if name == "resnet50":
        network = small_resnet() if small else models.resnet50()
    elif name == "mobilenet_v2":
        network = models.mobilenet_v2(width_mult=0.1, num_classes=10) if small else models.mobilenet_v2()
        if small:  # The last layer keeps 1,280 channels whatever the width is.
            network.features[-1] = models.mobilenetv2.Conv2dNormActivation(
                network.features[-2].out_channels, 64, kernel_size=1, norm_layer=nn.BatchNorm2d, activation_layer=nn.ReLU6)
            network.classifier[1] = nn.Linear(64, 10)
    elif name == "efficientnet_b0":
        if small:
            setting = [MBConvConfig(1, 3, 1, 8, 8, 1), MBConvConfig(6, 5, 2, 8, 16, 2), MBConvConfig(6, 3, 2, 16, 24, 1)]
            network = EfficientNet(setting, dropout=0.2, num_classes=10, last_channel=64)
        else:
            network = models.efficientnet_b0()
    else:
        network = models.VisionTransformer(image_size=size, patch_size=16, num_layers=2, num_heads=2, hidden_dim=32,
                                           mlp_dim=64, num_classes=10) if small else models.vit_b_16()
        nn.init.normal_(network.heads.head.weight, std=0.1)  # It begins at zero.
    network = settle(network)
    if name != "vit_b_16":
        network = calibrate(network, torch.randn(32, 3, size, size))
    return network, (torch.randn(2, 3, size, size),), ["x"], ["y"]


def bert(attention, small):
    from transformers import BertConfig, BertModel
    config = BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=120,
                        max_position_embeddings=32) if small else BertConfig()
    config._attn_implementation = attention
    length = 16 if small else 128
    ids = torch.randint(0, config.vocab_size, (2, length))
    mask = torch.ones(2, length, dtype=torch.int64)
    mask[1, length // 2:] = 0
    return (settle(Encoder(BertModel(config))), (ids, mask, torch.zeros_like(ids)),
            ["input_ids", "attention_mask", "token_type_ids"], ["last_hidden_state", "pooler_output"])


def dlrm(small):
    tables, rows, width, dense = (3, 50, 8, 5) if small else (26, 10000, 64, 13)
    return (Dlrm(tables, rows, width, dense).eval(), (torch.randn(2, dense), torch.randint(0, rows, (2, tables))),
            ["dense", "indices"], ["y"])


def mlp(kind, small):
    """A fitted estimator instead of a module. A linear teacher makes what it learns, and weight decay keeps scores modest:
    rounding errors then stay what they are, see the head of this file."""
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    features, hidden = (20, (32, 16)) if small else (200, (512, 256))
    x = np.random.standard_normal((2000, features)).astype(np.float32)
    scores = x @ np.random.standard_normal((features, 3)) / features**0.5
    common = {"hidden_layer_sizes": hidden, "alpha": 5.0, "max_iter": 50, "random_state": SEED}
    if kind == "regressor":
        estimator, y = MLPRegressor(activation="logistic", **common), 3 + scores[:, 0]
    elif kind == "sigmoid":
        estimator, y = MLPClassifier(activation="tanh", **common), (scores[:, 0] > 0).astype(int)
    else:
        estimator, y = MLPClassifier(**common), 10 * scores.argmax(axis=1) - 5  # Labels that are not their own places.
        if kind == "scaled":
            x = x * np.linspace(0.5, 2, features, dtype=np.float32) + 1
            estimator = make_pipeline(StandardScaler(), estimator)
    return estimator.fit(x, y), (x[:1],), ["X"], ["variable"] if kind == "regressor" else ["label", "probabilities"]


def strip(path):
    """Leaves out where in Python each node comes from: absolute paths, and half of a small file."""
    import onnx
    model = onnx.load(path)
    for holder in (model, model.graph, *model.functions):
        for part in (holder, *getattr(holder, "node", []), *getattr(holder, "value_info", []), *getattr(holder, "input", []),
                     *getattr(holder, "output", []), *getattr(holder, "initializer", [])):
            if isinstance(part, str):
                continue
            part.doc_string = ""
            if hasattr(part, "metadata_props"):
                del part.metadata_props[:]
    onnx.save(model, path)


def export(module, inputs, input_names, output_names, path, exporter, opset):
    path.parent.mkdir(parents=True, exist_ok=True)
    if exporter == "skl":
        from skl2onnx import to_onnx
        options = None if len(output_names) == 1 else {"zipmap": False}
        path.write_bytes(to_onnx(module, inputs[0], options=options, target_opset=opset).SerializeToString())
        return
    # The exporters differ in how an open dimension is said, and torch.export wants it of inputs alone.
    if exporter == "ts":
        axes = {name: {0: "batch"} for name in input_names + output_names}
        torch.onnx.export(module, inputs, str(path), input_names=input_names, output_names=output_names,
                          opset_version=opset, dynamic_axes=axes, dynamo=False)
        return
    batch = torch.export.Dim("batch", min=1, max=1024)
    program = torch.onnx.export(module, inputs, input_names=input_names, output_names=output_names, opset_version=opset,
                                dynamic_shapes=[{0: batch} for _ in inputs], dynamo=True, verbose=False)
    program.save(str(path), external_data=False)


def plan(small):
    """(name, what makes the module or estimator, exporter, opset)."""
    for name in ("resnet50", "mobilenet_v2", "efficientnet_b0"):
        yield f"{name}_ts17", lambda n=name: vision(n, small), "ts", 17
        yield f"{name}_dy18", lambda n=name: vision(n, small), "dy", 18
    yield "vit_b_16_dy18", lambda: vision("vit_b_16", small), "dy", 18
    for exporter, opset, attention in BERT_VARIANTS:
        yield f"bert_{exporter}{opset}_{attention}", lambda a=attention: bert(a, small), exporter, opset
    yield "dlrm_ts17", lambda: dlrm(small), "ts", 17
    yield "dlrm_dy18", lambda: dlrm(small), "dy", 18
    for kind, opset in (("softmax", 21), ("sigmoid", 13), ("regressor", 21), ("scaled", 17)):
        yield f"mlp_{kind}_skl{opset}", lambda k=kind: mlp(k, small), "skl", opset


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=pathlib.Path, help="the repository; a model's folder is written anew")
    parser.add_argument("--small", action="store_true", help="small networks of the same kinds")
    parser.add_argument("--models", default="", help="comma-separated beginnings of names (default: all)")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    wanted = tuple(filter(None, arguments.models.split(",")))
    failed = 0
    for name, make, exporter, opset in plan(arguments.small):
        if wanted and not name.startswith(wanted):
            continue
        torch.manual_seed(SEED)
        np.random.seed(SEED % 2**32)
        path = arguments.output / name / "1" / "model.onnx"
        try:
            with torch.no_grad():
                export(*make(), path, exporter, opset)
            strip(path)
            print(f"{name}: {path.stat().st_size} bytes", flush=True)
        except Exception as error:  # One exporter's gap is no reason to leave the others out.
            failed += 1
            print(f"{name}: {type(error).__name__}: {str(error).strip().splitlines()[0][:200]}", file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
