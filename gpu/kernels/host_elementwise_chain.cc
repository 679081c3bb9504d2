// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// A chain block by block: all steps over one block before the next, so that what is between them stays in the
// first-level cache.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/status_macros.h"
#include "gpu/kernels/chain_program.h"
#include "gpu/kernels/host_elementwise.h"
#include "gpu/kernels/host_kernels.h"
#include "gpu/kernels/host_loop.h"

namespace sluice::gpu::host {
namespace {

constexpr int64_t kBlock = 1024;  // elements: 4 KiB of each value that a step touches

/// A block of a value: a number for each element, or (step 0) one for all.
struct Operand {
  const float* data = nullptr;
  int64_t step = 1;
};

/// A step with its loop chosen; one of the two is there.
struct ChainStep {
  UnaryRow unary;
  BinaryRow binary = nullptr;
  int a = kPreviousResult;
  int b = kPreviousResult;
  int keep = kNotKept;
};

static_assert(kMaxChainRank <= kMaxLoopRank);

enum class InputKind : uint8_t {
  kWhole,      // an element for each of the output's
  kScalar,     // one element
  kBroadcast,  // anything else
};

class ChainKernel final : public HostKernel {
 public:
  ChainKernel(std::string name, const StridedLoop<kMaxChainInputs>& loop, std::vector<InputKind> inputs,
              std::vector<ChainStep> steps)
      : HostKernel(std::move(name), 0),
        loop_(loop),
        count_(loop.outer_count() * loop.inner_count()),
        inputs_(std::move(inputs)),
        steps_(std::move(steps)) {}

  absl::Status Run(const KernelArgs& args) const override {
    ParallelRanges((count_ + kBlock - 1) / kBlock, kBlock, [&](int64_t first, int64_t last) {
      Scratch scratch;
      for (int64_t block = first; block < last; ++block) {
        const int64_t begin = block * kBlock;
        RunBlock(args, begin, std::min(begin + kBlock, count_), scratch);
      }
    });
    return absl::OkStatus();
  }

 private:
  using Block = std::array<float, kBlock>;
  struct Scratch {
    std::array<Block, kMaxChainInputs> spread;  // Inputs that are neither whole nor, within a block, in one row.
    std::array<Block, kMaxChainKept> kept;
    Block previous;
  };

  void RunBlock(const KernelArgs& args, int64_t begin, int64_t end, Scratch& scratch) const {
    std::array<Operand, kMaxChainInputs> inputs;
    Locate(args, begin, end, scratch, inputs);
    float* const output = Elements<float>(args, inputs_.size()) + begin;
    const float* previous = nullptr;
    const auto find = [&](int place) -> Operand {
      if (place == kPreviousResult) return {previous, 1};
      if (place < kFirstKept) return inputs[static_cast<size_t>(place)];
      return {scratch.kept[static_cast<size_t>(place - kFirstKept)].data(), 1};
    };
    for (const ChainStep& step : steps_) {
      float* const result = &step == &steps_.back() ? output
                            : step.keep != kNotKept ? scratch.kept[static_cast<size_t>(step.keep)].data()
                                                    : scratch.previous.data();
      RunStep(step, find(step.a), find(step.b), result, end - begin);
      previous = result;
    }
  }

  static void RunStep(const ChainStep& step, Operand a, Operand b, float* result, int64_t count) {
    if (step.binary != nullptr) {
      step.binary(reinterpret_cast<const std::byte*>(a.data), a.step, reinterpret_cast<const std::byte*>(b.data),
                  b.step, reinterpret_cast<std::byte*>(result), count);
      return;
    }
    if (a.step == 0) {
      std::fill_n(result, count, *a.data);
      a.data = result;
    }
    step.unary(a.data, result, count);
  }

