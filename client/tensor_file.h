// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/types.h"

namespace sluice::client {

/// The whole of a file, or of standard input for "-". NOT_FOUND or INVALID_ARGUMENT naming the file; at most 2 GiB.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path);

/// A NumPy array file (versions 1 to 3, little-endian, C order) as a tensor without a name. INVALID_ARGUMENT says what
/// is wrong with it.
absl::StatusOr<Tensor> ParseNpy(absl::string_view file);

/// Nested JSON arrays of elements of `type`; the nesting is the shape. Ragged nesting is INVALID_ARGUMENT.
absl::StatusOr<Tensor> ParseJsonTensor(absl::string_view text, const std::string& name, DataType type);

/// All inputs of one request: either {"NAME": nested arrays, ...} or the HTTP protocol's form
/// {"inputs": [{"name", "datatype", "shape", "data"}]}. Names must be among `infos`, which also give the types.
absl::StatusOr<std::vector<Tensor>> ParseJsonInputs(absl::string_view text, const std::vector<TensorInfo>& infos);

/// How one input is given: where its content comes from and, when named, its shape.
struct InputSource {
  std::string source;  ///< "random" or a path ending in .npy, .json, or anything else for raw bytes.
  std::optional<std::vector<int64_t>> shape;  ///< Overrides the shape of the file; free dimensions must be filled in.
};

/// Makes the tensor for one input of a model. A missing shape is taken from the file or from the model: a free leading
/// dimension of random content is `batch`; a raw file may leave one dimension to be worked out from its size; a file
/// that lacks the leading dimension gets one of 1. INVALID_ARGUMENT names the input.
absl::StatusOr<Tensor> LoadInput(const TensorInfo& info, const InputSource& source, int64_t batch, uint64_t seed);

}  // namespace sluice::client
