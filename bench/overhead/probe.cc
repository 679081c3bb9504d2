// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/overhead/probe.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "client/client.h"
#include "client/convert.h"

namespace sluice::bench {

absl::StatusOr<client::EncodedRequest> MakeProbe(const std::string& address, const std::string& model) {
  client::ClientOptions connection;
  connection.address = address;
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<client::Client> client, client::Client::Connect(connection));
  SLUICE_ASSIGN_OR_RETURN(const client::ModelInfo info, client->ModelMetadata(model));
  std::vector<client::Tensor> tensors;
  for (const client::TensorInfo& input : info.inputs) {
    client::Tensor tensor{input.name, input.type, input.shape, ""};
    for (int64_t& dimension : tensor.shape) dimension = dimension < 0 ? 1 : dimension;
    SLUICE_ASSIGN_OR_RETURN(const int64_t count, client::ElementCount(tensor.shape));
    tensor.bytes.assign(static_cast<size_t>(count) * ElementBytes(input.type), '\0');
    tensors.push_back(std::move(tensor));
  }
  client::InferOptions options;
  options.timings = true;
  return client::EncodedRequest::Encode(model, std::move(tensors), options);
}

double Quantile(std::vector<double> samples, double quantile) {
  const auto count = static_cast<double>(samples.size());
  const auto rank = static_cast<size_t>(std::max(1.0, std::ceil(quantile * count - 1e-9)));
  std::nth_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(rank - 1), samples.end());
  return samples[rank - 1];
}

double CopyMicroseconds(size_t bytes) {
  // Larger than the nearer caches together, so that each copy finds its memory as a message's would be.
  constexpr size_t kApart = size_t{64} << 20;
  constexpr int kCopies = 400;
  const size_t count = std::max<size_t>(2, kApart / bytes);
  std::vector<char> from(count * bytes, 1);
  std::vector<char> to(count * bytes, 0);
  const MonotonicClock clock;
  std::vector<double> samples;
  for (size_t i = 0; i < kCopies; ++i) {
    const size_t at = i % count * bytes;
    const Time begin = clock.Now();
    std::memcpy(to.data() + at, from.data() + at, bytes);
    samples.push_back(absl::ToDoubleMicroseconds(clock.Now() - begin));
  }
  return Quantile(std::move(samples), 0.5);
}

}  // namespace sluice::bench
