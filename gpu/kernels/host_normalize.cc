// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
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

/// An addend of a layer norm in a launch.
struct AddendRows {
  const float* data = nullptr;
  const void* indices = nullptr;  ///< Of a table.
  int64_t rows = 1;
  int64_t table_rows = 0;
  bool wide = true;  ///< Indices are INT64, else INT32.

  const float* Row(int64_t row, int64_t length) const {
    row %= rows;
    if (indices != nullptr) {
      int64_t index = wide ? static_cast<const int64_t*>(indices)[row] : static_cast<const int32_t*>(indices)[row];
      if (index < 0) index += table_rows;
      row = std::clamp<int64_t>(index, 0, table_rows - 1);
    }
    return data + row * length;
  }
};

template <size_t kCount>
void AddRows(const float* const* from, float* to, int64_t length) {
  SLUICE_INDEPENDENT_LOOP
  for (int64_t i = 0; i < length; ++i) {
    float sum = from[0][i];
    for (size_t k = 1; k < kCount; ++k) sum += from[k][i];
    to[i] = sum;
  }
}

/// In one pass, since `to` may be one of the rows.
void AddRows(const float* const* from, size_t count, float* to, int64_t length) {
  static_assert(kMostLayerNormAddends == 4);
  if (count == 1) AddRows<1>(from, to, length);
  if (count == 2) AddRows<2>(from, to, length);
  if (count == 3) AddRows<3>(from, to, length);
  if (count == 4) AddRows<4>(from, to, length);
}

/// `x` and `to` may be the same row.
void NormalizeRow(const float* x, const float* scale, const float* bias, float epsilon, float* to, int64_t length) {
  const double mean = LaneSum(length, [&](int64_t i) { return static_cast<double>(x[i]); }) / length;
  const double variance = LaneSum(length, [&](int64_t i) { return (x[i] - mean) * (x[i] - mean); }) / length;
  const float center = static_cast<float>(mean);
  const float factor = static_cast<float>(1.0 / std::sqrt(variance + epsilon));
  SLUICE_INDEPENDENT_LOOP
  for (int64_t i = 0; i < length; ++i) to[i] = (x[i] - center) * factor * scale[i] + (bias ? bias[i] : 0.0f);
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
  SLUICE_ASSIGN_OR_RETURN(const LayerNormGeometry geometry, MakeLayerNormGeometry(description));
  const int64_t length = geometry.length, rows = length == 0 ? 0 : geometry.rows;
  const size_t count = geometry.addend_rows.size();
  AddendRows prepared[kMostLayerNormAddends];
  for (size_t k = 0; k < count; ++k) prepared[k].rows = geometry.addend_rows[k];
  for (size_t k = 0; k < description.addends.size(); ++k) {
    prepared[k].table_rows = description.addends[k].table_rows;
    prepared[k].wide = description.addends[k].index_type == DataType::kInt64;
  }
  return MakeLoopKernel(geometry.name, [=, epsilon = description.epsilon, has_bias = description.has_bias,
                                        writes_sum = description.writes_sum](const KernelArgs& args) {
    AddendRows addends[kMostLayerNormAddends];
    size_t span = 0;
    for (size_t k = 0; k < count; ++k) {
      addends[k] = prepared[k];
      addends[k].data = Elements<float>(args, span++);
      if (addends[k].table_rows > 0) addends[k].indices = args.spans[span++].data;
    }
    const float* scale = Elements<float>(args, span++);
    const float* bias = has_bias ? Elements<float>(args, span++) : nullptr;
    float* output = Elements<float>(args, span++);
    float* sums = writes_sum ? Elements<float>(args, span) : output;  // The sum lies where the result goes anyway.
    ParallelRanges(rows, length * static_cast<int64_t>(count), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const float* from[kMostLayerNormAddends] = {};
        for (size_t k = 0; k < count; ++k) from[k] = addends[k].Row(row, length);
        const float* x = from[0];
        if (count > 1 || writes_sum) {
          AddRows(from, count, sums + row * length, length);
          x = sums + row * length;
        }
        NormalizeRow(x, scale, bias, epsilon, output + row * length, length);
      }
    });
  });
}

}  // namespace sluice::gpu::host
