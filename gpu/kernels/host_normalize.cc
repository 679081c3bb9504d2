// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "base/status_macros.h"
#include "gpu/kernels/geometry.h"
#include "gpu/kernels/host_kernels.h"
#include "gpu/kernels/host_loop.h"
#include "gpu/kernels/host_math.h"
#include "gpu/kernels/host_row.h"

namespace sluice::gpu::host {
namespace {

using Result = absl::StatusOr<std::unique_ptr<Kernel>>;

template <class T>
void SoftmaxRow(const T* input, T* output, int64_t count, bool log) {
  const T largest = RowMax(input, count);
  if (log) {
    const double sum = LaneSum(count, [&](int64_t i) { return static_cast<double>(Exp(input[i] - largest)); });
    const T shift = static_cast<T>(std::log(sum));
    SLUICE_INDEPENDENT_LOOP
    for (int64_t i = 0; i < count; ++i) output[i] = input[i] - largest - shift;
    return;
  }
  SLUICE_INDEPENDENT_LOOP
  for (int64_t i = 0; i < count; ++i) output[i] = Exp(input[i] - largest);
  const T scale = static_cast<T>(1.0 / LaneSum(count, [&](int64_t i) { return static_cast<double>(output[i]); }));
  for (int64_t i = 0; i < count; ++i) output[i] *= scale;
}

/// The same down `width` columns at most kLanes wide, `stride` elements apart from row to row.
template <class T>
void SoftmaxColumns(const T* input, T* output, int64_t count, int64_t stride, int64_t width, bool log) {
  T largest[kLanes];
  double sums[kLanes] = {};
  std::copy(input, input + width, largest);
  for (int64_t k = 1; k < count; ++k) {
    for (int64_t lane = 0; lane < width; ++lane) largest[lane] = Larger(largest[lane], input[k * stride + lane]);
  }
  for (int64_t k = 0; k < count; ++k) {
    for (int64_t lane = 0; lane < width; ++lane) {
      const T shifted = input[k * stride + lane] - largest[lane];
      const T power = Exp(shifted);
      output[k * stride + lane] = log ? shifted : power;
      sums[lane] += static_cast<double>(power);
    }
  }
  for (int64_t lane = 0; lane < width; ++lane) sums[lane] = log ? std::log(sums[lane]) : 1.0 / sums[lane];
  for (int64_t k = 0; k < count; ++k) {
    for (int64_t lane = 0; lane < width; ++lane) {
      T& value = output[k * stride + lane];
      value = log ? static_cast<T>(value - sums[lane]) : static_cast<T>(value * sums[lane]);
    }
  }
}

}  // namespace

Result PlainSoftmax(const SoftmaxDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const AxisGeometry geometry, MakeAxisGeometry(description.dims, description.axis));
  const int64_t length = geometry.length, inner = geometry.inner;
  const int64_t outer = length == 0 ? 0 : geometry.outer;
  const bool log = description.log;
  const std::string name =
      absl::StrCat(log ? "log softmax " : "softmax ", DimsToString(description.dims), " over ", geometry.axis);
  return DispatchType(FloatTypes{}, description.type, "softmax", [&](auto tag) -> Result {
    using T = decltype(tag);
    return MakeLoopKernel(name, [=](const KernelArgs& args) {
      const T* input = Elements<T>(args, 0);
      T* output = Elements<T>(args, 1);
      if (inner == 1) {
        ParallelRanges(outer, length, [&](int64_t begin, int64_t end) {
          for (int64_t row = begin; row < end; ++row) {
            SoftmaxRow(input + row * length, output + row * length, length, log);
          }
        });
        return;
      }
      const int64_t strips = (inner + kLanes - 1) / kLanes;
      ParallelRanges(outer * strips, length * kLanes, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t column = i % strips * kLanes;
          const int64_t offset = i / strips * length * inner + column;
          SoftmaxColumns(input + offset, output + offset, length, inner, std::min(kLanes, inner - column), log);
        }
      });
    });
  });
}

Result PlainBatchNorm(const BatchNormDescription& description) {
  const Dims& dims = description.input;
  SLUICE_ASSIGN_OR_RETURN(const AxisGeometry geometry, MakeBatchNormGeometry(description));
  const int64_t channels = geometry.length, planes = geometry.outer * channels, area = geometry.inner;
  const float epsilon = description.epsilon;
  const bool relu = description.activation == Activation::kRelu;
  return MakeLoopKernel(absl::StrCat("batch norm ", DimsToString(dims)), [=](const KernelArgs& args) {
    const float* input = Elements<float>(args, 0);
    const float* scale = Elements<float>(args, 1);
    const float* bias = Elements<float>(args, 2);
    const float* mean = Elements<float>(args, 3);
    const float* variance = Elements<float>(args, 4);
    float* output = Elements<float>(args, 5);
    ParallelRanges(planes, area, [&](int64_t begin, int64_t end) {
      for (int64_t plane = begin; plane < end; ++plane) {
        const int64_t c = plane % channels;
        const float factor = scale[c] / std::sqrt(variance[c] + epsilon);
        const float shift = bias[c], center = mean[c];
        const float floor = relu ? 0.0f : -std::numeric_limits<float>::infinity();
        const float* from = input + plane * area;
        float* to = output + plane * area;
        SLUICE_INDEPENDENT_LOOP
        for (int64_t i = 0; i < area; ++i) {
          const float value = (from[i] - center) * factor + shift;
          to[i] = value < floor ? floor : value;
        }
      }
    });
  });
}

Result PlainLayerNorm(const LayerNormDescription& description) {
  if (description.type != DataType::kFp32) return LacksType(Backend::kHost, "layer norm", description.type);
  const Dims& dims = description.input;
  SLUICE_ASSIGN_OR_RETURN(const AxisGeometry geometry, MakeAxisGeometry(dims, description.axis));
  const int64_t length = geometry.length * geometry.inner;
  const int64_t rows = length == 0 ? 0 : geometry.outer;
  const float epsilon = description.epsilon;
  const bool has_bias = description.has_bias;
  return MakeLoopKernel(
      absl::StrCat("layer norm ", DimsToString(dims), " from ", geometry.axis), [=](const KernelArgs& args) {
        const float* input = Elements<float>(args, 0);
        const float* scale = Elements<float>(args, 1);
        const float* bias = has_bias ? Elements<float>(args, 2) : nullptr;
        float* output = Elements<float>(args, has_bias ? 3 : 2);
        ParallelRanges(rows, length, [&](int64_t begin, int64_t end) {
          for (int64_t row = begin; row < end; ++row) {
            const float* from = input + row * length;
            float* to = output + row * length;
            const double mean = LaneSum(length, [&](int64_t i) { return static_cast<double>(from[i]); }) / length;
            const double variance =
                LaneSum(length, [&](int64_t i) { return (from[i] - mean) * (from[i] - mean); }) / length;
            const float center = static_cast<float>(mean);
            const float factor = static_cast<float>(1.0 / std::sqrt(variance + epsilon));
            SLUICE_INDEPENDENT_LOOP
            for (int64_t i = 0; i < length; ++i)
              to[i] = (from[i] - center) * factor * scale[i] + (bias ? bias[i] : 0.0f);
          }
        });
      });
}

}  // namespace sluice::gpu::host
