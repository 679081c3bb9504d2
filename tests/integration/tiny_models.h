// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace sluice::testing {

/// ONNX file of y = x + x, float32 [N, columns].
std::string DoublingModel(int64_t columns);

/// ONNX file of y = a + b, float32 [N, columns].
std::string SumModel(int64_t columns);

/// ONNX file of y = x as float32, where x is [N, columns] of the type that ONNX gives this number.
std::string CastModel(int onnx_type, int64_t columns);

/// ONNX file of `layers` matrix products in a row, float32 x [N, width] -> y [N, width], all with the same weights
/// (1 / width everywhere, so that y is the mean of x): many units, a duration that grows with rows and layers.
std::string ChainModel(int64_t width, int layers);

/// ONNX file of y[i][j] = x[i][0] * (j % 251), float32 x [N, 1] -> y [N, columns]: small requests, large responses.
std::string FanOutModel(int64_t columns);

/// Writes `<repository>/<name>/1/model.onnx` and, unless empty, config.pbtxt.
void AddToRepository(const std::string& repository, const std::string& name, const std::string& onnx,
                     const std::string& config = "");

}  // namespace sluice::testing
