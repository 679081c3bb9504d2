// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/data_type.h"
#include "base/request_class.h"

namespace sluice::client {

/// A named tensor with its bytes: row-major, little-endian; BYTES elements carry a 4-byte little-endian length each.
struct Tensor {
  std::string name;
  DataType type = DataType::kInvalid;
  std::vector<int64_t> shape;
  std::string bytes;
};

/// A tensor whose bytes stay where they are, laid out as Tensor's. `owner` keeps them alive and unchanged for as long
/// as anything refers to them; without one they must outlive the client.
struct TensorView {
  std::string name;
  DataType type = DataType::kInvalid;
  std::vector<int64_t> shape;
  absl::string_view bytes;
  std::shared_ptr<const void> owner = nullptr;
};

/// Options of one inference. The defaults ask for nothing: the server chooses the class and returns every output.
struct InferOptions {
  std::optional<RequestClass> request_class;  ///< Sent as metadata `sluice-class`; none lets the server decide.
  std::optional<absl::Duration> deadline;     ///< From now to the end of the call; none is the client's default.
  std::optional<absl::Duration> timeout;      ///< Longest time in the server's queue (parameter `timeout`).
  uint64_t priority = 0;                      ///< 0 is the model's default, 1 the highest (parameter `priority`).
  std::string id;                             ///< Echoed in the reply.
  std::string model_version;                  ///< Empty is the newest ready version.
  std::vector<std::string> outputs;           ///< Names of the outputs wanted; empty is all.
  bool timings = false;                       ///< Ask for the stage times of this request.
  /// Sends the request once more, on the next channel, when it has no answer after so long; the first success counts
  /// and the other is cancelled. For request_class latency only, since it costs the server up to twice the work.
  std::optional<absl::Duration> hedge_after;
};

/// Where the server spent the time of one request.
struct StageTimings {
  absl::Duration queue, copy_in, h2d, gpu_wait, compute, d2h;
  absl::Duration total;  ///< From the complete message to the built response; zero when the server does not say.
};

struct InferReply {
  std::string model_name;
  std::string model_version;
  std::string id;
  std::vector<Tensor> outputs;
  std::optional<RequestClass> effective_class;  ///< The class the server used, when it says so.
  std::optional<StageTimings> timings;          ///< Present when asked for and answered.
};

struct TensorInfo {
  std::string name;
  DataType type = DataType::kInvalid;
  std::vector<int64_t> shape;  ///< -1 is a free dimension; a leading -1 is the batch.
};

struct ServerInfo {
  std::string name;
  std::string version;
  std::vector<std::string> extensions;
};

struct ModelInfo {
  std::string name;
  std::vector<std::string> versions;
  std::string platform;
  std::vector<TensorInfo> inputs;
  std::vector<TensorInfo> outputs;
};

/// A counter of events and the time they took together.
struct StageCount {
  uint64_t count = 0;
  absl::Duration total;
  absl::Duration mean() const { return count == 0 ? absl::ZeroDuration() : total / static_cast<int64_t>(count); }
};

/// Counters of one version of one model since it was loaded.
struct ModelCounters {
  std::string name;
  std::string version;
  uint64_t inference_count = 0;  ///< Rows.
  uint64_t execution_count = 0;  ///< Batches.
  StageCount success, fail, queue, compute_input, compute_infer, compute_output;
};

/// One version of a model of the server's repository, or a model of which no version is known.
struct ModelIndexEntry {
  std::string name;
  std::string version;
  std::string state;   ///< READY, LOADING, UNLOADING or UNAVAILABLE; empty: nobody asked for it.
  std::string reason;  ///< Why it is unavailable.
};

enum class HealthState { kUnknown, kServing, kNotServing, kServiceUnknown };

}  // namespace sluice::client
