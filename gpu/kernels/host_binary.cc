// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <type_traits>

#include "base/status_macros.h"
#include "gpu/kernels/host_elementwise.h"
#include "gpu/kernels/host_kernels.h"
#include "gpu/kernels/host_loop.h"
#include "gpu/kernels/host_math.h"
#include "gpu/kernels/names.h"

namespace sluice::gpu::host {
namespace {

using Result = absl::StatusOr<std::unique_ptr<Kernel>>;

/// The steps that occur are told apart outside the loop, so that each loop vectorises.
template <class In, class Out, class Function>
void Row(const std::byte* a_bytes, int64_t a_step, const std::byte* b_bytes, int64_t b_step, std::byte* output_bytes,
         int64_t count) {
  const In* a = reinterpret_cast<const In*>(a_bytes);
  const In* b = reinterpret_cast<const In*>(b_bytes);
  Out* output = reinterpret_cast<Out*>(output_bytes);
  constexpr Function function{};
  if (a_step == 1 && b_step == 1) {
    SLUICE_INDEPENDENT_LOOP
    for (int64_t i = 0; i < count; ++i) output[i] = function(a[i], b[i]);
  } else if (a_step == 1 && b_step == 0) {
    const In value = *b;
    SLUICE_INDEPENDENT_LOOP
    for (int64_t i = 0; i < count; ++i) output[i] = function(a[i], value);
  } else {
    const In value = *a;
    SLUICE_INDEPENDENT_LOOP
    for (int64_t i = 0; i < count; ++i) output[i] = function(value, b[i * b_step]);
  }
}

/// Broadcasting around a row function. Steps of the inner dimension are 0 or 1, as those of any broadcast are.
class BroadcastKernel final : public HostKernel {
 public:
  BroadcastKernel(std::string name, const StridedLoop<2>& loop, BinaryRow row, size_t in_bytes, size_t out_bytes,
                  DataType relu_type)
      : HostKernel(std::move(name), 0),
        loop_(loop),
        row_(row),
        in_bytes_(static_cast<int64_t>(in_bytes)),
        out_bytes_(static_cast<int64_t>(out_bytes)),
        relu_type_(relu_type) {}

  absl::Status Run(const KernelArgs& args) const override {
    const std::byte* a = args.spans[0].data;
    const std::byte* b = args.spans[1].data;
    std::byte* output = args.spans[2].data;
    const int64_t count = loop_.inner_count();
    if (loop_.outer_count() == 1) {  // one long row: cut it for the team
      ParallelRanges(count, 1, [&](int64_t begin, int64_t end) {
        Piece(a + begin * in_bytes_ * loop_.inner_step(0), b + begin * in_bytes_ * loop_.inner_step(1),
              output + begin * out_bytes_, end - begin);
      });
      return absl::OkStatus();
    }
    loop_.Run([&](int64_t index, const StridedLoop<2>::Offsets& offsets) {
      Piece(a + offsets[0] * in_bytes_, b + offsets[1] * in_bytes_, output + index * count * out_bytes_, count);
    });
    return absl::OkStatus();
  }

 private:
  void Piece(const std::byte* a, const std::byte* b, std::byte* output, int64_t count) const {
    const int64_t a_step = loop_.inner_step(0), b_step = loop_.inner_step(1);
    if (relu_type_ == DataType::kInvalid) {
      row_(a, a_step, b, b_step, output, count);
      return;
    }
    constexpr int64_t kChunk = 2048;  // elements that the second pass finds in the first-level cache
    for (int64_t i = 0; i < count; i += kChunk) {
      const int64_t size = std::min(kChunk, count - i);
      std::byte* to = output + i * out_bytes_;
      row_(a + i * in_bytes_ * a_step, a_step, b + i * in_bytes_ * b_step, b_step, to, size);
      if (relu_type_ == DataType::kFp32) {
        Rectify(reinterpret_cast<float*>(to), size);
      } else {
        Rectify(reinterpret_cast<double*>(to), size);
      }
    }
  }

  template <class T>
  static void Rectify(T* values, int64_t count) {
    for (int64_t i = 0; i < count; ++i) values[i] = values[i] < T(0) ? T(0) : values[i];
  }

