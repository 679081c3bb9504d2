// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <thread>

#include "absl/functional/any_invocable.h"
#include "absl/strings/string_view.h"

namespace sluice {

/// A named thread that is joined when it is destroyed: there are no detached threads. Names are cut to 15 bytes, the
/// kernel's limit. `nice_increment` (0 to 19) lowers the thread's scheduling weight; a refusal is logged, not fatal.
class Thread {
 public:
  Thread() = default;
  Thread(absl::string_view name, absl::AnyInvocable<void()> body, int nice_increment = 0);
  Thread(Thread&&) = default;
  Thread& operator=(Thread&& other);
  ~Thread();

  void Join();
  bool joinable() const { return thread_.joinable(); }

 private:
  std::thread thread_;
};

}  // namespace sluice
