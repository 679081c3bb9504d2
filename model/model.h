// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/data_type.h"
#include "base/request_class.h"
#include "gpu/device.h"
#include "gpu/slot.h"
#include "model/precision.h"

namespace sluice::model {

using Shape = std::vector<int64_t>;

/// One input or output as the file declares it; -1 stands for a dimension left open.
struct TensorSignature {
  std::string name;
  DataType type = DataType::kInvalid;
  Shape dims;
};

struct Signature {
  std::vector<TensorSignature> inputs;  ///< Graph inputs without an initializer, in file order.
  std::vector<TensorSignature> outputs;
};

/// One full set of input shapes, in the order of Signature::inputs, all dimensions positive.
struct Bucket {
  std::vector<Shape> input_shapes;
  friend bool operator==(const Bucket&, const Bucket&) = default;
};

class Graph;              // model/graph.h: what the file says, typed
class ConstantPool;       // weights of one model on one device, shared by its plans
struct GraphDescription;  // model/description.h: for people, as is the next
struct PlanDescription;

/// How plans are computed, cut and fed: a model's precision, and the server's flags.
struct PlanOptions {
  /// On a device whose KernelFeatures lack it plans are FP32: more exact than was asked for. DeviceModel says which.
  Precision precision = Precision::kFp32;
  /// Kernels are put together until a unit is predicted to take this long. On the host a unit is one kernel.
  absl::Duration unit_target = absl::Microseconds(20);
  /// Inputs (outputs) of a latency execution up to this size move by kernel; larger ones by copy engine, which is
  /// faster alone then and waits behind every batch copy. See gpu::TransferTuning.
  size_t max_transfer_bytes = size_t{2} << 20;
  /// How the events of each class's slots are waited for (gpu::PrepareSlot).
  std::array<gpu::WaitMode, kRequestClassCount> waits = {gpu::WaitMode::kBlock, gpu::WaitMode::kBlock,
                                                         gpu::WaitMode::kBlock};
};

/// What one slot allocates, in bytes.
struct SlotMemory {
  size_t device_bytes = 0;
  size_t pinned_bytes = 0;
};

/// A bucket prepared for one device: kernels, memory layout, units. Immutable once built (predicted unit times aside),
/// so slots may be made and used by any thread. Must outlive its slots.
class Plan {
 public:
  virtual ~Plan() = default;
  virtual const Bucket& bucket() const = 0;
  virtual const std::vector<Shape>& output_shapes() const = 0;
  virtual size_t unit_count() const = 0;
  /// The longest unit's predicted time, and the name of its longest kernel.
  virtual absl::Duration longest_unit() const = 0;
  virtual std::string longest_unit_kernel() const = 0;
  /// Sum of the units' predicted times, as corrected by what was measured.
  virtual absl::Duration predicted_compute() const = 0;
  /// Time of all kernels in a row with nothing else on the device, measured when the plan was built.
  virtual absl::Duration profile() const = 0;
  /// Device bytes one slot takes, weights left out.
  virtual size_t slot_bytes() const = 0;
  /// Exactly what MakeSlot takes from the device's two budgets; with unified memory inputs and outputs are pinned only.
  virtual SlotMemory slot_memory() const = 0;
  /// Allocates a slot, binds every launch and creates its events; `request_class` decides whether the plan is captured
  /// as one graph (latency) or gets an event per unit. Load time only. RESOURCE_EXHAUSTED when memory is out; nothing
  /// is left behind on failure.
  virtual absl::StatusOr<std::unique_ptr<gpu::Slot>> MakeSlot(RequestClass request_class) = 0;
  /// Kernels and units with their times. Allocates; any thread.
  virtual PlanDescription Describe() const = 0;
  /// Hands over what the graph was when the passes were through with it, at most kMostGraphBytes; empty from the second
  /// call on. Load time only.
  virtual GraphDescription TakeGraph() = 0;
};

/// A model's weights on one device, and the plans built from them. Not thread-safe while plans are being built.
class DeviceModel {
 public:
  virtual ~DeviceModel() = default;
  /// Binds the bucket's shapes, folds, fuses, plans memory, prepares kernels. FAILED_PRECONDITION or UNIMPLEMENTED
  /// naming node, operator and reason when a static plan cannot do it; INVALID_ARGUMENT when the bucket does not fit
  /// the signature. The plan is owned by the caller and must not outlive this object.
  virtual absl::StatusOr<std::unique_ptr<Plan>> BuildPlan(const Bucket& bucket) = 0;
  /// What its plans compute in.
  virtual Precision precision() const = 0;
  /// What its plans have taken for weights so far, in all layouts.
  virtual size_t weight_bytes() const = 0;
  /// The file's own constants, before any plan has said which layouts it wants: what weights will take at least, give
  /// or take what folds away.
  virtual size_t constant_bytes() const = 0;
};

/// A parsed and checked ONNX file; no device yet. Immutable: any thread may use it.
class Model {
 public:
  virtual ~Model() = default;
  virtual const Signature& signature() const = 0;
  virtual int64_t opset() const = 0;
  /// The file's graph before any pass, at most kMostGraphBytes.
  virtual GraphDescription Describe() const = 0;
  /// `host` evaluates constant subgraphs (it may be the same device). Both devices must outlive the result, and so must
  /// this model.
  virtual absl::StatusOr<std::unique_ptr<DeviceModel>> Instantiate(gpu::Device& device, gpu::Device& host,
                                                                   const PlanOptions& options = {}) const = 0;
};

/// Reads and checks `path` (external data beside it). INVALID_ARGUMENT with the byte offset or field for a file that is
/// not well-formed ONNX; UNIMPLEMENTED naming node, operator and reason for what Sluice does not run; NOT_FOUND.
absl::StatusOr<std::unique_ptr<Model>> LoadOnnxModel(const std::string& path);

/// Bytes by path, in place of files on disk.
using FilesInMemory = std::map<std::string, std::string>;

/// The same for the file `path` of `files`, which has a folder, as in "1/model.onnx"; external data is looked for among
/// them too and never on disk. The model shares them: its constants point into them.
absl::StatusOr<std::unique_ptr<Model>> LoadOnnxModel(std::shared_ptr<const FilesInMemory> files,
                                                     const std::string& path);

}  // namespace sluice::model
