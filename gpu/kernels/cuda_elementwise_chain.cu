// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// A chain of elementwise steps as one kernel that interprets it. The program is the same for the whole grid, so no
// branch on it diverges; a step works on a pack of elements, which shares what decoding it costs. Arrays are indexed by
// numbers known at compile time alone, or they would not be registers.
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/data_type.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_library.h"
#include "gpu/kernels/chain_program.h"
#include "gpu/kernels/cuda_elementwise.cuh"
#include "gpu/kernels/cuda_half.cuh"
#include "gpu/kernels/cuda_loop.cuh"
#include "gpu/kernels/dispatch.h"
#include "gpu/kernels/strided.h"

namespace sluice::gpu::cuda {
namespace {

constexpr int kInputs = static_cast<int>(kMaxChainInputs);
constexpr int kKept = static_cast<int>(kMaxChainKept);
static_assert(kInputs == 6 && kKept == 4, "Fetch and Keep name each register");
static_assert(static_cast<int>(kMaxChainRank) <= kMaxWalkRank);

/// Elements of one pack: 16 bytes.
template <class T>
inline constexpr int kChainPack = 16 / static_cast<int>(sizeof(T));

struct DeviceStep {
  bool is_binary;
  uint8_t kind;  // of the one enumeration or the other
  int8_t a, b, keep;
  float alpha, beta;
};

struct DeviceProgram {
  int input_count;
  int step_count;
  uint32_t moving;  // Bit k: input k goes along with the output within a pack; else one element stands for all of it.
  DeviceStep steps[kMaxChainSteps];
};

template <class T>
struct ChainSpans {
  const T* inputs[kInputs];
  T* output;
};

template <int kEach, class Function>
__device__ void Each(float (&x)[kEach], const Function& function) {
#pragma unroll
  for (int k = 0; k < kEach; ++k) x[k] = function(x[k]);
}

template <int kEach, class Function>
__device__ void Each(float (&x)[kEach], const float (&y)[kEach], const Function& function) {
#pragma unroll
  for (int k = 0; k < kEach; ++k) x[k] = function(x[k], y[k]);
}

template <class Function, class... Numbers>
__device__ __noinline__ float Call(Numbers... numbers) {
  return Function{}(numbers...);
}
/// A call instead of a copy of the function's code for each element: for those that are long and rare, whose need of
/// registers would be every chain's.
template <class Function>
struct Called {
  template <class... Numbers>
  __device__ float operator()(Numbers... numbers) const {
    return Call<Function>(numbers...);
  }
};

template <class T, int kEach>
__device__ void ApplyUnary(const DeviceStep& step, float (&x)[kEach]) {
  switch (static_cast<UnaryKind>(step.kind)) {
    case UnaryKind::kAbs:
      return Each(x, Absolute{});
    case UnaryKind::kCeil:
      return Each(x, Ceil{});
    case UnaryKind::kClip:
      return Each(x, Clip<float>{step.alpha, step.beta});
    case UnaryKind::kCos:
      return Each(x, Called<Cosine>{});
    case UnaryKind::kErf:
      return Each(x, ErrorFunction{});
    case UnaryKind::kExp:
      return Each(x, Exponential{});
    case UnaryKind::kFloor:
      return Each(x, Floor{});
    case UnaryKind::kGelu:
      if constexpr (kIsHalf<T>) {
        return Each(x, HalfGelu{});
      } else {
        return Each(x, Gelu{});
      }
    case UnaryKind::kGeluTanh:
      return Each(x, GeluTanh{});
    case UnaryKind::kHardSigmoid:
      return Each(x, HardSigmoid<float>{step.alpha, step.beta});
    case UnaryKind::kHardSwish:
      return Each(x, HardSwish{});
    case UnaryKind::kLeakyRelu:
      return Each(x, LeakyRelu<float>{step.alpha});
    case UnaryKind::kLog:
      return Each(x, Logarithm{});
    case UnaryKind::kNeg:
      return Each(x, Negative{});
    case UnaryKind::kReciprocal:
      return Each(x, Reciprocal{});
    case UnaryKind::kRelu:
      return Each(x, Relu{});
    case UnaryKind::kSigmoid:
      return Each(x, Sigmoid{});
    case UnaryKind::kSign:
      return Each(x, Sign{});
    case UnaryKind::kSin:
      return Each(x, Called<Sine>{});
    case UnaryKind::kSqrt:
      return Each(x, SquareRoot{});
    case UnaryKind::kTanh:
      return Each(x, HyperbolicTangent{});
    case UnaryKind::kIdentity:
    case UnaryKind::kNot:  // No program has it.
      return;
  }
}

template <int kEach>
__device__ void ApplyBinary(const DeviceStep& step, float (&x)[kEach], const float (&y)[kEach]) {
  switch (static_cast<BinaryKind>(step.kind)) {
    case BinaryKind::kAdd:
      return Each(x, y, Add{});
    case BinaryKind::kSub:
      return Each(x, y, Sub{});
    case BinaryKind::kMul:
      return Each(x, y, Mul{});
    case BinaryKind::kDiv:
      return Each(x, y, Div{});
    case BinaryKind::kPow:
      return Each(x, y, Called<Pow>{});
    case BinaryKind::kMax:
      return Each(x, y, Larger{});
    case BinaryKind::kMin:
      return Each(x, y, Smaller{});
    case BinaryKind::kMod:
      return Each(x, y, Called<Mod>{});
    default:  // No program has the others.
      return;
  }
}

/// kEach elements at `at`, of which `left` are there; or one that stands for all.
template <class T, int kEach>
__device__ Pack<T, kEach> LoadPack(const T* at, bool moves, int64_t left) {
  Pack<T, kEach> pack;
  if (moves && left >= kEach) {
    pack = *reinterpret_cast<const Pack<T, kEach>*>(at);
  } else {
#pragma unroll
    for (int k = 0; k < kEach; ++k) pack.values[k] = at[moves && k < left ? k : 0];
  }
  return pack;
}

template <class T, int kEach>
__device__ void StorePack(T* at, const float (&x)[kEach], int64_t left) {
  Pack<T, kEach> pack;
#pragma unroll
  for (int k = 0; k < kEach; ++k) pack.values[k] = static_cast<T>(x[k]);
  if (left >= kEach) {
    *reinterpret_cast<Pack<T, kEach>*>(at) = pack;
  } else {
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      if (k < left) at[k] = pack.values[k];
    }
  }
}

/// What the steps of one pack work on.
template <class T, int kEach>
struct Registers {
  Pack<T, kEach> inputs[kInputs];
  float kept[kKept][kEach];
  float result[kEach];  // Of the step before, then of this one.