  const StridedLoop<2> loop_;
  const BinaryRow row_;
  const int64_t in_bytes_;
  const int64_t out_bytes_;
  const DataType relu_type_;  // kInvalid for none
};

/// Sum, difference and product of integers wrap: through the unsigned type that is defined.
template <class T, class Function>
T Wrapping(T a, T b, const Function& function) {
  if constexpr (std::is_integral_v<T>) {
    // At least 32 bits wide, or promotion to int would bring signed overflow back.
    using U = std::conditional_t<(sizeof(T) < 4), uint32_t, std::make_unsigned_t<T>>;
    return static_cast<T>(function(static_cast<U>(a), static_cast<U>(b)));
  } else {
    return function(a, b);
  }
}

struct Add {
  template <class T>
  T operator()(T a, T b) const {
    return Wrapping(a, b, [](auto x, auto y) { return x + y; });
  }
};
struct Sub {
  template <class T>
  T operator()(T a, T b) const {
    return Wrapping(a, b, [](auto x, auto y) { return x - y; });
  }
};
struct Mul {
  template <class T>
  T operator()(T a, T b) const {
    return Wrapping(a, b, [](auto x, auto y) { return x * y; });
  }
};
struct Div {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if (b == 0) return 0;
      if constexpr (std::is_signed_v<T>) {
        if (b == -1) return Sub{}(T(0), a);
      }
    }
    return static_cast<T>(a / b);
  }
};
struct Mod {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      return std::fmod(a, b);
    } else {
      if (b == 0 || b == static_cast<T>(-1)) return std::is_signed_v<T> || b == 0 ? T(0) : static_cast<T>(a % b);
      const T rest = static_cast<T>(a % b);
      return rest != 0 && (rest < 0) != (b < 0) ? static_cast<T>(rest + b) : rest;
    }
  }
};
struct Pow {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if (b < 0) return a == 1 ? T(1) : a == -1 ? (b % 2 == 0 ? T(1) : T(-1)) : T(0);
      using U = std::make_unsigned_t<T>;
      U result = 1, base = static_cast<U>(a);
      for (U left = static_cast<U>(b); left != 0; left >>= 1, base *= base) {
        if (left & 1) result *= base;
      }
      return static_cast<T>(result);
    } else {
      return b == T(2) ? a * a : std::pow(a, b);
    }
  }
};
struct Max {
  template <class T>
  T operator()(T a, T b) const {
    return Larger(a, b);
  }
};
struct Min {
  template <class T>
  T operator()(T a, T b) const {
    return Smaller(a, b);
  }
};

// Results are bytes of 0 or 1.
struct Equal {
  template <class T>
  uint8_t operator()(T a, T b) const {
    return a == b;
  }
};
struct Greater {
  template <class T>
  uint8_t operator()(T a, T b) const {
    return a > b;
  }
};
struct GreaterOrEqual {
  template <class T>
  uint8_t operator()(T a, T b) const {
    return a >= b;
  }
};
struct Less {
  template <class T>
  uint8_t operator()(T a, T b) const {
    return a < b;
  }
};
struct LessOrEqual {
  template <class T>
  uint8_t operator()(T a, T b) const {
    return a <= b;
  }
};

// Truth values: any byte but 0 is true.
struct And {
  uint8_t operator()(uint8_t a, uint8_t b) const { return (a != 0) & (b != 0); }
};
struct Or {
  uint8_t operator()(uint8_t a, uint8_t b) const { return (a | b) != 0; }
};
struct Xor {
  uint8_t operator()(uint8_t a, uint8_t b) const { return (a != 0) != (b != 0); }
};
struct SameTruth {
  uint8_t operator()(uint8_t a, uint8_t b) const { return (a != 0) == (b != 0); }
};

