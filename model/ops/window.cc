// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/ops/window.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sluice::model {
namespace {

// Far above any real window, far below where sums of products of these overflow.
constexpr int64_t kMaxExtent = int64_t{1} << 24;

/// An attribute with `count` entries in [minimum, kMaxExtent], or `fallback` everywhere when it is absent.
absl::StatusOr<Shape> ReadExtents(const NodeContext& context, absl::string_view name, size_t count, int64_t minimum,
                                  int64_t fallback) {
  SLUICE_ASSIGN_OR_RETURN(Shape values, context.Ints(name));
  if (!context.has_attribute(name)) return Shape(count, fallback);
  if (values.size() != count) {
    return absl::InvalidArgumentError(absl::StrCat(name, " has ", values.size(), " entries, expected ", count));
  }
  for (const int64_t value : values) {
    if (value < minimum || value > kMaxExtent) return absl::InvalidArgumentError(absl::StrCat(name, " holds ", value));
  }
  return values;
}

/// Pads that make the output ceil(input / stride) long; the odd one goes to the end for SAME_UPPER.
void PadSame(const Shape& input, bool upper, Window& window) {
  for (size_t i = 0; i < window.kernel.size(); ++i) {
    const int64_t extent = (window.kernel[i] - 1) * window.dilations[i] + 1;
    const int64_t output = (input[i + 2] + window.strides[i] - 1) / window.strides[i];
    const int64_t total = std::max<int64_t>(0, (output - 1) * window.strides[i] + extent - input[i + 2]);
    const int64_t small = total / 2;
    window.pads_begin[i] = upper ? small : total - small;
    window.pads_end[i] = upper ? total - small : small;
  }
}

}  // namespace

absl::StatusOr<Window> ReadWindow(const NodeContext& context, const Shape& input, const Shape& kernel) {
  if (input.size() < 3) {
    return absl::InvalidArgumentError(absl::StrCat("the input has no spatial dimensions: ", ShapeToString(input)));
  }
  const size_t count = input.size() - 2;
  Window window;
  SLUICE_ASSIGN_OR_RETURN(window.kernel, ReadExtents(context, "kernel_shape", count, 1, 0));
  if (!kernel.empty()) {
    if (context.has_attribute("kernel_shape") && window.kernel != kernel) {
      return absl::InvalidArgumentError(
          absl::StrCat("kernel_shape is ", ShapeToString(window.kernel), ", the weights have ", ShapeToString(kernel)));
    }
    window.kernel = kernel;
  } else if (!context.has_attribute("kernel_shape")) {
    return absl::InvalidArgumentError("kernel_shape is missing");
  }
  SLUICE_ASSIGN_OR_RETURN(window.strides, ReadExtents(context, "strides", count, 1, 1));
  SLUICE_ASSIGN_OR_RETURN(window.dilations, ReadExtents(context, "dilations", count, 1, 1));
  SLUICE_ASSIGN_OR_RETURN(const Shape pads, ReadExtents(context, "pads", 2 * count, 0, 0));
  window.pads_begin.assign(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(count));
  window.pads_end.assign(pads.begin() + static_cast<std::ptrdiff_t>(count), pads.end());
  SLUICE_ASSIGN_OR_RETURN(const absl::string_view auto_pad, context.String("auto_pad", "NOTSET"));
  if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
    PadSame(input, auto_pad == "SAME_UPPER", window);
  } else if (auto_pad == "VALID") {
    window.pads_begin.assign(count, 0);
    window.pads_end.assign(count, 0);
  } else if (auto_pad != "NOTSET") {
    return absl::InvalidArgumentError(absl::StrCat("auto_pad is '", auto_pad, "'"));
  }
  return window;
}

}  // namespace sluice::model
