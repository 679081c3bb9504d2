// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/status_macros.h"
#include "gpu/kernels/geometry.h"
#include "gpu/kernels/host_kernels.h"
#include "gpu/kernels/host_loop.h"
#include "gpu/kernels/host_math.h"
#include "gpu/kernels/names.h"

namespace sluice::gpu::host {
namespace {

using Result = absl::StatusOr<std::unique_ptr<Kernel>>;

// Columns, or lanes of one row, folded side by side: independent sums keep the processor's pipeline full and let the
// compiler vectorise without reordering any one of them.
constexpr int64_t kLanes = 16;

// A fold: the neutral start, how an element joins, how two partial results join, and what the total becomes. Totals of
// floating sums are double; integer sums wrap in the unsigned type.
template <class T>
using SumType = std::conditional_t<std::is_floating_point_v<T>, double, uint64_t>;

template <class T>
struct SumFold {
  using Total = SumType<T>;
  static Total Start() { return 0; }
  static Total Join(Total total, T x) { return total + static_cast<Total>(x); }
  static Total Merge(Total a, Total b) { return a + b; }
  static T Finish(Total total, int64_t) { return static_cast<T>(total); }
};
template <class T>
struct MeanFold : SumFold<T> {
  static T Finish(SumType<T> total, int64_t count) {
    if constexpr (std::is_floating_point_v<T>) return static_cast<T>(total / static_cast<double>(count));
    return static_cast<T>(static_cast<int64_t>(total) / count);
  }
};
template <class T>
struct SumSquareFold : SumFold<T> {
  static SumType<T> Join(SumType<T> total, T x) {
    return total + static_cast<SumType<T>>(x) * static_cast<SumType<T>>(x);
  }
};
template <class T>
struct L1Fold : SumFold<T> {
  static SumType<T> Join(SumType<T> total, T x) {
    const SumType<T> wide = static_cast<SumType<T>>(x);
    return x < T(0) ? total - wide : total + wide;
  }
};
template <class T>
struct L2Fold : SumSquareFold<T> {
  static T Finish(SumType<T> total, int64_t) { return static_cast<T>(std::sqrt(static_cast<double>(total))); }
};
template <class T>
struct ProdFold : SumFold<T> {
  using Total = SumType<T>;
  static Total Start() { return 1; }
  static Total Join(Total total, T x) { return total * static_cast<Total>(x); }
  static Total Merge(Total a, Total b) { return a * b; }
};
template <class T>
struct MaxFold {
  using Total = T;
  static T Start() {
    if constexpr (std::is_floating_point_v<T>) return -std::numeric_limits<T>::infinity();
    return std::numeric_limits<T>::lowest();
  }
  static T Join(T total, T x) { return Larger(total, x); }
  static T Merge(T a, T b) { return Larger(a, b); }
  static T Finish(T total, int64_t) { return total; }
};
template <class T>
struct MinFold {
  using Total = T;
  static T Start() {
    if constexpr (std::is_floating_point_v<T>) return std::numeric_limits<T>::infinity();
    return std::numeric_limits<T>::max();
  }
  static T Join(T total, T x) { return Smaller(total, x); }
  static T Merge(T a, T b) { return Smaller(a, b); }
  static T Finish(T total, int64_t) { return total; }
};

/// One contiguous row to one total.
template <class Fold, class T>
typename Fold::Total FoldRow(const T* row, int64_t count) {
  using Total = typename Fold::Total;
  Total lanes[kLanes];
  std::fill(lanes, lanes + kLanes, Fold::Start());
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] = Fold::Join(lanes[lane], row[i + lane]);
  }
  for (; i < count; ++i) lanes[0] = Fold::Join(lanes[0], row[i]);
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t lane = 0; lane < width; ++lane) lanes[lane] = Fold::Merge(lanes[lane], lanes[lane + width]);
  }
  return lanes[0];
}

/// Folds results [begin, end) of a kernel: untyped, so that the kernel around it is compiled once.
using FoldFunction = void (*)(const std::byte* input, std::byte* output, int64_t begin, int64_t end, int64_t folded,
                              int64_t inner);

