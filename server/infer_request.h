// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/request_class.h"
#include "server/repository_control.h"
#include "server/response_pool.h"
#include "server/served_model.h"
#include "server/shared_memory.h"

namespace inference {
class ModelStatisticsResponse;
}

namespace sluice::server {

using Bytes = std::span<const std::byte>;

/// Type URL under which an error carries after how many milliseconds a client may retry, as decimal text (negative:
/// never). rpc turns it into trailing metadata.
inline constexpr absl::string_view kRetryPushbackUrl = "sluice/retry-pushback-ms";

/// The bytes of one input tensor where the message left them: one or more pieces, in order, that stay valid as long as
/// the request; or in shared memory. Row-major, little-endian, checked to have exactly the size of `shape`.
struct RequestInput {
  std::vector<int64_t> shape;  ///< With the batch dimension.
  std::vector<Bytes> pieces;
  SharedMemorySlice region = {};  ///< Instead of `pieces`. The client may change or shrink it at any time.
};

/// One output's bytes, which belong to the response from here on: in memory of the response pool, or, up to
/// ResponsePool::kSmallBytes, in ordinary memory.
struct ResponseOutput {
  size_t output_index = 0;  ///< Into ServedModel::outputs.
  std::vector<int64_t> shape;
  std::string bytes;  ///< Empty when `pooled` is not, and when the output went to shared memory.
  ResponseBuffer pooled = {};
};

/// Where the time of one request went; all from the monotonic and the device's clocks, never negative.
struct RequestTimings {
  absl::Duration queue, copy_in, h2d, gpu_wait, compute, d2h;
};

struct InferResult {
  std::vector<ResponseOutput> outputs;
  RequestTimings timings;
};

/// One inference request from acceptance to its answer. Purpose: owns everything the request needs; moves by unique_ptr
/// from rpc through the queue to a request thread. Exactly one answer: Finish wins once, from any thread; later calls
/// return false and do nothing. Destroying an unanswered request answers INTERNAL.
/// Threads: built by one I/O thread; then read-only except Finish and the flags, and the class and the model's handle,
/// which the backend may change while it is submitted.
class InferRequest {
 public:
  virtual ~InferRequest() = default;

  /// Answers with a result or an error. Returns false when it was already answered (deadline, cancel). Never blocks.
  virtual bool Finish(absl::StatusOr<InferResult> result) = 0;

  RequestId id;             ///< Given by the backend when the request is submitted.
  size_t device_index = 0;  ///< Chosen by the backend when the request is submitted.
  /// As found; once submitted, what it says of the model without what runs it.
  std::shared_ptr<const ServedModel> model;
  RequestClass request_class = RequestClass::kStandard;
  Time arrival;                            ///< The whole message was there.
  Time deadline = Time::Infinite();        ///< gRPC deadline: runs to the end.
  Time queue_deadline = Time::Infinite();  ///< `timeout` parameter or queue policy: runs until execution starts.
  int64_t rows = 1;                        ///< Batch dimension; 1 when the model has none.
  size_t bytes = 0;                        ///< Of all inputs.
  size_t shape_bucket = 0;                 ///< Into ServedModel::shape_buckets.
  std::vector<RequestInput> inputs;        ///< In the order of ServedModel::inputs.
  std::vector<size_t> requested_outputs;   ///< Into ServedModel::outputs, in the order asked for.
  /// Where those outputs go; one each, or none at all. Without a region: into the response.
  std::vector<SharedMemorySlice> output_regions;

  /// Of requested_outputs[index]; null when it goes into the response.
  const SharedMemorySlice* OutputRegion(size_t index) const {
    return !output_regions.empty() && output_regions[index] ? &output_regions[index] : nullptr;
  }

  /// Set when the answer no longer matters (cancelled, expired); execution looks at it between units.
  std::atomic<bool> stopped = false;
};

/// What rpc needs from the server behind it. All methods: any I/O thread, never block on a device, bounded time.
class InferenceBackend : public RepositoryControl {
 public:
  virtual bool live() const = 0;
  /// Every model that should be ready is ready, and the server is not draining and no device is lost.
  virtual bool ready() const = 0;
  /// The version asked for, or the newest ready one when `version` is empty; it answers what is submitted with it even
  /// if it is unloaded meanwhile, so holders of more than one request's time keep its memory. NOT_FOUND "unknown
  /// model"; UNAVAILABLE when known but not ready; INVALID_ARGUMENT for a version that is not a number.
  virtual absl::StatusOr<std::shared_ptr<const ServedModel>> FindModel(const std::string& name,
                                                                       const std::string& version) const = 0;
  /// Ready versions of a known model, ascending. NOT_FOUND otherwise.
  virtual absl::StatusOr<std::vector<int64_t>> ReadyVersions(const std::string& name) const = 0;
  /// All models ever configured, for statistics with an empty name.
  virtual std::vector<std::shared_ptr<const ServedModel>> ReadyModels() const = 0;
  /// The regions that clients have registered; null when shared memory is not served.
  virtual SharedMemoryRegions* shared_memory() const { return nullptr; }
  /// Takes the request; it will be finished exactly once, possibly before this returns.
  virtual void Submit(std::shared_ptr<InferRequest> request) = 0;
  /// The client went away; finishes the request with CANCELLED if nothing else did.
  virtual void Cancel(const std::shared_ptr<InferRequest>& request) = 0;
  /// Appends the statistics of one model version; empty version: all of its versions, empty name: all models. NOT_FOUND
  /// and INVALID_ARGUMENT as FindModel.
  virtual absl::Status FillStatistics(const std::string& name, const std::string& version,
                                      inference::ModelStatisticsResponse& response) const = 0;
};

}  // namespace sluice::server
