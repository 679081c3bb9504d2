// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/execution/inspect.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/data_type.h"
#include "base/request_class.h"
#include "model/description.h"

namespace sluice::server {
namespace {

using Json = nlohmann::ordered_json;

std::string Text(absl::string_view text) { return std::string(text); }

Json ValueJson(const model::GraphDescription& graph, int32_t index) {
  if (index < 0) return nullptr;
  const model::ValueDescription& value = graph.values[static_cast<size_t>(index)];
  Json json = {{"name", value.name}};
  json["type"] = value.type == DataType::kInvalid ? Json(nullptr) : Json(Text(WireName(value.type)));
  json["dims"] = value.dims ? Json(*value.dims) : Json(nullptr);
  if (value.is_constant) json["constant"] = true;
  return json;
}

Json ValuesJson(const model::GraphDescription& graph, const std::vector<int32_t>& indices) {
  Json json = Json::array();
  for (const int32_t index : indices) json.push_back(ValueJson(graph, index));
  return json;
}

Json GraphJson(const model::GraphDescription& graph) {
  Json nodes = Json::array();
  for (const model::NodeDescription& node : graph.nodes) {
    Json json = {{"op", node.op}, {"name", node.name}};
    if (!node.fused.empty()) json["fused"] = node.fused;
    json["inputs"] = ValuesJson(graph, node.inputs);
    json["outputs"] = ValuesJson(graph, node.outputs);
    nodes.push_back(std::move(json));
  }
  return {{"node_count", graph.node_count},
          {"cut", graph.cut},
          {"inputs", ValuesJson(graph, graph.inputs)},
          {"outputs", ValuesJson(graph, graph.outputs)},
          {"nodes", std::move(nodes)}};
}

double Us(absl::Duration duration) { return absl::ToDoubleMicroseconds(duration); }

/// One sentence for people; `chosen` is the micro-batch.
std::string Why(const RowChoice& choice, const model::Plan& chosen, absl::Duration unit_limit) {
  const std::string longest = absl::StrFormat("%.1f us", Us(chosen.longest_unit()));
  const std::string limit = absl::StrFormat("%.0f us", Us(unit_limit));
  switch (choice.rule) {
    case RowRule::kLargest:
      return "the largest, since units have no say: a host device, or a model for latency requests only";
    case RowRule::kThroughput:
      return absl::StrFormat("the shortest units of those with at least %.0f %% of the best throughput: %s, limit %s",
                             100 * kKeptThroughput, longest, limit);
    case RowRule::kUnitLimit:
      return absl::StrFormat("the best of those whose units keep to %s (%s), %.1f %% of throughput given up for it",
                             limit, longest, 100 * choice.cost);
    case RowRule::kUncuttable:
      return absl::StrCat("uncuttable: no bucket's units keep to ", limit, "; here ", longest, ", most of it ",
                          chosen.longest_unit_kernel());
    case RowRule::kConfigured:
      return "parameter sluice.batch_rows";
  }
  return "";
}

/// Whether a class has slots of a plan.
bool Uses(const PreparedPlan& prepared, RequestClass request_class) {
  return prepared.slots[static_cast<size_t>(request_class)] != nullptr;
}

Json UnitsJson(const model::PlanDescription& plan, size_t most) {
  Json units = Json::array();
  for (const model::UnitDescription& unit : plan.units) {
    if (units.size() == most) break;
    // Stamps go with their neighbours: they say nothing about where a unit is.
    size_t first = unit.first_launch;
    size_t last = unit.first_launch + unit.launch_count - 1;
    if (first == 0 && first < last) ++first;
    if (last + 1 == plan.launches.size() && first < last) --last;
    units.push_back({{"first_launch", unit.first_launch},
                     {"launch_count", unit.launch_count},
                     {"first_kernel", plan.launches[first].kernel},
                     {"last_kernel", plan.launches[last].kernel},
                     {"us", Us(unit.profiled)},
                     {"predicted_us", Us(unit.predicted)},
                     {"captured", unit.captured}});
  }
  return units;
}

/// `most`: units and kernels listed, each.
Json PlanJson(const PreparedPlan& prepared, bool is_micro_batch, size_t most) {
  const model::PlanDescription plan = prepared.plan->Describe();
  const auto longest = std::max_element(plan.units.begin(), plan.units.end(), [](const auto& left, const auto& right) {
    return left.profiled < right.profiled;
  });
  const auto captured =
      std::count_if(plan.units.begin(), plan.units.end(), [](const auto& unit) { return unit.captured; });
  const auto first = plan.launches.begin() + static_cast<ptrdiff_t>(longest->first_launch);
  const auto slowest = std::max_element(first, first + static_cast<ptrdiff_t>(longest->launch_count),
                                        [](const auto& left, const auto& right) { return left.time < right.time; });
  Json classes = Json::array();
  for (const RequestClass request_class : kRequestClasses) {
    if (Uses(prepared, request_class)) classes.push_back(Text(RequestClassName(request_class)));
  }
  Json kernels = Json::array();
  for (size_t i = 0; i < std::min(most, plan.launches.size()); ++i) {
    kernels.push_back({{"name", plan.launches[i].kernel}, {"us", Us(plan.launches[i].time)}});
  }
  return {{"rows", prepared.rows},
          {"micro_batch", is_micro_batch},
          {"classes", std::move(classes)},
          {"whole_us", Us(plan.whole)},
          {"us_per_row", Us(plan.whole) / static_cast<double>(prepared.rows)},
          {"unit_count", plan.units.size()},
          {"captured_unit_count", captured},
          {"longest_unit", longest - plan.units.begin()},
          {"longest_unit_us", Us(longest->profiled)},
          {"longest_kernel", slowest->kernel},
          {"kernel_count", plan.launches.size()},
          {"cut", plan.launches.size() > most},
          {"units", UnitsJson(plan, most)},
          {"kernels", std::move(kernels)}};
}

Json BucketJson(const ModelInstance& instance, size_t bucket, size_t most) {
  const RowChoice& choice = instance.row_choice(bucket);
  const PreparedPlan& chosen = instance.micro_batch(bucket);
  Json plans = Json::array();
  for (const PreparedPlan& prepared : instance.plans(bucket)) {
    plans.push_back(PlanJson(prepared, &prepared == &chosen, most));
  }
  return {{"input_shapes", instance.served().shape_buckets[bucket]},
          {"micro_batch",
           {{"rows", chosen.rows},
            {"rule", Text(RowRuleName(choice.rule))},
            {"why", Why(choice, *chosen.plan, instance.unit_limit())},
            {"cost", choice.cost},
            {"uncuttable", choice.uncuttable}}},
          {"plans", std::move(plans)}};
}

/// Every slot there is, and what all of them take.
Json MemoryJson(const ModelInstance& instance) {
  size_t device_bytes = 0;
  size_t pinned_bytes = 0;
  Json plans = Json::array();
  for (size_t bucket = 0; bucket < instance.served().shape_buckets.size(); ++bucket) {
    for (const PreparedPlan& prepared : instance.plans(bucket)) {
      const model::PlanDescription areas = prepared.plan->Describe();
      const model::SlotMemory slot = prepared.plan->slot_memory();
      Json slots = Json::object();
      size_t count = 0;
      for (const RequestClass request_class : kRequestClasses) {
        const gpu::SlotPool* pool = prepared.slots[static_cast<size_t>(request_class)].get();
        const size_t size = pool == nullptr ? 0 : pool->size();
        slots[Text(RequestClassName(request_class))] = size;
        count += size;
      }
      device_bytes += count * slot.device_bytes;
      pinned_bytes += count * slot.pinned_bytes;
      plans.push_back({{"shape_bucket", bucket},
                       {"rows", prepared.rows},
                       {"slots", std::move(slots)},
                       {"slot_count", count},
                       {"slot_device_bytes", slot.device_bytes},
                       {"slot_pinned_bytes", slot.pinned_bytes},
                       {"input_bytes", areas.input_bytes},
                       {"output_bytes", areas.output_bytes},
                       {"activation_bytes", areas.activation_bytes},
                       {"workspace_bytes", areas.workspace_bytes},
                       {"device_bytes", count * slot.device_bytes},
                       {"pinned_bytes", count * slot.pinned_bytes}});
    }
  }
  const size_t weight_bytes = instance.weight_bytes();
  return {{"weight_bytes", weight_bytes},
          {"slot_device_bytes", device_bytes},
          {"slot_pinned_bytes", pinned_bytes},
          {"total_bytes", weight_bytes + device_bytes + pinned_bytes},
          {"plans", std::move(plans)}};
}

}  // namespace

std::string InspectModel(std::span<const InspectedInstance> instances) {
  const ModelInstance& first = *instances.front().instance;
  const ServedModel& served = first.served();
  size_t plan_count = 0;
  for (const InspectedInstance& inspected : instances) {
    for (size_t bucket = 0; bucket < served.shape_buckets.size(); ++bucket) {
      plan_count += inspected.instance->plans(bucket).size();
    }
  }
  const size_t most = kMostListedLaunches / plan_count;
  Json devices = Json::array();
  for (const InspectedInstance& inspected : instances) {
    Json buckets = Json::array();
    for (size_t bucket = 0; bucket < served.shape_buckets.size(); ++bucket) {
      buckets.push_back(BucketJson(*inspected.instance, bucket, most));
    }
    devices.push_back({{"device", inspected.device},
                       {"precision", NameOf(inspected.instance->precision())},
                       {"unit_limit_us", Us(inspected.instance->unit_limit())},
                       {"shape_buckets", std::move(buckets)},
                       {"memory", MemoryJson(*inspected.instance)}});
  }
  const Json document = {{"model", served.name},
                         {"version", served.version},
                         {"max_batch_size", served.max_batch_size},
                         {"devices", std::move(devices)},
                         {"graph",
                          {{"before", GraphJson(first.file_graph())},
                           {"after", GraphJson(first.bound_graph())},
                           {"after_rows", first.micro_batch(0).rows}}}};
  // Names are whatever the file has.
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void ReadBatchPlan(const ModelInstance& instance, const std::string& device,
                   std::vector<metrics::ReadingSample>& samples) {
  using metrics::Reading;
  const ServedModel& served = instance.served();
  const RowChoice& choice = instance.row_choice(0);
  const PreparedPlan& prepared = instance.micro_batch(0);
  const auto add = [&](Reading reading, double value) {
    samples.push_back({reading, {served.name, absl::StrCat(served.version), device}, value});
  };
  add(Reading::kBatchPlanRows, static_cast<double>(prepared.rows));
  add(Reading::kBatchPlanSeconds, absl::ToDoubleSeconds(prepared.plan->profile()));
  add(Reading::kBatchPlanUnits, static_cast<double>(prepared.plan->unit_count()));
  add(Reading::kBatchPlanLongestUnitSeconds, absl::ToDoubleSeconds(prepared.plan->longest_unit()));
  add(Reading::kBatchPlanCost, choice.cost);
  add(Reading::kBatchPlanUncuttable, choice.uncuttable ? 1 : 0);
}

}  // namespace sluice::server