  __device__ void Widen(const Pack<T, kEach>& from, float (&to)[kEach]) const {
#pragma unroll
    for (int k = 0; k < kEach; ++k) to[k] = static_cast<float>(from.values[k]);
  }
  __device__ void Copy(const float (&from)[kEach], float (&to)[kEach]) const {
#pragma unroll
    for (int k = 0; k < kEach; ++k) to[k] = from[k];
  }

  __device__ void Fetch(int place, float (&to)[kEach]) const {
    switch (place) {
      case 0:
        return Widen(inputs[0], to);
      case 1:
        return Widen(inputs[1], to);
      case 2:
        return Widen(inputs[2], to);
      case 3:
        return Widen(inputs[3], to);
      case 4:
        return Widen(inputs[4], to);
      case 5:
        return Widen(inputs[5], to);
      case kFirstKept:
        return Copy(kept[0], to);
      case kFirstKept + 1:
        return Copy(kept[1], to);
      case kFirstKept + 2:
        return Copy(kept[2], to);
      case kFirstKept + 3:
        return Copy(kept[3], to);
      default:  // kPreviousResult
        return Copy(result, to);
    }
  }

  __device__ void Keep(int place) {
    switch (place) {
      case 0:
        return Copy(result, kept[0]);
      case 1:
        return Copy(result, kept[1]);
      case 2:
        return Copy(result, kept[2]);
      case 3:
        return Copy(result, kept[3]);
      default:  // kNotKept
        return;
    }
  }

