// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// The host device with two compute threads (teams of one): kernels of different streams really run at once.
#include "gpu/host/host_device.h"
#include "gpu/kernels/host_library.h"
#include "tests/conformance/device_suite.h"

namespace sluice::gpu::conformance {

BackendUnderTest MakeBackend(const std::string&) {
  HostDeviceOptions options;
  options.compute_thread_count = 2;
  const std::string reason =
      "of two kernels that run at once, the machine may hold up the one that began first: their stamps prove no order";
  return {.name = "host with two compute threads",
          .create =
              [options](const Clock& clock) { return CreateHostDevice(options, clock, MakeHostKernelLibrary(clock)); },
          .unsupported = {{"StreamSuite.WaitingStreamHoldsUpNoOther", reason},
                          {"StreamSuite.HighPriorityOvertakes", reason},
                          {"GraphSuite.TakesPriorityOfItsLaunchStream", reason},
                          {"EventSuite.WaitTakesTheRecordOfItsCall", reason}},
          .stamp_tolerance = absl::ZeroDuration()};
}

}  // namespace sluice::gpu::conformance
