// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <utility>

namespace sluice {

/// An integer that names one kind of thing: ids of different tags do not compare or convert. Default is 0.
template <class Tag>
class StrongId {
 public:
  constexpr StrongId() = default;
  explicit constexpr StrongId(uint64_t value) : value_(value) {}
  constexpr uint64_t value() const { return value_; }
  friend constexpr auto operator<=>(StrongId, StrongId) = default;
  template <class H>
  friend H AbslHashValue(H state, StrongId id) {
    return H::combine(std::move(state), id.value_);
  }

 private:
  uint64_t value_ = 0;
};

}  // namespace sluice