/// [outer, folded] to [outer]; `inner` is 1.
template <class Fold, class T>
void FoldRows(const std::byte* input_bytes, std::byte* output_bytes, int64_t begin, int64_t end, int64_t folded,
              int64_t) {
  const T* input = reinterpret_cast<const T*>(input_bytes);
  T* output = reinterpret_cast<T*>(output_bytes);
  for (int64_t row = begin; row < end; ++row) {
    output[row] = Fold::Finish(FoldRow<Fold>(input + row * folded, folded), folded);
  }
}

/// [outer, folded, inner] to [outer, inner]; begin and end count strips of kLanes columns.
template <class Fold, class T>
void FoldColumns(const std::byte* input_bytes, std::byte* output_bytes, int64_t begin, int64_t end, int64_t folded,
                 int64_t inner) {
  const T* input = reinterpret_cast<const T*>(input_bytes);
  T* output = reinterpret_cast<T*>(output_bytes);
  const int64_t strips = (inner + kLanes - 1) / kLanes;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t o = i / strips, column = i % strips * kLanes;
    const int64_t width = std::min(kLanes, inner - column);
    const T* from = input + o * folded * inner + column;
    typename Fold::Total lanes[kLanes];
    std::fill(lanes, lanes + kLanes, Fold::Start());
    for (int64_t k = 0; k < folded; ++k, from += inner) {
      if (width == kLanes) {
        for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] = Fold::Join(lanes[lane], from[lane]);
      } else {
        for (int64_t lane = 0; lane < width; ++lane) lanes[lane] = Fold::Join(lanes[lane], from[lane]);
      }
    }
    T* to = output + o * inner + column;
    for (int64_t lane = 0; lane < width; ++lane) to[lane] = Fold::Finish(lanes[lane], folded);
  }
}

struct FoldFunctions {
  FoldFunction rows = nullptr;
  FoldFunction columns = nullptr;
};

template <template <class> class Fold, class T>
FoldFunctions FunctionsOf() {
  return {FoldRows<Fold<T>, T>, FoldColumns<Fold<T>, T>};
}

Result FoldKernel(std::string name, const FoldFunctions& functions, int64_t outer, int64_t folded, int64_t inner) {
  if (inner == 1) {
    return MakeLoopKernel(std::move(name), [rows = functions.rows, outer, folded](const KernelArgs& args) {
      ParallelRanges(outer, folded, [&](int64_t begin, int64_t end) {
        rows(args.spans[0].data, args.spans[1].data, begin, end, folded, 1);
      });
    });
  }
  return MakeLoopKernel(std::move(name), [columns = functions.columns, outer, folded, inner](const KernelArgs& args) {
    const int64_t strips = (inner + kLanes - 1) / kLanes;
    ParallelRanges(outer * strips, folded * kLanes, [&](int64_t begin, int64_t end) {
      columns(args.spans[0].data, args.spans[1].data, begin, end, folded, inner);
    });
  });
}

/// Any other interleaving of kept and folded dimensions: the folded ones are moved to the end, through the workspace.
Result TransposedFoldKernel(std::string name, DataType type, const FoldFunctions& functions,
                            const ReduceGeometry& geometry) {
  TransposeDescription order{.type = type, .input = geometry.dims, .permutation = {}};
  for (const bool folded : {false, true}) {
    for (size_t i = 0; i < geometry.dims.size(); ++i) {
      if (geometry.folded[i] == folded) order.permutation.push_back(static_cast<int64_t>(i));
    }
  }
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> transpose, PlainTranspose(order));
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> fold,
                          FoldKernel("fold", functions, geometry.output_count, geometry.folded_count, 1));
  const size_t size = static_cast<size_t>(geometry.output_count * geometry.folded_count) * ElementBytes(type);
  return MakeLoopKernel(
      std::move(name),
      [transpose = std::move(transpose), fold = std::move(fold), size](const KernelArgs& args) -> absl::Status {
        const DeviceSpan moved = args.workspace.subspan(0, size);
        const DeviceSpan first[] = {args.spans[0], moved};
        const DeviceSpan second[] = {moved, args.spans[1]};
        SLUICE_RETURN_IF_ERROR(static_cast<const HostKernel&>(*transpose).Run({first, {}}));
        return static_cast<const HostKernel&>(*fold).Run({second, {}});
      },
      size);
}

