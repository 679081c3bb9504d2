// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

/// Returns from the enclosing function when `expression` is not OK. Debian's abseil has no such macro.
#define SLUICE_RETURN_IF_ERROR(expression)                                                         \
  do {                                                                                             \
    if (::absl::Status sluice_status_ = (expression); !sluice_status_.ok()) return sluice_status_; \
  } while (false)

#define SLUICE_STATUS_CONCAT_INNER_(a, b) a##b
#define SLUICE_STATUS_CONCAT_(a, b) SLUICE_STATUS_CONCAT_INNER_(a, b)
#define SLUICE_ASSIGN_OR_RETURN_IMPL_(variable, declaration, expression) \
  auto variable = (expression);                                          \
  if (!variable.ok()) return std::move(variable).status();               \
  declaration = *std::move(variable)

/// `SLUICE_ASSIGN_OR_RETURN(auto x, F());` binds x to F()'s value or returns F()'s error.
#define SLUICE_ASSIGN_OR_RETURN(declaration, expression) \
  SLUICE_ASSIGN_OR_RETURN_IMPL_(SLUICE_STATUS_CONCAT_(sluice_status_or_, __LINE__), declaration, expression)