  __device__ void Run(const DeviceStep& step) {
    if (step.is_binary) {
      float y[kEach];
      Fetch(step.b, y);  // Before the result is overwritten, which it may be.
      if (step.a != kPreviousResult) Fetch(step.a, result);
      ApplyBinary(step, result, y);
    } else {
      if (step.a != kPreviousResult) Fetch(step.a, result);
      ApplyUnary<T>(step, result);
    }
    Keep(step.keep);
  }
};

/// Inputs that go along with the output from end to end, or stand still; `walk` says only how many elements there are.
/// Otherwise a walk over packs, each of which lies in one row; a pack may be one element. The output may be an input
/// of its shape: a thread reads all of a pack before it writes it.
/// Two blocks on a multiprocessor at least: with one there are too few loads on their way to keep the memory busy.
template <class T, int kEach, bool kWalks>
__global__ void __launch_bounds__(kBlockThreads, 2)
    RunChain(const __grid_constant__ DeviceProgram program, const __grid_constant__ ChainSpans<T> spans,
             const __grid_constant__ DeviceWalk<kInputs> walk) {
  WaitForPrevious();
  const int64_t packs = kWalks ? walk.count : (walk.count + kEach - 1) / kEach;
  for (int64_t i = GridThread(); i < packs; i += GridStep()) {
    int64_t left = kEach;
    int64_t offsets[kInputs];
    if constexpr (kWalks) {
      walk.Locate(i, offsets);
    } else {
      left = walk.count - i * kEach;
    }
    Registers<T, kEach> registers;
#pragma unroll
    for (int k = 0; k < kInputs; ++k) {
      if (k >= program.input_count) break;
      const bool moves = (program.moving >> k & 1) != 0;
      const int64_t offset = kWalks ? offsets[k] : moves ? i * kEach : 0;
      registers.inputs[k] = LoadPack<T, kEach>(spans.inputs[k] + offset, moves, left);
    }
#pragma unroll 1
    for (int s = 0; s < program.step_count; ++s) registers.Run(program.steps[s]);
    StorePack<T, kEach>(spans.output + i * kEach, registers.result, left);
  }
}

/// The merged walk over packs of `each` elements if every pack lies in one row, and begins on a pack in every input
/// that goes along; else an empty one.
StridedWalk WalkOverPacks(const StridedWalk& walk, int64_t each) {
  StridedWalk packs = walk;
  const size_t last = walk.dims.size() - 1;
  if (walk.dims[last] % each != 0) return {};
  packs.dims[last] /= each;
  packs.count /= each;
  for (Dims& strides : packs.strides) {
    for (size_t i = 0; i < last; ++i) {
      if (strides[last] != 0 && strides[i] % each != 0) return {};
    }
    strides[last] *= each;
  }
  return packs;
}

/// A walk of one launch. Its strides are padded to kInputs, since all chains share their kernels.
absl::StatusOr<DeviceWalk<kInputs>> PaddedWalk(StridedWalk walk) {
  walk.strides.resize(kInputs, Dims(walk.dims.size(), 0));
  return MakeDeviceWalk<kInputs>(walk);
}

DeviceProgram DeviceProgramOf(const ChainProgram& program) {
  DeviceProgram result = {};
  result.input_count = static_cast<int>(program.walk.strides.size());
  result.step_count = static_cast<int>(program.steps.size());
  for (int k = 0; k < result.input_count; ++k) {
    // Strides of the last dimension of any broadcast are 0 or 1.
    if (program.walk.strides[static_cast<size_t>(k)].back() != 0) result.moving |= 1u << k;
  }
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const PlacedStep& step = program.steps[i];
    const auto* const binary = std::get_if<BinaryKind>(&step.kind);
    const uint8_t kind =
        binary != nullptr ? static_cast<uint8_t>(*binary) : static_cast<uint8_t>(std::get<UnaryKind>(step.kind));
    result.steps[i] = {binary != nullptr,
                       kind,
                       static_cast<int8_t>(step.a),
                       static_cast<int8_t>(step.b),
                       static_cast<int8_t>(step.keep),
                       step.alpha,
                       step.beta};
  }
  return result;
}