/// Null for what does not exist.
template <class T>
BinaryRow NumberRow(BinaryKind kind) {
  switch (kind) {
    case BinaryKind::kAdd:
      return Row<T, T, Add>;
    case BinaryKind::kSub:
      return Row<T, T, Sub>;
    case BinaryKind::kMul:
      return Row<T, T, Mul>;
    case BinaryKind::kDiv:
      return Row<T, T, Div>;
    case BinaryKind::kMax:
      return Row<T, T, Max>;
    case BinaryKind::kMin:
      return Row<T, T, Min>;
    case BinaryKind::kMod:
      return Row<T, T, Mod>;
    case BinaryKind::kPow:
      if constexpr (std::is_floating_point_v<T> || sizeof(T) >= 4) return Row<T, T, Pow>;
      return nullptr;
    case BinaryKind::kEqual:
      return Row<T, uint8_t, Equal>;
    case BinaryKind::kGreater:
      return Row<T, uint8_t, Greater>;
    case BinaryKind::kGreaterOrEqual:
      return Row<T, uint8_t, GreaterOrEqual>;
    case BinaryKind::kLess:
      return Row<T, uint8_t, Less>;
    case BinaryKind::kLessOrEqual:
      return Row<T, uint8_t, LessOrEqual>;
    default:
      return nullptr;
  }
}

BinaryRow TruthRow(BinaryKind kind) {
  switch (kind) {
    case BinaryKind::kAnd:
      return Row<uint8_t, uint8_t, And>;
    case BinaryKind::kOr:
      return Row<uint8_t, uint8_t, Or>;
    case BinaryKind::kXor:
      return Row<uint8_t, uint8_t, Xor>;
    case BinaryKind::kEqual:
      return Row<uint8_t, uint8_t, SameTruth>;
    default:
      return nullptr;
  }
}

}  // namespace

BinaryRow BinaryRowFor(BinaryKind kind, DataType type) {
  switch (type) {
    case DataType::kFp32:
      return NumberRow<float>(kind);
    case DataType::kFp64:
      return NumberRow<double>(kind);
    case DataType::kInt8:
      return NumberRow<int8_t>(kind);
    case DataType::kUint8:
      return NumberRow<uint8_t>(kind);
    case DataType::kInt32:
      return NumberRow<int32_t>(kind);
    case DataType::kInt64:
      return NumberRow<int64_t>(kind);
    case DataType::kBool:
      return TruthRow(kind);
    default:
      return nullptr;
  }
}

Result PlainBinary(const BinaryDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const StridedWalk walk, MakeBinaryWalk(description));
  SLUICE_ASSIGN_OR_RETURN(const StridedLoop<2> loop, StridedLoop<2>::Make(walk));
  const std::string name =
      absl::StrCat(NameOf(description.kind), " ", DimsToString(description.a), " ", DimsToString(description.b));
  const BinaryRow row = BinaryRowFor(description.kind, description.type);
  if (row == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("the host backend has no ", NameOf(description.kind), " for ", WireName(description.type)));
  }
  const size_t in_bytes = ElementBytes(description.type);
  const bool relu = description.activation == Activation::kRelu;
  return std::make_unique<BroadcastKernel>(name, loop, row, in_bytes, IsComparison(description.kind) ? 1 : in_bytes,
                                           relu ? description.type : DataType::kInvalid);
}

Result PlainWhere(const WhereDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const StridedWalk walk, MakeWhereWalk(description));
  SLUICE_ASSIGN_OR_RETURN(const StridedLoop<3> loop, StridedLoop<3>::Make(walk));
  const std::string name = absl::StrCat("where ", DimsToString(description.condition), " ", DimsToString(description.x),
                                        " ", DimsToString(description.y));
  return DispatchSize(description.type, "where", [&](auto tag) -> Result {
    using T = decltype(tag);
    return MakeLoopKernel(name, [loop](const KernelArgs& args) {
      const uint8_t* condition = Elements<uint8_t>(args, 0);
      const T* x = Elements<T>(args, 1);
      const T* y = Elements<T>(args, 2);
      T* output = Elements<T>(args, 3);
      const int64_t count = loop.inner_count();
      loop.Run([&](int64_t index, const StridedLoop<3>::Offsets& offsets) {
        const uint8_t* row_condition = condition + offsets[0];
        const T* row_x = x + offsets[1];
        const T* row_y = y + offsets[2];
        T* row = output + index * count;
        const int64_t c_step = loop.inner_step(0), x_step = loop.inner_step(1), y_step = loop.inner_step(2);
        for (int64_t i = 0; i < count; ++i) {
          row[i] = row_condition[i * c_step] != 0 ? row_x[i * x_step] : row_y[i * y_step];
        }
      });
    });
  });
}

}  // namespace sluice::gpu::host
