// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <span>
#include <utility>

#include "base/status_macros.h"
#include "gpu/kernels/geometry.h"
#include "gpu/kernels/host_constant.h"
#include "gpu/kernels/host_kernels.h"
#include "gpu/kernels/host_loop.h"

namespace sluice::gpu::host {
namespace {

/// A pointwise convolution sees no neighbours, so that its positions may count as one long row.
Spatial MergePointwise(const Spatial& spatial) {
  int64_t area = 1;
  for (size_t i = 0; i < spatial.input.size(); ++i) {
    if (spatial.kernel[i] != 1 || spatial.strides[i] != 1 || spatial.output[i] != spatial.input[i]) return spatial;
    area *= spatial.input[i];
  }
  return {.input = {area},
          .kernel = {1},
          .strides = {1},
          .dilations = {1},
          .pads_begin = {0},
          .pads_end = {0},
          .output = {area}};
}

int64_t Area(const Dims& dims) { return dims[0] * dims[1] * dims[2]; }

/// Direct convolution: for each filter, every weight's input row, shifted, is added to the output row.
class PlainConvolution {
 public:
  PlainConvolution(const ConvGeometry& geometry, const ConvDescription& description, HostConstant weights,
                   HostConstant bias)
      : geometry_(geometry),
        shape_(PadToThree(MergePointwise(DropUnitDims(geometry.spatial)))),
        channels_(geometry.channels / geometry.groups),
        filters_(geometry.filters / geometry.groups),
        residual_(description.residual),
        activation_(description.activation),
        low_(description.low),
        high_(description.high),
        weights_(std::move(weights)),
        bias_(std::move(bias)) {}

  void operator()(const KernelArgs& args) const {
    const float* input = Elements<float>(args, 0);
    const float* residual = residual_ ? Elements<float>(args, 1) : nullptr;
    float* output = Elements<float>(args, residual_ ? 2 : 1);
    const int64_t blocks = (filters_ + kBlock - 1) / kBlock;
    const int64_t macs = Area(shape_.output) * kBlock * channels_ * Area(shape_.kernel);
    ParallelRanges(geometry_.batch * geometry_.groups * blocks, macs, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t n = i / blocks / geometry_.groups, group = i / blocks % geometry_.groups;
        const int64_t first = group * filters_ + i % blocks * kBlock;
        const int64_t last = std::min(first + kBlock, (group + 1) * filters_);
        const float* image = input + (n * geometry_.channels + group * channels_) * Area(shape_.input);
        const int64_t offset = (n * geometry_.filters + first) * Area(shape_.output);
        Filters(image, first, last - first, residual != nullptr ? residual + offset : nullptr, output + offset);
      }
    });
  }

 private:
  // Filters that share one pass over the input: an input row is loaded once for all of them.
  static constexpr int64_t kBlock = 4;

  void Filters(const float* image, int64_t first, int64_t count, const float* residual, float* output) const {
    const int64_t area = Area(shape_.output);
    for (int64_t f = 0; f < count; ++f) {
      const float bias = bias_ ? bias_.floats()[first + f] : 0.0f;
      float* plane = output + f * area;
      for (int64_t i = 0; i < area; ++i) plane[i] = bias + (residual != nullptr ? residual[f * area + i] : 0.0f);
    }
    const int64_t kernel = Area(shape_.kernel);
    const float* weights = weights_.floats() + first * channels_ * kernel;
    for (int64_t c = 0; c < channels_; ++c, image += Area(shape_.input)) {
      for (int64_t k = 0; k < kernel; ++k) {
        float w[kBlock] = {};
        for (int64_t f = 0; f < count; ++f) w[f] = weights[(f * channels_ + c) * kernel + k];
        Shifted(image, k, w, count, output);
      }
    }
    Activate(count * area, output);
  }