Result ReduceKernel(std::string name, DataType type, const FoldFunctions& functions, const ReduceGeometry& geometry) {
  const std::vector<bool>& folded = geometry.folded;
  const Dims& dims = geometry.dims;
  if (geometry.output_count == 0 || geometry.folded_count == 0 || dims.empty() || folded == std::vector<bool>{true} ||
      folded == std::vector<bool>{false} || folded == std::vector<bool>{false, true}) {
    return FoldKernel(std::move(name), functions, geometry.output_count, geometry.folded_count, 1);
  }
  if (folded == std::vector<bool>{true, false}) return FoldKernel(std::move(name), functions, 1, dims[0], dims[1]);
  if (folded == std::vector<bool>{false, true, false}) {
    return FoldKernel(std::move(name), functions, dims[0], dims[1], dims[2]);
  }
  return TransposedFoldKernel(std::move(name), type, functions, geometry);
}

template <class T>
FoldFunctions FunctionsFor(ReduceKind kind) {
  if (kind == ReduceKind::kMax) return FunctionsOf<MaxFold, T>();
  if (kind == ReduceKind::kMin) return FunctionsOf<MinFold, T>();
  if constexpr (sizeof(T) >= 4) {
    switch (kind) {
      case ReduceKind::kSum:
        return FunctionsOf<SumFold, T>();
      case ReduceKind::kMean:
        return FunctionsOf<MeanFold, T>();
      case ReduceKind::kProd:
        return FunctionsOf<ProdFold, T>();
      case ReduceKind::kSumSquare:
        return FunctionsOf<SumSquareFold, T>();
      case ReduceKind::kL1:
        return FunctionsOf<L1Fold, T>();
      case ReduceKind::kL2:
        return FunctionsOf<L2Fold, T>();
      default:
        break;
    }
  }
  return {};
}

FoldFunctions FunctionsFor(ReduceKind kind, DataType type) {
  switch (type) {
    case DataType::kFp32:
      return FunctionsFor<float>(kind);
    case DataType::kFp64:
      return FunctionsFor<double>(kind);
    case DataType::kInt32:
      return FunctionsFor<int32_t>(kind);
    case DataType::kInt64:
      return FunctionsFor<int64_t>(kind);
    case DataType::kInt8:
      return FunctionsFor<int8_t>(kind);
    case DataType::kUint8:
    case DataType::kBool:
      return FunctionsFor<uint8_t>(kind);
    default:
      return {};
  }
}

}  // namespace

Result PlainReduce(const ReduceDescription& description) {
  SLUICE_RETURN_IF_ERROR(ReduceOutputDims(description, /*keep_dims=*/true).status());
  SLUICE_ASSIGN_OR_RETURN(const ReduceGeometry geometry, MakeReduceGeometry(description.input, description.axes));
  const std::string name = absl::StrCat("reduce ", NameOf(description.kind), " ", DimsToString(description.input),
                                        " over ", DimsToString(description.axes));
  const FoldFunctions functions = FunctionsFor(description.kind, description.type);
  if (functions.rows == nullptr) {
    return absl::UnimplementedError(absl::StrCat("the host backend has no reduction (", NameOf(description.kind),
                                                 ") for ", WireName(description.type)));
  }
  return ReduceKernel(name, description.type, functions, geometry);
}

namespace {

template <class T>
Result ArgKernel(std::string name, bool min, bool last, int64_t outer, int64_t length, int64_t inner) {
  return MakeLoopKernel(std::move(name), [=](const KernelArgs& args) {
    const T* input = Elements<T>(args, 0);
    int64_t* output = Elements<int64_t>(args, 1);
    ParallelRanges(outer * inner, length, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T* from = input + i / inner * length * inner + i % inner;
        int64_t best = 0;
        for (int64_t k = 1; k < length; ++k) {
          const T x = from[k * inner], champion = from[best * inner];
          const bool better = min ? x < champion : x > champion;
          // A NaN beats every number; which of several wins is as for equal values.
          if (better || (last && x == champion) || (x != x && (last || champion == champion))) best = k;
        }
        output[i] = best;
      }
    });
  });
}

}  // namespace

Result PlainArgReduce(const ArgReduceDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const AxisGeometry geometry, MakeArgReduceGeometry(description));
  const std::string name = absl::StrCat(description.min ? "argmin " : "argmax ", DimsToString(description.input));
  return DispatchType(NumberTypes{}, description.type, "index reduction", [&](auto tag) -> Result {
    return ArgKernel<decltype(tag)>(name, description.min, description.select_last_index, geometry.outer,
                                    geometry.length, geometry.inner);
  });
}

}  // namespace sluice::gpu::host