  static void Spread(const float* source, int64_t step, int64_t count, float* target) {
    constexpr int64_t kShort = 16;  // A call for so few elements costs more than they do.
    if (count < kShort) {
      for (int64_t i = 0; i < count; ++i) target[i] = source[i * step];
    } else if (step == 0) {
      std::fill_n(target, count, *source);
    } else {
      std::copy_n(source, count, target);
    }
  }

  /// Where the inputs' elements for [begin, end) of the output are. What is not in a row there is spread out first.
  void Locate(const KernelArgs& args, int64_t begin, int64_t end, Scratch& scratch,
              std::array<Operand, kMaxChainInputs>& operands) const {
    bool broadcast = false;
    for (size_t k = 0; k < inputs_.size(); ++k) {
      const float* const data = Elements<float>(args, k);
      operands[k] = inputs_[k] == InputKind::kWhole ? Operand{data + begin, 1} : Operand{data, 0};
      broadcast |= inputs_[k] == InputKind::kBroadcast;
    }
    if (!broadcast) return;
    const int64_t inner = loop_.inner_count();
    const int64_t first_row = begin / inner, last_row = (end - 1) / inner;
    loop_.RunRange(first_row, last_row + 1, [&](int64_t row, const StridedLoop<kMaxChainInputs>::Offsets& offsets) {
      const int64_t from = std::max(begin, row * inner), to = std::min(end, (row + 1) * inner);
      for (size_t k = 0; k < inputs_.size(); ++k) {
        if (inputs_[k] != InputKind::kBroadcast) continue;
        const int64_t step = loop_.inner_step(k);
        const float* const source = Elements<float>(args, k) + offsets[k] + (from - row * inner) * step;
        if (first_row == last_row) {
          operands[k] = {source, step};
          continue;
        }
        Spread(source, step, to - from, scratch.spread[k].data() + (from - begin));
        operands[k] = {scratch.spread[k].data(), 1};
      }
    });
  }

  const StridedLoop<kMaxChainInputs> loop_;
  const int64_t count_;
  const std::vector<InputKind> inputs_;
  const std::vector<ChainStep> steps_;
};

absl::StatusOr<ChainStep> ChooseLoop(const PlacedStep& step) {
  ChainStep chosen{.unary = {}, .a = step.a, .b = step.b, .keep = step.keep};
  if (const BinaryKind* binary = std::get_if<BinaryKind>(&step.kind)) {
    chosen.binary = BinaryRowFor(*binary, DataType::kFp32);
    return chosen;
  }
  const UnaryDescription description{.kind = std::get<UnaryKind>(step.kind),
                                     .alpha = step.alpha,
                                     .beta = step.beta,
                                     .low = step.alpha,
                                     .high = step.beta};
  SLUICE_ASSIGN_OR_RETURN(chosen.unary, FloatUnaryRow(description));
  return chosen;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Kernel>> PlainElementwiseChain(const ElementwiseChainDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(ChainProgram program, MakeChainProgram(description));
  if (description.type != DataType::kFp32) return LacksType(Backend::kHost, "elementwise chain", description.type);
  std::vector<InputKind> inputs;
  for (const Dims& dims : description.inputs) {
    SLUICE_ASSIGN_OR_RETURN(const int64_t count, ElementCount(dims));
    inputs.push_back(count == program.walk.count ? InputKind::kWhole
                     : count == 1                ? InputKind::kScalar
                                                 : InputKind::kBroadcast);
  }
  // The loop has the same number of inputs for every chain; those that are not there stand still.
  program.walk.strides.resize(kMaxChainInputs, Dims(program.walk.dims.size(), 0));
  SLUICE_ASSIGN_OR_RETURN(const auto loop, StridedLoop<kMaxChainInputs>::Make(program.walk));
  std::vector<ChainStep> steps;
  for (const PlacedStep& step : program.steps) {
    SLUICE_ASSIGN_OR_RETURN(steps.emplace_back(), ChooseLoop(step));
  }
  return std::make_unique<ChainKernel>(ChainName(description, program.output), loop, std::move(inputs),
                                       std::move(steps));
}

}  // namespace sluice::gpu::host