  void Activate(int64_t count, float* values) const {
    switch (activation_) {
      case Activation::kNone:
        return;
      case Activation::kRelu:
        for (int64_t i = 0; i < count; ++i) values[i] = values[i] < 0.0f ? 0.0f : values[i];
        return;
      case Activation::kClip:
        for (int64_t i = 0; i < count; ++i) {
          const float raised = values[i] < low_ ? low_ : values[i];
          values[i] = raised > high_ ? high_ : raised;
        }
        return;
      case Activation::kSwish:
        for (int64_t i = 0; i < count; ++i) values[i] /= 1.0f + std::exp(-values[i]);
        return;
      case Activation::kGelu:
        return;  // Refused when it was prepared.
    }
  }

  /// Positions [begin, end) of the output, in one dimension, whose input under kernel position k exists.
  struct Range {
    int64_t begin, end, shift;
  };
  Range Inside(size_t dim, int64_t k) const {
    const int64_t shift = k * shape_.dilations[dim] - shape_.pads_begin[dim], stride = shape_.strides[dim];
    const int64_t begin = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
    const int64_t past = shape_.input[dim] - shift;  // output * stride must stay below it
    const int64_t end = past <= 0 ? 0 : std::min(shape_.output[dim], (past + stride - 1) / stride);
    return {begin, end, shift};
  }

  void Shifted(const float* image, int64_t k, const float (&w)[kBlock], int64_t count, float* output) const {
    const Dims &kernel = shape_.kernel, &in = shape_.input, &out = shape_.output, &strides = shape_.strides;
    const Range z = Inside(0, k / (kernel[1] * kernel[2])), y = Inside(1, k / kernel[2] % kernel[1]);
    const Range x = Inside(2, k % kernel[2]);
    for (int64_t oz = z.begin; oz < z.end; ++oz) {
      for (int64_t oy = y.begin; oy < y.end; ++oy) {
        const int64_t iz = oz * strides[0] + z.shift, iy = oy * strides[1] + y.shift;
        const float* from = image + (iz * in[1] + iy) * in[2] + x.shift;
        float* to = output + (oz * out[1] + oy) * out[2];
        if (count == kBlock) {
          AddRows(from, strides[2], w, to, Area(out), x.begin, x.end);
        } else {
          for (int64_t f = 0; f < count; ++f) {
            for (int64_t i = x.begin; i < x.end; ++i) to[f * Area(out) + i] += w[f] * from[i * strides[2]];
          }
        }
      }
    }
  }

  static void AddRows(const float* from, int64_t stride, const float (&w)[kBlock], float* to, int64_t plane,
                      int64_t begin, int64_t end) {
    float* __restrict a = to;
    float* __restrict b = to + plane;
    float* __restrict c = to + 2 * plane;
    float* __restrict d = to + 3 * plane;
    if (stride == 1) {
      for (int64_t i = begin; i < end; ++i) {
        a[i] += w[0] * from[i];
        b[i] += w[1] * from[i];
        c[i] += w[2] * from[i];
        d[i] += w[3] * from[i];
      }
    } else {
      for (int64_t i = begin; i < end; ++i) {
        const float x = from[i * stride];
        a[i] += w[0] * x;
        b[i] += w[1] * x;
        c[i] += w[2] * x;
        d[i] += w[3] * x;
      }
    }
  }

  const ConvGeometry geometry_;
  const Spatial shape_;     // always three dimensions
  const int64_t channels_;  // of one group; likewise filters_
  const int64_t filters_;
  const bool residual_;
  const Activation activation_;
  const float low_, high_;
  const HostConstant weights_;
  const HostConstant bias_;
};

class PlainConvKernel final : public HostKernel {
 public:
  template <class... Args>
  explicit PlainConvKernel(std::string name, Args&&... args)
      : HostKernel(std::move(name), 0), convolution_(std::forward<Args>(args)...) {}
  absl::Status Run(const KernelArgs& args) const override {
    convolution_(args);
    return absl::OkStatus();
  }

 private:
  const PlainConvolution convolution_;
};

