// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// cuBLASLt works on column-major matrices; ours are row-major. A row-major [r, c] matrix is, byte for byte, the
// column-major c x r matrix with leading dimension c: its transpose. So instead of
//
//   C[M,N] = A'[M,K] B'[K,N]           (row-major)
//
// cuBLASLt is asked for the transpose of it, with the operands exchanged:
//
//   C^T (N x M, ld N) = B'^T (N x K) A'^T (K x M)
//
//   its first operand is our B:   stored [K,N]: seen as N x K, ld N, taken as it is (OP_N)
//                                 stored [N,K] (transpose_b): seen as K x N, ld K, transposed (OP_T)
//   its second operand is our A:  stored [M,K]: seen as K x M, ld K, taken as it is (OP_N)
//                                 stored [K,M] (transpose_a): seen as M x K, ld M, transposed (OP_T)
//   its C and D are our C and result: N x M, ld N
//
// Its bias is a vector along the rows of D, of N values: our row of C, added to each of our rows. The epilogue comes
// after the scaling by alpha, so alpha does not touch the bias.
#include "gpu/kernels/cuda_matmul_lt.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "gpu/cuda/math_status.h"

namespace sluice::gpu::cuda {
namespace {

constexpr uint64_t kMaxWorkspaceBytes = uint64_t{8} << 20;
constexpr int64_t kMaxCalls = 16;
constexpr int kSpareCandidates = 4;  // Asked for beside, as some may not do.
constexpr uint32_t kAligned = 16;    // What spans and constants are at least; vector loads ask for no more.

template <class T>
absl::Status Set(cublasLtMatmulDesc_t to, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  return SLUICE_CUBLAS_STATUS(cublasLtMatmulDescSetAttribute(to, attribute, &value, sizeof(value)));
}
template <class T>
absl::Status Set(cublasLtMatrixLayout_t to, cublasLtMatrixLayoutAttribute_t attribute, const T& value) {
  return SLUICE_CUBLAS_STATUS(cublasLtMatrixLayoutSetAttribute(to, attribute, &value, sizeof(value)));
}
template <class T>
absl::Status Set(cublasLtMatmulPreference_t to, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  return SLUICE_CUBLAS_STATUS(cublasLtMatmulPreferenceSetAttribute(to, attribute, &value, sizeof(value)));
}

cudaDataType_t LibraryType(DataType type) {
  return type == DataType::kFp16 ? CUDA_R_16F : type == DataType::kBf16 ? CUDA_R_16BF : CUDA_R_32F;
}

/// A column-major matrix, once or as a strided batch. `lead`: from one column to the next, 0 for contiguous ones.
absl::Status DescribeMatrix(DataType type, int64_t rows, int64_t columns, int64_t batches, int64_t step,
                            cublasLtMatrixLayout_t to, int64_t lead = 0) {
  SLUICE_RETURN_IF_ERROR(SLUICE_CUBLAS_STATUS(cublasLtMatrixLayoutInit(
      to, LibraryType(type), static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), lead == 0 ? rows : lead)));
  if (batches == 1) return absl::OkStatus();
  SLUICE_RETURN_IF_ERROR(Set(to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(batches)));
  return Set(to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, step);
}

/// True when every matrix of a batch begins on kAligned bytes, not only the first.
bool MatricesAligned(const MatMulOperands& operands) {
  const MatMulShape& shape = operands.shape;
  const auto each = static_cast<int64_t>(kAligned / ElementBytes(operands.type));
  if (operands.a_lead % each != 0 || operands.b_lead % each != 0) return false;
  if (shape.batch_rank > 0 && shape.rows * shape.columns % each != 0) return false;
  for (int d = 0; d < shape.batch_rank; ++d) {
    if (shape.a_batch[d] % each != 0 || shape.b_batch[d] % each != 0 || shape.c_batch[d] % each != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace

/// On the stack of whoever describes: the opaque structs need no memory of the library's.
struct LtProduct::Descriptors {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t first, second, c, result;
};

LtProduct::LtProduct(cublasLtHandle_t handle, const MatMulOperands& operands, bool fuse)
    : handle_(handle), operands_(operands) {
  const MatMulShape& shape = operands.shape;
  if (fuse) {
    bias_ = operands.c_form == CForm::kRow && shape.beta == 1.0f;
    matrix_c_ = operands.c_form == CForm::kMatrix && !operands.residual;
    residual_ = operands.residual && (bias_ || !shape.has_c);
    relu_ = shape.relu && !leaves_c() && !leaves_residual();
  }
  for (int i = 0; i + 1 < shape.batch_rank; ++i) calls_ *= shape.batch[i];
}

absl::Status LtProduct::Describe(const void* bias, Descriptors& to) const {
  const MatMulShape& shape = operands_.shape;
  const DataType type = operands_.type, out_type = operands_.out_type;
  const cublasComputeType_t compute =
      operands_.tf32 && type == DataType::kFp32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  SLUICE_RETURN_IF_ERROR(SLUICE_CUBLAS_STATUS(cublasLtMatmulDescInit(&to.operation, compute, CUDA_R_32F)));
  const auto turned = [](bool transpose) { return static_cast<int32_t>(transpose ? CUBLAS_OP_T : CUBLAS_OP_N); };
  SLUICE_RETURN_IF_ERROR(Set(&to.operation, CUBLASLT_MATMUL_DESC_TRANSA, turned(operands_.transpose_b)));
  SLUICE_RETURN_IF_ERROR(Set(&to.operation, CUBLASLT_MATMUL_DESC_TRANSB, turned(operands_.transpose_a)));
  const auto epilogue = static_cast<uint32_t>(bias_ && relu_ ? CUBLASLT_EPILOGUE_RELU_BIAS
                                              : bias_        ? CUBLASLT_EPILOGUE_BIAS
                                              : relu_        ? CUBLASLT_EPILOGUE_RELU
                                                             : CUBLASLT_EPILOGUE_DEFAULT);
  SLUICE_RETURN_IF_ERROR(Set(&to.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue));
  if (bias_) {
    SLUICE_RETURN_IF_ERROR(Set(&to.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias));
    SLUICE_RETURN_IF_ERROR(
        Set(&to.operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(LibraryType(out_type))));
  }

  const int last = shape.batch_rank - 1;
  const int64_t batches = last < 0 ? 1 : shape.batch[last];
  const int64_t a_step = last < 0 ? 0 : shape.a_batch[last];
  const int64_t b_step = last < 0 ? 0 : shape.b_batch[last];
  const int64_t out_step = shape.rows * shape.columns;
  const int64_t c_step = last < 0 || !matrix_c_ ? out_step : shape.c_batch[last];
  const int64_t m = shape.rows, n = shape.columns, k = shape.depth;
  SLUICE_RETURN_IF_ERROR(operands_.transpose_b
                             ? DescribeMatrix(type, k, n, batches, b_step, &to.first, operands_.b_lead)
                             : DescribeMatrix(type, n, k, batches, b_step, &to.first, operands_.b_lead));
  SLUICE_RETURN_IF_ERROR(operands_.transpose_a
                             ? DescribeMatrix(type, m, k, batches, a_step, &to.second, operands_.a_lead)
                             : DescribeMatrix(type, k, m, batches, a_step, &to.second, operands_.a_lead));
  SLUICE_RETURN_IF_ERROR(DescribeMatrix(out_type, n, m, batches, c_step, &to.c));
  return DescribeMatrix(out_type, n, m, batches, out_step, &to.result);
}

absl::StatusOr<std::vector<LtProduct>> LtProduct::WithAlgorithms(int most) const {
  Descriptors descriptors;
  // Which vector it will be does not matter here, but that there is one.
  SLUICE_RETURN_IF_ERROR(Describe(reinterpret_cast<const void*>(uintptr_t{256}), descriptors));
  cublasLtMatmulPreferenceOpaque_t preference;
  SLUICE_RETURN_IF_ERROR(SLUICE_CUBLAS_STATUS(cublasLtMatmulPreferenceInit(&preference)));
  SLUICE_RETURN_IF_ERROR(Set(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMaxWorkspaceBytes));
  // Sums in place by atomics would differ from run to run.
  constexpr uint32_t kDeterministic = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  SLUICE_RETURN_IF_ERROR(Set(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kDeterministic));
  const auto alignment = static_cast<uint32_t>(MatricesAligned(operands_) ? kAligned : ElementBytes(operands_.type));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    SLUICE_RETURN_IF_ERROR(Set(&preference, attribute, alignment));
  }
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most) + kSpareCandidates);
  int count = 0;
  const cublasStatus_t answer = cublasLtMatmulAlgoGetHeuristic(
      handle_, &descriptors.operation, &descriptors.first, &descriptors.second, &descriptors.c, &descriptors.result,
      &preference, static_cast<int>(results.size()), results.data(), &count);
  std::vector<LtProduct> products;
  if (answer == CUBLAS_STATUS_NOT_SUPPORTED) return products;
  SLUICE_RETURN_IF_ERROR(CublasStatus(answer, "cublasLtMatmulAlgoGetHeuristic", __FILE__, __LINE__));
  for (int i = 0; i < count && products.size() < static_cast<size_t>(most); ++i) {
    if (results[i].state != CUBLAS_STATUS_SUCCESS || results[i].workspaceSize > kMaxWorkspaceBytes) continue;
    products.push_back(*this);
    products.back().algorithm_ = results[i].algo;
    products.back().workspace_bytes_ = results[i].workspaceSize;
  }
  return products;
}

absl::StatusOr<std::vector<LtProduct>> LtProduct::Candidates(cublasLtHandle_t handle, const MatMulOperands& operands,
                                                             int most) {
  const MatMulShape& shape = operands.shape;
  for (const bool fuse : {true, false}) {
    const LtProduct product(handle, operands, fuse);
    const int64_t inner = shape.batch_rank == 0 ? 1 : shape.batch[shape.batch_rank - 1];
    if (product.calls_ > kMaxCalls || inner > INT32_MAX) break;
    SLUICE_ASSIGN_OR_RETURN(std::vector<LtProduct> products, product.WithAlgorithms(most));
    if (!products.empty()) return products;
  }
  return std::vector<LtProduct>();
}

absl::StatusOr<std::string> LtProduct::Name() const {
  std::string name = absl::StrCat("cuBLASLt", bias_ ? " bias" : "", matrix_c_ ? " C" : "", residual_ ? " residual" : "",
                                  relu_ ? " relu" : "");
  struct Part {
    absl::string_view name;
    cublasLtMatmulAlgoConfigAttributes_t attribute;
    size_t size_bytes = sizeof(uint32_t);
  };
  constexpr Part kParts[] = {{"id", CUBLASLT_ALGO_CONFIG_ID},
                             {"tile", CUBLASLT_ALGO_CONFIG_TILE_ID},
                             {"stages", CUBLASLT_ALGO_CONFIG_STAGES_ID},
                             {"inner", CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, sizeof(uint16_t)},
                             {"cluster", CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, sizeof(uint16_t)},
                             {"split", CUBLASLT_ALGO_CONFIG_SPLITK_NUM},
                             {"reduction", CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME},
                             {"swizzle", CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING},
                             {"custom", CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION}};
  for (const Part& part : kParts) {
    uint32_t value = 0;  // Little-endian: the short ones fill its low half.
    size_t written = 0;
    SLUICE_RETURN_IF_ERROR(SLUICE_CUBLAS_STATUS(
        cublasLtMatmulAlgoConfigGetAttribute(&algorithm_, part.attribute, &value, part.size_bytes, &written)));
    absl::StrAppend(&name, " ", part.name, " ", value);
  }
  return name;
}

absl::Status LtProduct::Submit(cudaStream_t stream, const void* a, const void* b, const void* c, const void* residual,
                               void* out, DeviceSpan workspace) const {
  const MatMulShape& shape = operands_.shape;
  Descriptors descriptors;
  SLUICE_RETURN_IF_ERROR(Describe(c, descriptors));
  const float beta = matrix_c_ ? shape.beta : residual_ ? 1.0f : 0.0f;
  const auto in_bytes = static_cast<int64_t>(ElementBytes(operands_.type));
  const auto out_bytes = static_cast<int64_t>(ElementBytes(operands_.out_type));
  const auto at = [](const void* from, int64_t bytes) { return static_cast<const std::byte*>(from) + bytes; };
  const int64_t inner = shape.batch_rank == 0 ? 1 : shape.batch[shape.batch_rank - 1];
  for (int64_t call = 0; call < calls_; ++call) {
    int64_t rest = call, a_offset = 0, b_offset = 0, c_offset = 0;
    for (int d = shape.batch_rank - 2; d >= 0; --d) {
      const int64_t coordinate = rest % shape.batch[d];
      rest /= shape.batch[d];
      a_offset += coordinate * shape.a_batch[d];
      b_offset += coordinate * shape.b_batch[d];
      c_offset += coordinate * shape.c_batch[d];
    }
    const int64_t result_offset = call * inner * shape.rows * shape.columns * out_bytes;
    void* const result = static_cast<std::byte*>(out) + result_offset;
    const void* const added = matrix_c_ ? at(c, c_offset * in_bytes) : residual_ ? at(residual, result_offset) : result;
    SLUICE_RETURN_IF_ERROR(SLUICE_CUBLAS_STATUS(
        cublasLtMatmul(handle_, &descriptors.operation, &shape.alpha, at(b, b_offset * in_bytes), &descriptors.first,
                       at(a, a_offset * in_bytes), &descriptors.second, &beta, added, &descriptors.c, result,
                       &descriptors.result, &algorithm_, workspace.data, workspace.size_bytes, stream)));
  }
  return absl::OkStatus();
}

}  // namespace sluice::gpu::cuda
