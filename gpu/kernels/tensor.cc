// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/tensor.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace sluice::gpu {
namespace {
constexpr int64_t kMaxElements = int64_t{1} << 45;  // times 8 bytes: the 2^48 of the header
}  // namespace

absl::StatusOr<int64_t> ElementCount(const Dims& dims) {
  // The bound holds for the product without zeros too: strides of an empty tensor must not overflow either.
  int64_t bound = 1;
  bool empty = false;
  for (int64_t dim : dims) {
    if (dim < 0)
      return absl::InvalidArgumentError(absl::StrCat("dimensions ", DimsToString(dims), " must not be negative"));
    if (dim == 0) {
      empty = true;
      continue;
    }
    if (bound > kMaxElements / dim) {
      return absl::InvalidArgumentError(
          absl::StrCat("a tensor of dimensions ", DimsToString(dims), " is too large; the bound is 2^45 elements"));
    }
    bound *= dim;
  }
  return empty ? 0 : bound;
}

std::string DimsToString(const Dims& dims) { return absl::StrCat("[", absl::StrJoin(dims, ","), "]"); }

absl::StatusOr<int64_t> NormalizeAxis(int64_t axis, size_t rank) {
  const int64_t signed_rank = static_cast<int64_t>(rank);
  if (axis < -signed_rank || axis >= signed_rank) {
    return absl::InvalidArgumentError(
        absl::StrCat("axis ", axis, " must lie in [", -signed_rank, ",", signed_rank - 1, "]"));
  }
  return axis < 0 ? axis + signed_rank : axis;
}

absl::StatusOr<Dims> BroadcastDims(const Dims& a, const Dims& b) {
  const Dims& longer = a.size() >= b.size() ? a : b;
  const Dims& shorter = a.size() >= b.size() ? b : a;
  Dims result = longer;
  const size_t lead = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    const int64_t x = longer[lead + i];
    const int64_t y = shorter[i];
    if (x != y && x != 1 && y != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(DimsToString(a), " and ", DimsToString(b), " do not broadcast against each other"));
    }
    result[lead + i] = x == 1 ? y : x;
  }
  return result;
}

absl::Status CheckConstant(const Constant& constant, DataType type, absl::string_view what) {
  if (constant.type != type) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " '", constant.name, "' must be ", WireName(type), ", it is ", WireName(constant.type)));
  }
  SLUICE_ASSIGN_OR_RETURN(const int64_t count, ElementCount(constant.dims));
  const size_t expected = static_cast<size_t>(count) * ElementBytes(type);
  if (constant.data.size() != expected) {
    return absl::InvalidArgumentError(absl::StrCat(what, " '", constant.name, "' of dimensions ",
                                                   DimsToString(constant.dims), " must have ", expected,
                                                   " bytes, it has ", constant.data.size()));
  }
  return absl::OkStatus();
}

}  // namespace sluice::gpu
