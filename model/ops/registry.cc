// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/ops/registry.h"

#include "gpu/kernels/elementwise_chain.h"
#include "model/ops/operators.h"

namespace sluice::model {
namespace {

// Domain ai.onnx. Name, opsets, fewest and most inputs, most outputs, shape rule, lowering. Where an operator changed
// its inputs or meaning within the range, its functions look at the context's opset.
constexpr OperatorEntry kOperators[] = {
    {"Abs", 7, 23, 1, 1, 1, InferUnary, LowerUnary},
    {"Add", 7, 23, 2, 2, 1, InferBinary, LowerBinary},
    {"And", 7, 23, 2, 2, 1, InferComparison, LowerBinary},
    {"ArgMax", 7, 23, 1, 1, 1, InferArgReduce, LowerArgReduce},
    {"ArgMin", 7, 23, 1, 1, 1, InferArgReduce, LowerArgReduce},
    {"Attention", 23, 23, 3, 7, 1, InferAttention, LowerAttention},
    {"AveragePool", 7, 23, 1, 1, 1, InferPool, LowerPool},
    {"BatchNormalization", 9, 23, 5, 5, 1, InferBatchNorm, LowerBatchNorm},
    {"Cast", 7, 23, 1, 1, 1, InferCast, LowerCast},
    {"Ceil", 7, 23, 1, 1, 1, InferUnary, LowerUnary},
    {"Clip", 7, 23, 1, 3, 1, InferClip, LowerUnary},
    {"Concat", 7, 23, 1, kAnyCount, 1, InferConcat, LowerConcat},
    {"Constant", 7, 23, 0, 0, 1, InferConstant, nullptr},
    {"ConstantOfShape", 9, 23, 1, 1, 1, InferConstantOfShape, nullptr},
    {"Conv", 7, 23, 2, 3, 1, InferConv, LowerConv},
    {"Cos", 7, 23, 1, 1, 1, InferUnary, LowerUnary},
    {"Div", 7, 23, 2, 2, 1, InferBinary, LowerBinary},
    {"Dropout", 7, 23, 1, 3, 1, InferDropout, LowerView},
    {"Elementwise", kInternalOpset, kInternalOpset, 1, gpu::kMaxChainInputs, 1, InferElementwise, LowerElementwise},
    {"Equal", 7, 23, 2, 2, 1, InferComparison, LowerBinary},
    {"Erf", 9, 23, 1, 1, 1, InferUnary, LowerUnary},
    {"Exp", 7, 23, 1, 1, 1, InferUnary, LowerUnary},
    {"Expand", 8, 23, 2, 2, 1, InferExpand, LowerExpand},
    {"Flatten", 7, 23, 1, 1, 1, InferFlatten, LowerView},
    {"Floor", 7, 23, 1, 1, 1, InferUnary, LowerUnary},
    {"Gather", 7, 23, 2, 2, 1, InferGather, LowerGather},
    {"GatherND", 11, 23, 2, 2, 1, InferGatherNd, LowerGatherNd},
    {"Gelu", 20, 23, 1, 1, 1, InferUnary, LowerUnary},
    {"Gemm", 7, 23, 2, 3, 1, InferGemm, LowerGemm},
    {"GlobalAveragePool", 7, 23, 1, 1, 1, InferGlobalPool, LowerGlobalPool},
    {"GlobalMaxPool", 7, 23, 1, 1, 1, InferGlobalPool, LowerGlobalPool},
    {"Greater", 7, 23, 2, 2, 1, InferComparison, LowerBinary},
    {"GreaterOrEqual", 12, 23, 2, 2, 1, InferComparison, LowerBinary},
    {"HardSigmoid", 7, 23, 1, 1, 1, InferUnary, LowerUnary},
    {"HardSwish", 14, 23, 1, 1, 1, InferUnary, LowerUnary},
    {"Identity", 7, 23, 1, 1, 1, InferSame, LowerView},
    {"IsNaN", 9, 23, 1, 1, 1, InferIsNan, LowerIsNan},
    {"LayerNormalization", 17, 23, 2, 3, 1, InferLayerNorm, LowerLayerNorm},
    {"LeakyRelu", 7, 23, 1, 1, 1, InferUnary, LowerUnary},
    {"Less", 7, 23, 2, 2, 1, InferComparison, LowerBinary},
    {"LessOrEqual", 12, 23, 2, 2, 1, InferComparison, LowerBinary},
    {"Log", 7, 23, 1, 1, 1, InferUnary, LowerUnary},
    {"LogSoftmax", 7, 23, 1, 1, 1, InferSoftmax, LowerSoftmax},
    {"MatMul", 7, 23, 2, 2, 1, InferMatMul, LowerMatMul},
    {"Max", 7, 23, 1, kAnyCount, 1, InferVariadic, LowerVariadic},
    {"MaxPool", 7, 23, 1, 1, 1, InferPool, LowerPool},
    {"Min", 7, 23, 1, kAnyCount, 1, InferVariadic, LowerVariadic},
    {"Mod", 10, 23, 2, 2, 1, InferBinary, LowerMod},
    {"Mul", 7, 23, 2, 2, 1, InferBinary, LowerBinary},
    {"Neg", 7, 23, 1, 1, 1, InferUnary, LowerUnary},
    {"Not", 7, 23, 1, 1, 1, InferUnary, LowerUnary},
    {"Or", 7, 23, 2, 2, 1, InferComparison, LowerBinary},
    {"Pow", 7, 23, 2, 2, 1, InferBinary, LowerBinary},
    {"Range", 11, 23, 3, 3, 1, InferRange, nullptr},
    {"Reciprocal", 7, 23, 1, 1, 1, InferUnary, LowerUnary},
    {"ReduceL1", 7, 23, 1, 2, 1, InferReduce, LowerReduce},
    {"ReduceL2", 7, 23, 1, 2, 1, InferReduce, LowerReduce},
    {"ReduceMax", 7, 23, 1, 2, 1, InferReduce, LowerReduce},
    {"ReduceMean", 7, 23, 1, 2, 1, InferReduce, LowerReduce},
    {"ReduceMin", 7, 23, 1, 2, 1, InferReduce, LowerReduce},
    {"ReduceProd", 7, 23, 1, 2, 1, InferReduce, LowerReduce},
    {"ReduceSum", 7, 23, 1, 2, 1, InferReduce, LowerReduce},
    {"ReduceSumSquare", 7, 23, 1, 2, 1, InferReduce, LowerReduce},
    {"Relu", 7, 23, 1, 1, 1, InferUnary, LowerUnary},
    {"Reshape", 7, 23, 2, 2, 1, InferReshape, LowerView},
    {"Shape", 7, 23, 1, 1, 1, InferShape, nullptr},
    {"Sigmoid", 7, 23, 1, 1, 1, InferUnary, LowerUnary},
    {"Sign", 9, 23, 1, 1, 1, InferUnary, LowerUnary},
    {"Sin", 7, 23, 1, 1, 1, InferUnary, LowerUnary},
    {"Size", 7, 23, 1, 1, 1, InferSize, nullptr},
    {"Slice", 7, 23, 1, 5, 1, InferSlice, LowerSlice},
    {"Softmax", 7, 23, 1, 1, 1, InferSoftmax, LowerSoftmax},
    {"Split", 7, 23, 1, 2, kAnyCount, InferSplit, LowerSplit},
    {"Sqrt", 7, 23, 1, 1, 1, InferUnary, LowerUnary},
    {"Squeeze", 7, 23, 1, 2, 1, InferSqueeze, LowerView},
    {"Sub", 7, 23, 2, 2, 1, InferBinary, LowerBinary},
    {"Sum", 7, 23, 1, kAnyCount, 1, InferVariadic, LowerVariadic},
    {"Tanh", 7, 23, 1, 1, 1, InferUnary, LowerUnary},
    {"Tile", 7, 23, 2, 2, 1, InferTile, LowerTile},
    {"Transpose", 7, 23, 1, 1, 1, InferTranspose, LowerTranspose},
    {"Unsqueeze", 7, 23, 1, 2, 1, InferUnsqueeze, LowerView},
    {"Where", 9, 23, 3, 3, 1, InferWhere, LowerWhere},
    {"Xor", 7, 23, 2, 2, 1, InferComparison, LowerBinary},
};

// Domain ai.onnx.ml: what scikit-learn's networks and scalers need.
constexpr OperatorEntry kMlOperators[] = {
    {"ArrayFeatureExtractor", 1, 5, 2, 2, 1, InferArrayFeatureExtractor, LowerArrayFeatureExtractor},
    {"Scaler", 1, 5, 1, 1, 1, InferScaler, LowerScaler},
};

constexpr OperatorDomain kDomains[] = {
    {"ai.onnx", kMinOpset, kMaxOpset, kOperators},
    {"ai.onnx.ml", 1, 5, kMlOperators},
};

}  // namespace

const OperatorEntry* OperatorDomain::Find(absl::string_view operator_name, int64_t opset) const {
  for (const OperatorEntry& entry : operators) {
    if (entry.name == operator_name && opset >= entry.min_opset && opset <= entry.max_opset) return &entry;
  }
  return nullptr;
}

bool OperatorDomain::Knows(absl::string_view operator_name) const {
  for (const OperatorEntry& entry : operators) {
    if (entry.name == operator_name && entry.max_opset >= min_opset) return true;
  }
  return false;
}

std::span<const OperatorDomain> OperatorDomains() { return kDomains; }

const OperatorDomain* FindDomain(absl::string_view name) {
  for (const OperatorDomain& domain : kDomains) {
    if (domain.name == name) return &domain;
  }
  return name.empty() ? &kDomains[0] : nullptr;
}

const OperatorEntry* FindOperator(absl::string_view name, int64_t opset) { return kDomains[0].Find(name, opset); }

}  // namespace sluice::model
