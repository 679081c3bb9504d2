# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
# Protobuf by module, the rest by its own config: that is what Debian 12 packages support.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(Protobuf)
find_dependency(gRPC CONFIG)
find_dependency(absl CONFIG)
include("${CMAKE_CURRENT_LIST_DIR}/SluiceTargets.cmake")