/// [images, from, to] as [images, to, from].
void SwapAxes(const float* source, int64_t images, int64_t from, int64_t to, float* destination) {
  for (int64_t n = 0; n < images; ++n, source += from * to, destination += from * to) {
    for (int64_t i = 0; i < from; ++i) {
      for (int64_t k = 0; k < to; ++k) destination[k * from + i] = source[i * to + k];
    }
  }
}

/// The same with the channels last, by way of copies with the channels first: for the rare convolution that nothing
/// faster takes.
class ChannelsLastConvKernel final : public HostKernel {
 public:
  template <class... Args>
  ChannelsLastConvKernel(std::string name, const ConvGeometry& geometry, const ConvDescription& description,
                         Args&&... args)
      : HostKernel(std::move(name), Bytes(geometry, description)),
        batch_(geometry.batch),
        channels_(geometry.channels),
        filters_(geometry.filters),
        input_area_(AreaOf(geometry.spatial.input)),
        output_area_(AreaOf(geometry.spatial.output)),
        residual_(description.residual),
        convolution_(geometry, description, std::forward<Args>(args)...) {}

  absl::Status Run(const KernelArgs& args) const override {
    auto* const input = reinterpret_cast<float*>(args.workspace.data);
    float* const output = input + batch_ * channels_ * input_area_;
    float* const residual = output + batch_ * filters_ * output_area_;
    SwapAxes(Elements<float>(args, 0), batch_, input_area_, channels_, input);
    const auto span = [](float* data) { return DeviceSpan{reinterpret_cast<std::byte*>(data), 0}; };
    DeviceSpan spans[3] = {span(input), span(output), {}};
    if (residual_) {
      SwapAxes(Elements<float>(args, 1), batch_, output_area_, filters_, residual);
      spans[1] = span(residual);
      spans[2] = span(output);
    }
    convolution_({.spans = std::span<const DeviceSpan>(spans, residual_ ? 3 : 2), .workspace = {}});
    SwapAxes(output, batch_, filters_, output_area_, Elements<float>(args, residual_ ? 2 : 1));
    return absl::OkStatus();
  }

 private:
  static int64_t AreaOf(const Dims& dims) {
    int64_t area = 1;
    for (const int64_t dim : dims) area *= dim;
    return area;
  }
  static size_t Bytes(const ConvGeometry& g, const ConvDescription& d) {
    const int64_t outputs = (d.residual ? 2 : 1) * g.filters * AreaOf(g.spatial.output);
    return static_cast<size_t>(g.batch * (g.channels * AreaOf(g.spatial.input) + outputs)) * sizeof(float);
  }

  const int64_t batch_, channels_, filters_, input_area_, output_area_;
  const bool residual_;
  const PlainConvolution convolution_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Kernel>> PlainConv(const ConvDescription& description) {
  if (description.type != DataType::kFp32) return LacksType(Backend::kHost, "convolution", description.type);
  if (description.activation == Activation::kGelu) return absl::UnimplementedError("no convolution applies Gelu");
  SLUICE_ASSIGN_OR_RETURN(const ConvGeometry geometry, MakeConvGeometry(description));
  SLUICE_ASSIGN_OR_RETURN(HostConstant weights,
                          HostConstant::MakePlain(description.packed_weights, description.weights));
  HostConstant bias;
  if (description.bias.has_value()) {
    SLUICE_ASSIGN_OR_RETURN(bias, HostConstant::MakePlain(description.packed_weights, *description.bias));
  }
  std::string name =
      absl::StrCat("conv ", DimsToString(description.input), " by ", DimsToString(description.weights.dims));
  if (description.channels_last) {
    return std::make_unique<ChannelsLastConvKernel>(std::move(name), geometry, description, std::move(weights),
                                                    std::move(bias));
  }
  return std::make_unique<PlainConvKernel>(std::move(name), geometry, description, std::move(weights), std::move(bias));
}

}  // namespace sluice::gpu::host
