// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/spatial.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sluice::gpu {
namespace {

constexpr int64_t kMax = int64_t{1} << 30;

absl::Status CheckList(absl::string_view what, absl::string_view name, Dims& values, size_t rank, int64_t otherwise,
                       int64_t least) {
  if (values.empty()) values.assign(rank, otherwise);
  if (values.size() != rank) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": ", name, " must have ", rank, " values, it has ", values.size()));
  }
  for (int64_t value : values) {
    if (value < least || value > kMax) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, ": ", name, " ", DimsToString(values), " must lie in [", least, ",", kMax, "]"));
    }
  }
  return absl::OkStatus();
}

void AppendDim(const Spatial& from, size_t i, Spatial& to) {
  to.input.push_back(from.input[i]);
  to.kernel.push_back(from.kernel[i]);
  to.strides.push_back(from.strides[i]);
  to.dilations.push_back(from.dilations[i]);
  to.pads_begin.push_back(from.pads_begin[i]);
  to.pads_end.push_back(from.pads_end[i]);
  to.output.push_back(from.output[i]);
}

void AppendUnit(Spatial& to) {
  for (Dims* list : {&to.input, &to.kernel, &to.strides, &to.dilations, &to.output}) list->push_back(1);
  to.pads_begin.push_back(0);
  to.pads_end.push_back(0);
}

}  // namespace

absl::StatusOr<Spatial> MakeSpatial(absl::string_view what, Spatial spatial, bool ceil_mode) {
  const size_t rank = spatial.input.size();
  if (rank < 1 || rank > 3) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": one to three spatial dimensions are expected, not ", rank));
  }
  if (spatial.kernel.empty())
    return absl::InvalidArgumentError(absl::StrCat(what, ": the kernel's dimensions are missing"));
  SLUICE_RETURN_IF_ERROR(CheckList(what, "spatial dimensions", spatial.input, rank, 1, 1));
  SLUICE_RETURN_IF_ERROR(CheckList(what, "kernel", spatial.kernel, rank, 1, 1));
  SLUICE_RETURN_IF_ERROR(CheckList(what, "strides", spatial.strides, rank, 1, 1));
  SLUICE_RETURN_IF_ERROR(CheckList(what, "dilations", spatial.dilations, rank, 1, 1));
  SLUICE_RETURN_IF_ERROR(CheckList(what, "pads at the beginning", spatial.pads_begin, rank, 0, 0));
  SLUICE_RETURN_IF_ERROR(CheckList(what, "pads at the end", spatial.pads_end, rank, 0, 0));
  spatial.output.assign(rank, 0);
  for (size_t i = 0; i < rank; ++i) {
    const int64_t reach = (spatial.kernel[i] - 1) * spatial.dilations[i] + 1;
    const int64_t room = spatial.input[i] + spatial.pads_begin[i] + spatial.pads_end[i] - reach;
    if (room < 0) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": a kernel reaching over ", reach, " does not fit input ",
                                                     spatial.input[i], " with pads ", spatial.pads_begin[i], " and ",
                                                     spatial.pads_end[i], " in spatial dimension ", i));
    }
    const int64_t stride = spatial.strides[i];
    int64_t output = room / stride + 1;
    // Rounding up adds a window only where it still begins inside the input or the pad before it.
    if (ceil_mode && room % stride != 0 && output * stride < spatial.input[i] + spatial.pads_begin[i]) ++output;
    spatial.output[i] = output;
  }
  return spatial;
}

Spatial DropUnitDims(const Spatial& spatial) {
  Spatial result;
  for (size_t i = 0; i < spatial.input.size(); ++i) {
    const bool unit = spatial.input[i] == 1 && spatial.kernel[i] == 1 && spatial.output[i] == 1 &&
                      spatial.pads_begin[i] == 0 && spatial.pads_end[i] == 0;
    if (!unit) AppendDim(spatial, i, result);
  }
  if (result.input.empty()) AppendUnit(result);
  return result;
}

Spatial PadToThree(const Spatial& spatial) {
  Spatial result;
  for (size_t rank = spatial.input.size(); rank < 3; ++rank) AppendUnit(result);
  for (size_t i = 0; i < spatial.input.size(); ++i) AppendDim(spatial, i, result);
  return result;
}

}  // namespace sluice::gpu