template <class T, int kEach, bool kWalks>
absl::Status Launch(cudaStream_t stream, const DeviceProgram& program, const ChainSpans<T>& spans,
                    const DeviceWalk<kInputs>& walk) {
  const int64_t threads = kWalks ? walk.count : (walk.count + kEach - 1) / kEach;
  LaunchAfterPrevious(RunChain<T, kEach, kWalks>, BlocksFor(threads), kBlockThreads, stream, program, spans, walk);
  return SLUICE_CUDA_STATUS(cudaGetLastError());
}

template <class T>
bool AreAligned(const ChainSpans<T>& spans, const DeviceProgram& program) {
  bool aligned = IsAligned(spans.output, sizeof(Pack<T, kChainPack<T>>));
  for (int k = 0; k < program.input_count; ++k) {
    const bool moves = (program.moving >> k & 1) != 0;
    aligned &= !moves || IsAligned(spans.inputs[k], sizeof(Pack<T, kChainPack<T>>));
  }
  return aligned;
}

/// Packs where the shapes and, in a launch, the spans allow them, else elements.
template <class T>
PreparedKernel MakeChain(int ordinal, std::string name, const ChainProgram& chain, std::vector<size_t> span_bytes) {
  constexpr int kEach = kChainPack<T>;
  const DeviceProgram program = DeviceProgramOf(chain);
  DeviceProgram single = program;
  single.moving = 0;  // A walk over elements finds each of them.
  SLUICE_ASSIGN_OR_RETURN(const DeviceWalk<kInputs> elements, PaddedWalk(chain.walk));
  const bool rows = chain.walk.dims.size() == 1;
  const StridedWalk over_packs = rows ? chain.walk : WalkOverPacks(chain.walk, kEach);
  const bool has_packs = !over_packs.dims.empty();
  DeviceWalk<kInputs> packs;
  if (has_packs) {
    SLUICE_ASSIGN_OR_RETURN(packs, PaddedWalk(over_packs));
  }
  SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, RunChain<T, kEach, false>));
  SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, RunChain<T, kEach, true>));
  SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, RunChain<T, 1, true>));
  return MakeLaunchKernel(
      std::move(name), std::move(span_bytes),
      [program, single, elements, packs, rows, has_packs](cudaStream_t stream, const KernelArgs& args) -> absl::Status {
        ChainSpans<T> spans = {};
        for (int k = 0; k < program.input_count; ++k) {
          spans.inputs[k] = Elements<const T>(args, static_cast<size_t>(k));
        }
        spans.output = Elements<T>(args, static_cast<size_t>(program.input_count));
        if (!has_packs || !AreAligned(spans, program)) return Launch<T, 1, true>(stream, single, spans, elements);
        return rows ? Launch<T, kEach, false>(stream, program, spans, packs)
                    : Launch<T, kEach, true>(stream, program, spans, packs);
      });
}

}  // namespace

PreparedKernel CudaKernelLibrary::PrepareElementwiseChain(const ElementwiseChainDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const ChainProgram program, MakeChainProgram(description));
  const auto prepare = [&](auto tag) -> PreparedKernel {
    using T = decltype(tag);
    std::vector<size_t> span_bytes;
    for (const Dims& dims : description.inputs) {
      SLUICE_ASSIGN_OR_RETURN(const int64_t count, ElementCount(dims));
      span_bytes.push_back(BytesOf<T>(count));
    }
    span_bytes.push_back(BytesOf<T>(program.walk.count));
    std::string name = ChainName(description, program.output);
    if (program.walk.count == 0) return MakeEmptyKernel(std::move(name), std::move(span_bytes));
    return MakeChain<T>(ordinal_, std::move(name), program, std::move(span_bytes));
  };
  return DispatchHalf(description.type, prepare, [&] {
    return DispatchType(Backend::kCuda, TypeList<float>{}, description.type, "elementwise chain", prepare);
  });
}

}  // namespace sluice::gpu::cuda
