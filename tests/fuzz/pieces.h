// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sluice::testing {

/// Ends the process, which libFuzzer counts as a finding.
inline void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "finding: %s\n", what);
  std::abort();
}

/// An input of a fuzzer: a number n, n lengths, and the message, cut into pieces of these lengths and a rest. Each
/// piece has memory of exactly its size, so that AddressSanitizer sees a read past it.
class Pieces {
 public:
  explicit Pieces(std::span<const uint8_t> input) {
    const size_t cuts = input.empty() ? 0 : std::min<size_t>(input[0] % 16, input.size() - 1);
    const std::span<const uint8_t> lengths = input.subspan(input.empty() ? 0 : 1, cuts);
    std::span<const uint8_t> rest = input.subspan(input.empty() ? 0 : 1 + cuts);
    message_.assign(reinterpret_cast<const char*>(rest.data()), rest.size());
    for (const uint8_t length : lengths) rest = Cut(rest, length);
    Cut(rest, rest.size());
  }
  const std::string& message() const { return message_; }
  std::span<const std::span<const std::byte>> spans() const { return spans_; }

 private:
  std::span<const uint8_t> Cut(std::span<const uint8_t> rest, size_t length) {
    length = std::min(length, rest.size());
    storage_.push_back(std::make_unique<std::byte[]>(length));
    if (length > 0) std::memcpy(storage_.back().get(), rest.data(), length);
    spans_.emplace_back(storage_.back().get(), length);
    return rest.subspan(length);
  }

  std::string message_;
  std::vector<std::unique_ptr<std::byte[]>> storage_;
  std::vector<std::span<const std::byte>> spans_;
};

}  // namespace sluice::testing
