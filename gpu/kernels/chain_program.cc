// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/chain_program.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "gpu/kernels/names.h"

namespace sluice::gpu {
namespace {

absl::Status CheckKind(const ElementwiseStep& step) {
  if (const UnaryKind* unary = std::get_if<UnaryKind>(&step.kind)) {
    if (*unary > UnaryKind::kTanh || *unary == UnaryKind::kNot) {
      return absl::InvalidArgumentError(absl::StrCat("expected a kind for floating types, got ", NameOf(*unary)));
    }
    if (*unary == UnaryKind::kClip && !(step.alpha <= step.beta)) {
      return absl::InvalidArgumentError(absl::StrCat("clip: low ", step.alpha, " must not be above high ", step.beta));
    }
    return absl::OkStatus();
  }
  const BinaryKind binary = std::get<BinaryKind>(step.kind);
  if (binary < BinaryKind::kEqual) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("expected an arithmetic kind, got number ", static_cast<int>(binary)));
}

absl::Status CheckStep(const ElementwiseStep& step, size_t values) {
  SLUICE_RETURN_IF_ERROR(CheckKind(step));
  const size_t last = std::holds_alternative<BinaryKind>(step.kind) ? std::max(step.a, step.b) : step.a;
  if (last < values) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("expected operands among the ", values, " values before, got ", last));
}

absl::Status CheckCount(size_t count, size_t most, const char* what) {
  if (count >= 1 && count <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("elementwise chain: expected 1 to ", most, " ", what, ", got ", count));
}

/// Gives each result that is read later than by the next step a place, as long as it is needed.
class Placement {
 public:
  explicit Placement(const ElementwiseChainDescription& description)
      : inputs_(description.inputs.size()), steps_(description.steps), last_use_(steps_.size(), 0) {
    holders_.fill(kFree);
    for (size_t i = 0; i < steps_.size(); ++i) {
      ForOperands(steps_[i], [&](size_t value) {
        if (value >= inputs_) last_use_[value - inputs_] = i;
      });
    }
  }

  absl::StatusOr<std::vector<PlacedStep>> Place() {
    std::vector<PlacedStep> placed;
    for (size_t i = 0; i < steps_.size(); ++i) {
      const ElementwiseStep& step = steps_[i];
      PlacedStep to{.kind = step.kind, .a = PlaceOf(step.a, i), .alpha = step.alpha, .beta = step.beta};
      if (std::holds_alternative<BinaryKind>(step.kind)) to.b = PlaceOf(step.b, i);
      for (size_t& holder : holders_) {
        if (holder < i && last_use_[holder] <= i) holder = kFree;
      }
      if (last_use_[i] > i + 1) {
        const auto free = std::ranges::find(holders_, kFree);
        if (free == holders_.end()) {
          return absl::InvalidArgumentError(absl::StrCat("elementwise chain: step ", i, ": expected at most ",
                                                         kMaxChainKept, " results kept at once, got one more"));
        }
        *free = i;
        to.keep = static_cast<int>(free - holders_.begin());
      }
      placed.push_back(to);
    }
    return placed;
  }

 private:
  static constexpr size_t kFree = kMaxChainSteps;

  template <class Body>
  static void ForOperands(const ElementwiseStep& step, const Body& body) {
    body(step.a);
    if (std::holds_alternative<BinaryKind>(step.kind)) body(step.b);
  }

  int PlaceOf(size_t value, size_t reader) const {
    if (value < inputs_) return static_cast<int>(value);
    const size_t maker = value - inputs_;
    if (maker + 1 == reader) return kPreviousResult;
    return kFirstKept + static_cast<int>(std::ranges::find(holders_, maker) - holders_.begin());
  }

  const size_t inputs_;
  const std::vector<ElementwiseStep>& steps_;
  std::vector<size_t> last_use_;               ///< Per step: the last one that reads its result.
  std::array<size_t, kMaxChainKept> holders_;  ///< Whose result is in each place.
};

}  // namespace

absl::StatusOr<ChainProgram> MakeChainProgram(const ElementwiseChainDescription& description) {
  SLUICE_RETURN_IF_ERROR(CheckCount(description.inputs.size(), kMaxChainInputs, "inputs"));
  SLUICE_RETURN_IF_ERROR(CheckCount(description.steps.size(), kMaxChainSteps, "steps"));
  for (size_t i = 0; i < description.steps.size(); ++i) {
    const absl::Status status = CheckStep(description.steps[i], description.inputs.size() + i);
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat("elementwise chain: step ", i, ": ", status.message()));
    }
  }
  ChainProgram program;
  program.output = description.inputs[0];
  for (const Dims& input : description.inputs) {
    SLUICE_RETURN_IF_ERROR(ElementCount(input).status());
    SLUICE_ASSIGN_OR_RETURN(program.output, BroadcastDims(program.output, input));
  }
  StridedWalk walk{.dims = program.output};
  SLUICE_ASSIGN_OR_RETURN(walk.count, ElementCount(program.output));
  for (const Dims& input : description.inputs) walk.strides.push_back(BroadcastStrides(input, program.output));
  program.walk = MergeDims(walk);
  if (program.walk.dims.size() > kMaxChainRank) {
    return absl::InvalidArgumentError(absl::StrCat("elementwise chain: expected at most ", kMaxChainRank,
                                                   " dimensions after merging, got ", DimsToString(program.walk.dims)));
  }
  SLUICE_ASSIGN_OR_RETURN(program.steps, Placement(description).Place());
  return program;
}

std::string ChainWords(const std::vector<ElementwiseStep>& steps) {
  return absl::StrJoin(steps, ",", [](std::string* out, const ElementwiseStep& step) {
    absl::StrAppend(out, std::visit([](auto kind) { return NameOf(kind); }, step.kind));
  });
}

std::string ChainName(const ElementwiseChainDescription& description, const Dims& output) {
  return absl::StrCat("elementwise ", ChainWords(description.steps), " ", DimsToString(output));
}

}  // namespace sluice::gpu
