// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/cuda_matmul_ways.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_kernel.h"
#include "gpu/cuda/cuda_status.h"
#include "gpu/kernels/cuda_matmul_kernels.h"
#include "gpu/kernels/cuda_trial.h"

namespace sluice::gpu::cuda {
namespace {

constexpr int kMostWays = 4;        // For each number of parts.
constexpr int kMostTunedWays = 48;  // The same, where a tuning is made or read.
// A result of so many elements is some 250 tiles of 64 x 64: every multiprocessor has work without parts.
constexpr int64_t kManyElements = int64_t{1} << 20;
constexpr int64_t kMostParts = 16;
constexpr int64_t kLeastPartDepth = 64;
// Operands larger than this are not worth the memory of a trial; the library's first answer is taken.
constexpr size_t kMaxTrialBytes = size_t{1} << 30;
// Choices are kept for this many products, which is more than a server's models have; then it starts anew.
constexpr size_t kMaxChoices = 4096;

/// One of `parts` equal pieces of the depth for each matrix of a batch, in FP32; all that is added and the activation
/// are left out.
MatMulOperands PartOf(const MatMulOperands& whole, int64_t parts) {
  MatMulOperands part = whole;
  MatMulShape& to = part.shape;
  to.depth /= parts;
  to.has_c = false;
  to.relu = false;
  part.c_form = CForm::kNone;
  part.residual = false;
  part.out_type = DataType::kFp32;
  if (parts == 1) return part;
  if (!part.transpose_a) part.a_lead = whole.shape.depth;
  if (part.transpose_b) part.b_lead = whole.shape.depth;
  to.batch_rank = 1;
  to.batches = to.batch[0] = parts;
  to.a_batch[0] = to.depth * to.a_depth;
  to.b_batch[0] = to.depth * to.b_depth;
  return part;
}

int64_t Span(int64_t rows, int64_t row, int64_t columns, int64_t column) {
  if (rows == 0 || columns == 0) return 0;
  return (rows - 1) * row + (columns - 1) * column + 1;
}

/// Elements from the first to the last that a product touches.
struct Extents {
  int64_t a = 0, b = 0, c = 0, out = 0;
};
Extents ExtentsOf(const MatMulShape& shape) {
  Extents extents;
  extents.a = Span(shape.rows, shape.a_row, shape.depth, shape.a_depth);
  extents.b = Span(shape.depth, shape.b_depth, shape.columns, shape.b_column);
  extents.c = Span(shape.rows, shape.c_row, shape.columns, shape.c_column);
  for (int i = 0; i < shape.batch_rank; ++i) {
    extents.a += (shape.batch[i] - 1) * shape.a_batch[i];
    extents.b += (shape.batch[i] - 1) * shape.b_batch[i];
    extents.c += (shape.batch[i] - 1) * shape.c_batch[i];
  }
  extents.out = shape.batches * shape.rows * shape.columns;
  return extents;
}

/// All that Ways looks at.
std::string KeyOf(const MatMulOperands& operands) {
  const MatMulShape& s = operands.shape;
  const auto steps = [&](const int64_t(&values)[kMaxBatchRank]) {
    return absl::StrJoin(values, values + s.batch_rank, ",");
  };
  return absl::StrCat("matmul ", s.rows, "x", s.depth, "x", s.columns, " ", operands.transpose_a, operands.transpose_b,
                      s.has_c, s.relu, " c ", static_cast<int>(operands.c_form), ",", s.c_row, ",", s.c_column, " by ",
                      s.alpha, ",", s.beta, " of ", WireName(operands.type), operands.tf32, operands.residual,
                      " batch ", steps(s.batch), " ", steps(s.a_batch), " ", steps(s.b_batch), " ", steps(s.c_batch));
}

/// None when none is supported after all.
absl::StatusOr<std::optional<MatMulWay>> Fastest(int ordinal, const TrialRules& rules, const std::string& problem_name,
                                                 const MatMulOperands& operands, const std::vector<MatMulWay>& ways) {
  const MatMulShape& shape = operands.shape;
  const Extents extents = ExtentsOf(shape);
  const auto bytes = [&](int64_t elements) {
    return AlignWorkspace(static_cast<size_t>(elements) * ElementBytes(operands.type));
  };
  size_t workspace_bytes = 0;
  for (const MatMulWay& way : ways) workspace_bytes = std::max(workspace_bytes, way.workspace_bytes());
  const size_t a = bytes(extents.a), b = bytes(extents.b), c = bytes(extents.c), out = bytes(extents.out);
  if (a + b + c + out + workspace_bytes > kMaxTrialBytes) return ways.front();
  SLUICE_ASSIGN_OR_RETURN(const int copies, TrialCopies(rules.tuning, ordinal, operands.one_b ? b : 0));
  const size_t b_bytes = b * static_cast<size_t>(copies);
  TrialProblem problem = {.rules = rules, .name = problem_name, .ways = {}, .copies = copies};
  for (const MatMulWay& way : ways) {
    SLUICE_ASSIGN_OR_RETURN(problem.ways.emplace_back(), way.LongName());
  }
  TrialStream stream;
  SLUICE_RETURN_IF_ERROR(stream.Make(ordinal));
  TrialMemory memory(stream.get());
  const size_t operands_bytes = a + b_bytes + c + out;
  SLUICE_RETURN_IF_ERROR(memory.Allocate(operands_bytes + workspace_bytes));
  auto* const first = memory.data();
  // Denormals or NaNs of whoever had the memory before would not change a product's time, but zeros are certain.
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaMemsetAsync(first, 0, operands_bytes, stream.get())));
  const auto at = [&](size_t offset) { return static_cast<void*>(first + offset); };
  const auto submit = [&](size_t way, int call) -> absl::StatusOr<bool> {
    void* const result = at(a + b_bytes + c);
    SLUICE_RETURN_IF_ERROR(ways[way].Submit(
        stream.get(), at(0), at(a + b * static_cast<size_t>(call % copies)), shape.has_c ? at(a + b_bytes) : nullptr,
        operands.residual ? result : nullptr, result, {first + operands_bytes, ways[way].workspace_bytes()}));
    return true;
  };
  SLUICE_ASSIGN_OR_RETURN(const std::optional<size_t> fastest, FastestWay(stream.get(), problem, submit));
  if (!fastest.has_value()) return std::nullopt;
  return ways[*fastest];
}

}  // namespace

