// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/log.h"

namespace sluice {

/// Whether Log writes lines of this severity; every one is on at the start. For the whole process. Any thread.
bool IsLogged(Severity severity);
void SetLogged(Severity severity, bool on);

}  // namespace sluice
