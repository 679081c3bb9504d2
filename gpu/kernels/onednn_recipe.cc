// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/onednn_recipe.h"

#include <algorithm>
#include <array>
#include <span>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/host/host_kernel.h"

namespace sluice::gpu::host::onednn {
namespace {

constexpr size_t kAlignment = 64;

/// Names a layout so that equal ones share their packed weights. Empty (no sharing) for one that cannot be named.
std::string LayoutName(const Layout& layout) {
  const std::optional<Blocking> b = BlockingOf(layout);
  if (!b.has_value()) return "";
  std::string name = " onednn";
  for (size_t i = 0; i < b->dims.size(); ++i) {
    absl::StrAppend(&name, " ", b->dims[i], "/", b->padded[i], ":", b->strides[i]);
  }
  for (size_t i = 0; i < b->inner_blocks.size(); ++i) {
    absl::StrAppend(&name, " ", b->inner_blocks[i], "x", b->inner_dims[i]);
  }
  return name;
}

}  // namespace

absl::Status ToStatus(const char* what, const dnnl::error& error) {
  const std::string message = absl::StrCat("oneDNN ", what, ": ", error.what());
  if (error.status == dnnl_unimplemented) return absl::UnimplementedError(message);
  if (error.status == dnnl_out_of_memory) return absl::ResourceExhaustedError(message);
  return absl::InternalError(message);
}

Layout RowMajor(const dnnl::memory::dims& dims) {
  dnnl::memory::dims strides(dims.size());
  dnnl::memory::dim stride = 1;
  for (size_t i = dims.size(); i-- > 0; stride *= dims[i]) strides[i] = stride;
  return Layout(dims, kFloat, strides);
}

Layout Images(const dnnl::memory::dims& dims, bool channels_last) {
  if (!channels_last) return RowMajor(dims);
  dnnl::memory::dims strides(dims.size());
  dnnl::memory::dim stride = dims[1];
  strides[1] = 1;
  for (size_t i = dims.size(); i-- > 2; stride *= dims[i]) strides[i] = stride;
  strides[0] = stride;
  return Layout(dims, kFloat, strides);
}

Place Recipe::Reserve(size_t size_bytes) {
  const size_t offset = workspace_bytes_;
  workspace_bytes_ += (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
  return {Place::Kind::kWorkspace, offset, nullptr};
}

void Recipe::Add(const dnnl::primitive& primitive, const Layout& scratchpad, std::vector<Argument> arguments) {
  if (scratchpad.get_size() > 0) {
    arguments.push_back({DNNL_ARG_SCRATCHPAD, scratchpad, Reserve(scratchpad.get_size())});
  }
  steps_.push_back({primitive, std::move(arguments)});
}

void Recipe::AddReorder(const Layout& from, Place source, const Layout& to, Place destination) {
  const dnnl::reorder::primitive_desc description(engine_, from, engine_, to, AttributesOf({}));
  Add(dnnl::reorder(description), description.scratchpad_desc(),
      {{DNNL_ARG_FROM, from, source}, {DNNL_ARG_TO, to, destination}});
}

absl::StatusOr<Place> Recipe::Constant(PackedWeights* pool, const sluice::gpu::Constant& constant, const Layout& given,
                                       const Layout& layout) {
  if (layout == given) {  // the file's bytes as they are
    SLUICE_ASSIGN_OR_RETURN(HostConstant plain, HostConstant::MakePlain(pool, constant));
    return Keep(std::move(plain));
  }
  // Both layouts: a square matrix given as it is and transposed packs to different bytes of one layout.
  std::string name = LayoutName(layout);
  if (!name.empty()) absl::StrAppend(&name, " from", LayoutName(given));
  const auto pack = [&](std::span<std::byte> destination) -> absl::Status {
    // Alone: a team would stay with this loading thread, and once libgomp has more threads than there are CPUs, all
    // its teams go to sleep between two loops instead of waiting awake. MobileNetV2 then takes 9.1 ms instead of 4.7.
    const TeamSize alone(1);
    try {
      dnnl::memory source(given, engine_, const_cast<std::byte*>(constant.data.data()));
      dnnl::memory packed(layout, engine_, destination.data());
      dnnl::stream stream(engine_);
      dnnl::reorder(source, packed).execute(stream, source, packed);
      stream.wait();
    } catch (const dnnl::error& error) {
      return ToStatus("reorder of weights", error);
    }
    return absl::OkStatus();
  };
  SLUICE_ASSIGN_OR_RETURN(HostConstant packed, HostConstant::Make(name.empty() ? nullptr : pool, constant.name, name,
                                                                  layout.get_size(), pack));
  return Keep(std::move(packed));
}

Place Recipe::Keep(HostConstant constant) {
  constants_.push_back(std::move(constant));
  return Place::At(constants_.back());
}

class OneDnnKernel final : public HostKernel {
 public:
  OneDnnKernel(std::string name, Recipe recipe)
      : HostKernel(std::move(name), recipe.workspace_bytes_), recipe_(std::move(recipe)) {}

  absl::Status Run(const KernelArgs& args) const override {
    for (const Step& step : recipe_.steps_) {
      if (const dnnl_status_t status = RunStep(step, args); status != dnnl_success) {
        return absl::InternalError(absl::StrCat("oneDNN refused a launch of ", name(), ": status ", status));
      }
    }
    return absl::OkStatus();
  }

 private:
  static constexpr size_t kMaxArguments = 8;

  // The C interface: the C++ one would build a hash map for every launch.
  dnnl_status_t RunStep(const Step& step, const KernelArgs& args) const {
    std::array<dnnl_exec_arg_t, kMaxArguments> bound;
    size_t count = 0;
    dnnl_status_t status = dnnl_success;
    for (const Argument& argument : step.arguments) {
      dnnl_memory_t memory = nullptr;
      status =
          dnnl_memory_create(&memory, HandleOf(argument.layout), recipe_.engine_.get(), argument.place.Resolve(args));
      if (status != dnnl_success) break;
      bound[count++] = {argument.role, memory};
    }
    if (status == dnnl_success) {
      status =
          dnnl_primitive_execute(step.primitive.get(), recipe_.stream_.get(), static_cast<int>(count), bound.data());
    }
    if (status == dnnl_success) status = dnnl_stream_wait(recipe_.stream_.get());
    for (size_t i = 0; i < count; ++i) dnnl_memory_destroy(bound[i].memory);
    return status;
  }

  const Recipe recipe_;
};

std::unique_ptr<Kernel> Recipe::Finish(std::string name) && {
  return std::make_unique<OneDnnKernel>(std::move(name), std::move(*this));
}

absl::Status RefuseReference(const char* implementation) {
  if (!absl::StartsWith(implementation, "ref") && !absl::StartsWith(implementation, "simple")) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("oneDNN has nothing faster than its '", implementation, "'"));
}

void AppendActivation(Activation activation, float low, float high, dnnl::post_ops& after) {
  switch (activation) {
    case Activation::kNone:
      return;
    case Activation::kRelu:
      return AppendEltwise(after, dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
    case Activation::kClip:
      return AppendEltwise(after, dnnl::algorithm::eltwise_clip, low, high);
    case Activation::kSwish:
      return AppendEltwise(after, dnnl::algorithm::eltwise_swish, 1.0f, 0.0f);
    case Activation::kGelu:
      return AppendEltwise(after, dnnl::algorithm::eltwise_gelu_erf, 0.0f, 0.0f);
  }
}

dnnl::primitive_attr AttributesOf(const dnnl::post_ops& after) {
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(after);
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

dnnl::memory::dims Joined(const dnnl::memory::dims& front, const Dims& back) {
  dnnl::memory::dims result = front;
  result.insert(result.end(), back.begin(), back.end());
  return result;
}

Dims MinusOne(Dims dilations) {
  for (int64_t& dilation : dilations) --dilation;
  return dilations;
}

}  // namespace sluice::gpu::host::onednn