MatMulWay::MatMulWay(const MatMulOperands& operands, const LtProduct& product, int64_t parts, bool sums)
    : shape_(operands.shape), type_(operands.type), product_(product), parts_(parts) {
  if (!sums) return;
  sums_bytes_ =
      AlignWorkspace(static_cast<size_t>(parts * shape_.batches * shape_.rows * shape_.columns) * sizeof(float));
}

absl::StatusOr<std::vector<MatMulWay>> MatMulWay::Ways(cublasLtHandle_t handle, const MatMulOperands& operands,
                                                       int most) {
  const MatMulShape& shape = operands.shape;
  const bool half = operands.type != DataType::kFp32;
  std::vector<MatMulWay> ways;
  SLUICE_ASSIGN_OR_RETURN(const std::vector<LtProduct> whole, LtProduct::Candidates(handle, operands, most));
  for (const LtProduct& product : whole) {
    // What is left of halves is added to sums that have not been rounded.
    if (!half || !product.leaves_any()) ways.push_back(MatMulWay(operands, product, 1, /*sums=*/false));
  }
  const int64_t elements = shape.rows * shape.columns;  // Bounded, as the result is a tensor.
  for (int64_t parts = half && ways.empty() ? 1 : 2; parts <= kMostParts; parts *= 2) {
    const bool divides = shape.depth % parts == 0 && shape.depth / parts >= kLeastPartDepth;
    if (parts > 1 && (shape.batches > 1 || !divides || elements > kManyElements / parts)) break;
    SLUICE_ASSIGN_OR_RETURN(const std::vector<LtProduct> products,
                            LtProduct::Candidates(handle, PartOf(operands, parts), most));
    for (const LtProduct& product : products) ways.push_back(MatMulWay(operands, product, parts, /*sums=*/true));
  }
  return ways;
}

std::string MatMulWay::name() const {
  if (parts_ > 1) return absl::StrCat("cuBLASLt, depth in ", parts_);
  return sums_bytes_ > 0 || product_.leaves_any() ? "cuBLASLt, then C" : "cuBLASLt";
}

absl::StatusOr<std::string> MatMulWay::LongName() const {
  SLUICE_ASSIGN_OR_RETURN(const std::string product, product_.Name());
  return absl::StrCat(product, sums_bytes_ > 0 ? absl::StrCat(", then the sum of ", parts_) : "");
}

absl::Status MatMulWay::Submit(cudaStream_t stream, const void* a, const void* b, const void* c, const void* residual,
                               void* out, DeviceSpan workspace) const {
  const DeviceSpan library = workspace.subspan(sums_bytes_, workspace.size_bytes - sums_bytes_);
  if (sums_bytes_ > 0) {
    auto* const sums = reinterpret_cast<float*>(workspace.data);
    SLUICE_RETURN_IF_ERROR(product_.Submit(stream, a, b, nullptr, nullptr, sums, library));
    return SubmitAddC(stream, type_, shape_, parts_, sums, c, residual, out);
  }
  SLUICE_RETURN_IF_ERROR(product_.Submit(stream, a, b, c, residual, out, library));
  if (!product_.leaves_any()) return absl::OkStatus();
  return SubmitAddC(stream, type_, shape_, 1, static_cast<const float*>(out), product_.leaves_c() ? c : nullptr,
                    nullptr, out);
}

absl::StatusOr<std::optional<MatMulWay>> MatMulChoices::Choose(cublasLtHandle_t handle,
                                                               const MatMulOperands& operands) {
  const std::string key = KeyOf(operands);
  MutexLock lock(mutex_);
  if (const auto found = chosen_.find(key); found != chosen_.end()) return found->second;
  SLUICE_RETURN_IF_ERROR(LoadAddC(ordinal_, operands.type));
  const bool tuned = rules_.tuning.tunes() || rules_.tuning.Find(key).has_value();
  SLUICE_ASSIGN_OR_RETURN(const std::vector<MatMulWay> ways,
                          MatMulWay::Ways(handle, operands, tuned ? kMostTunedWays : kMostWays));
  std::optional<MatMulWay> way;
  if (!ways.empty()) {
    SLUICE_ASSIGN_OR_RETURN(way, Fastest(ordinal_, rules_, key, operands, ways));
  }
  if (chosen_.size() >= kMaxChoices) chosen_.clear();
  chosen_.emplace(key, way);
  return way;
}

}  // namespace sluice::gpu::cuda
