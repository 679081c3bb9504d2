// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace sluice::rpc {

/// Well-formed UTF-8 as protobuf demands of string fields: no overlong forms, no surrogates, nothing above U+10FFFF.
bool IsValidUtf8(absl::string_view text);

/// At most `limit` bytes of `text`, never ending inside a character.
absl::string_view CutUtf8(absl::string_view text, size_t limit);

/// A name that a client sent, for use in a message: in single quotes, at most 64 bytes of it, control characters and
/// invalid UTF-8 escaped.
std::string Quote(absl::string_view name);

/// Quote without the quotes.
std::string EscapeName(absl::string_view name);

/// `text` cut to `limit` bytes, with control characters and invalid UTF-8 replaced by '?'.
std::string Printable(absl::string_view text, size_t limit);

}  // namespace sluice::rpc
