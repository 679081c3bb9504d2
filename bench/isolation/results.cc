// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/isolation/results.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kBootstrapDraws = 1000;
constexpr uint64_t kBootstrapSeed = 1;
/// A quantile of 0.999 of fewer samples than this is made of less than ten of them.
constexpr size_t kLeastForR999 = 10'000;

/// A tenth of a microsecond is what clocks are good for; files stay small.
Json Rounded(const Numbers& numbers) {
  Json array = Json::array();
  for (const double number : numbers) array.push_back(std::round(number * 10) / 10);
  return array;
}

Json ToJson(const PhaseNumbers& phase) {
  return {{"server", Rounded(phase.server)},
          {"wait", Rounded(phase.wait)},
          {"h2d", Rounded(phase.h2d)},
          {"device", Rounded(phase.device)}};
}

PhaseNumbers ReadPhase(const Json& json) {
  return {.server = json.at("server"), .wait = json.at("wait"), .h2d = json.at("h2d"), .device = json.at("device")};
}

Json ToJson(const RungRound& round) {
  Json json = {{"number", round.number},
               {"alone", ToJson(round.alone)},
               {"again", ToJson(round.again)},
               {"mixed", ToJson(round.mixed)},
               {"batch_alone_rows_s", round.batch_alone},
               {"batch_rows_s", round.batch_mixed}};
  if (round.gpu.has_value()) {
    json["gpu"] = {{"mean_mhz", round.gpu->mean_mhz},
                   {"least_mhz", round.gpu->least_mhz},
                   {"mean_watts", round.gpu->mean_watts},
                   {"most_celsius", round.gpu->most_celsius},
                   {"capped", round.gpu->capped}};
  }
  return json;
}

RungRound ReadRound(const Json& json) {
  RungRound round{.number = json.at("number"),
                  .alone = ReadPhase(json.at("alone")),
                  .again = ReadPhase(json.at("again")),
                  .mixed = ReadPhase(json.at("mixed")),
                  .batch_alone = json.at("batch_alone_rows_s"),
                  .batch_mixed = json.at("batch_rows_s"),
                  .gpu = {}};
  if (const auto gpu = json.find("gpu"); gpu != json.end()) {
    round.gpu = GpuState{.mean_mhz = gpu->at("mean_mhz"),
                         .least_mhz = gpu->at("least_mhz"),
                         .mean_watts = gpu->at("mean_watts"),
                         .most_celsius = gpu->at("most_celsius"),
                         .capped = gpu->at("capped")};
  }
  return round;
}

struct Estimate {
  double value = 0;
  std::pair<double, double> interval;
};

Estimate QuantileRatio(const std::vector<RoundPair>& rounds, double quantile) {
  return {PooledRatio(rounds, quantile), BootstrapInterval(rounds, quantile, kBootstrapDraws, kBootstrapSeed)};
}

}  // namespace

void PhaseNumbers::Add(const std::vector<Sample>& samples) {
  for (const Sample& sample : samples) {
    server.push_back(absl::ToDoubleMicroseconds(sample.server()));
    wait.push_back(absl::ToDoubleMicroseconds(sample.timings.gpu_wait));
    h2d.push_back(absl::ToDoubleMicroseconds(sample.timings.h2d));
    device.push_back(absl::ToDoubleMicroseconds(sample.device()));
  }
}

void PhaseNumbers::Add(const PhaseNumbers& other) {
  const auto append = [](Numbers& to, const Numbers& from) { to.insert(to.end(), from.begin(), from.end()); };
  append(server, other.server);
  append(wait, other.wait);
  append(h2d, other.h2d);
  append(device, other.device);
}

/// Of one row: a rung, or A/A.
struct CellResults::Summary {
  std::string name;
  size_t count = 0;
  PhaseNumbers alone, beside;
  Estimate r99;
  double r50 = 0;
  double r999 = 0;  ///< 0: too few samples.
  double share = 0;
  std::optional<double> kept;  ///< T.
  std::optional<Estimate> w;
  GpuState gpu;
  bool has_gpu = false;

  double AddedWait() const { return Quantile(beside.wait, 0.99) - Quantile(alone.wait, 0.99); }
  Json Row() const;
};

absl::Status CellResults::Continue(const Json& stored) {
  try {  // The JSON library reports by throwing.
    rate_ = stored.at("rate");
    for (const Json& rung : stored.at("rungs")) {
      std::vector<RungRound>& rounds = rounds_[rung.at("rung")];
      for (const Json& round : rung.at("rounds")) rounds.push_back(ReadRound(round));
    }
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("results of cell '", spec_.Key(), "': ", error.what()));
  }
  return absl::OkStatus();
}

int CellResults::last_round() const {
  int last = 0;
  for (const auto& [name, rounds] : rounds_) {
    for (const RungRound& round : rounds) last = std::max(last, round.number);
  }
  return last;
}

/// Of the rung in which batch work alone is the fastest: what all rungs are compared with.
const std::vector<RungRound>* CellResults::BatchAloneRounds() const {
  const std::vector<RungRound>* best = nullptr;
  double most = 0;
  for (const auto& [name, rounds] : rounds_) {
    Numbers rates;
    for (const RungRound& round : rounds) {
      if (round.batch_alone > 0) rates.push_back(round.batch_alone);
    }
    if (rates.empty() || Median(rates) <= most) continue;
    most = Median(rates);
    best = &rounds;
  }
  return best;
}

CellResults::Summary CellResults::Summarise(const std::string& name, const std::vector<RungRound>& rounds) const {
  const bool is_again = name.empty();  // The product's rounds, alone against alone.
  Summary summary;
  summary.name = is_again ? "A/A" : name;
  std::vector<RoundPair> pairs;
  for (const RungRound& round : rounds) {
    PhaseNumbers alone = round.alone;
    if (!is_again) alone.Add(round.again);
    const PhaseNumbers& beside = is_again ? round.again : round.mixed;
    pairs.push_back({beside.server, alone.server});
    summary.alone.Add(alone);
    summary.beside.Add(beside);
    if (is_again || !round.gpu.has_value()) continue;
    summary.gpu.least_mhz =
        summary.has_gpu ? std::min(summary.gpu.least_mhz, round.gpu->least_mhz) : round.gpu->least_mhz;
    summary.has_gpu = true;
    summary.gpu.mean_watts += round.gpu->mean_watts / static_cast<double>(rounds.size());
    summary.gpu.most_celsius = std::max(summary.gpu.most_celsius, round.gpu->most_celsius);
  }
  summary.count = summary.beside.server.size();
  summary.r99 = QuantileRatio(pairs, 0.99);
  summary.r50 = PooledRatio(pairs, 0.5);
  if (std::min(summary.count, summary.alone.server.size()) >= kLeastForR999) summary.r999 = PooledRatio(pairs, 0.999);
  summary.share = Mean(summary.alone.device) * 1e-6 * rate_;
  const std::vector<RungRound>* const reference = BatchAloneRounds();
  if (is_again || reference == nullptr) return summary;
  // Round by round, so that both saw the same machine.
  Numbers mixed, alone;
  for (const RungRound& round : rounds) {
    const auto same = std::find_if(reference->begin(), reference->end(), [&](const RungRound& other) {
      return other.number == round.number && other.batch_alone > 0;
    });
    if (same == reference->end()) continue;
    mixed.push_back(round.batch_mixed);
    alone.push_back(same->batch_alone);
  }
  const auto [low, high] = BootstrapMeans(mixed, alone, kBootstrapDraws, kBootstrapSeed);
  const double left = 1 - summary.share;
  summary.kept = Ratio(Mean(mixed), Mean(alone));
  summary.w = Estimate{Ratio(*summary.kept, left), {Ratio(low, left), Ratio(high, left)}};
  return summary;
}

Json CellResults::Summary::Row() const {
  Json row = {{"rung", name},
              {"n", count},
              {"p50 us", Quantile(beside.server, 0.5)},
              {"p99", Quantile(beside.server, 0.99)},
              {"max", Quantile(beside.server, 1)},
              {"R50", r50},
              {"R99", r99.value},
              {"R99 from", r99.interval.first},
              {"R99 to", r99.interval.second},
              {"R999", r999 > 0 ? Json(r999) : Json(nullptr)},
              {"wait p99", Quantile(beside.wait, 0.99)},
              {"added", AddedWait()},
              {"h2d p99", Quantile(beside.h2d, 0.99)}};
  if (kept.has_value()) {
    row["T"] = *kept;
    row["U"] = share;
    row["W"] = w->value;
    row["W from"] = w->interval.first;
    row["W to"] = w->interval.second;
  }
  if (has_gpu) {
    row["MHz least"] = std::lround(gpu.least_mhz);
    row["watts"] = std::lround(gpu.mean_watts);
    row["C"] = std::lround(gpu.most_celsius);
  }
  return row;
}

void CellResults::AddVerdicts(const Summary& product, CaseReport& report) const {
  const CellLimits& limits = spec_.limits;
  report.RequireRounds("", static_cast<int>(rounds_.at(std::string(product.name)).size()));
  if (limits.most_r99 > 0) report.AddVerdict("R99, upper end", product.r99.interval.second, limits.most_r99, true);
  if (limits.least_w > 0 && product.w.has_value()) {
    report.AddVerdict("W, lower end", product.w->interval.first, limits.least_w, false);
  }
  if (limits.most_r999 > 0) {
    report.AddVerdict("samples for R999", static_cast<double>(product.count), kLeastForR999, false);
    report.AddVerdict("R999", product.r999, limits.most_r999, true);
  }
  if (limits.most_h2d_us > 0) {
    report.AddVerdict("h2d p99, us", Quantile(product.beside.h2d, 0.99), limits.most_h2d_us, true);
  }
  if (limits.most_added_wait_us > 0) {
    report.AddVerdict("gpu_wait added at p99, us", product.AddedWait(), limits.most_added_wait_us, true);
  }
}

void CellResults::Report(CaseReport& report) const {
  std::optional<Summary> product, priority;
  double best_w = 0;
  if (const auto found = rounds_.find("product"); found != rounds_.end()) {
    report.AddRow(Summarise("", found->second).Row());
  }
  for (const Rung& rung : AllRungs()) {
    const auto found = rounds_.find(std::string(rung.name));
    if (found == rounds_.end()) continue;
    Summary summary = Summarise(found->first, found->second);
    report.AddRow(summary.Row());
    if (summary.w.has_value()) best_w = std::max(best_w, summary.w->value);
    if (rung.name == "product") product = std::move(summary);
    if (rung.name == "priority") priority = std::move(summary);
  }
  report.AddNote(
      absl::StrFormat("%.1f requests a second; R99: p99 beside the neighbour over p99 alone, with the "
                      "middle 95 %% of it over rounds; T: what batch keeps of its best rate alone; U: share "
                      "of the device that the latency model takes alone; W: T over 1 - U; times in us",
                      rate_));
  if (!product.has_value()) return;
  AddVerdicts(*product, report);
  if (!priority.has_value()) return;
  report.AddNote(absl::StrFormat(
      "p99 with priority streams only over the product's: %.2f; the product's W less the best rung's: %.3f",
      Ratio(Quantile(priority->beside.server, 0.99), Quantile(product->beside.server, 0.99)),
      product->w.has_value() ? product->w->value - best_w : 0));
}

Json CellResults::ToJson() const {
  Json rungs = Json::array();
  for (const Rung& rung : AllRungs()) {
    const auto found = rounds_.find(std::string(rung.name));
    if (found == rounds_.end()) continue;
    const Summary summary = Summarise(found->first, found->second);
    const auto number = [](double value) { return value > 0 ? Json(value) : Json(nullptr); };
    Json rounds = Json::array();
    for (const RungRound& round : found->second) rounds.push_back(bench::ToJson(round));
    const Estimate w = summary.w.value_or(Estimate());
    rungs.push_back({{"rung", rung.name},
                     {"what", rung.what},
                     {"r50", number(summary.r50)},
                     {"r99", number(summary.r99.value)},
                     {"r99_from", number(summary.r99.interval.first)},
                     {"r99_to", number(summary.r99.interval.second)},
                     {"r999", number(summary.r999)},
                     {"t", number(summary.kept.value_or(0))},
                     {"u", number(summary.share)},
                     {"w", number(w.value)},
                     {"w_from", number(w.interval.first)},
                     {"w_to", number(w.interval.second)},
                     {"rounds", rounds}});
  }
  return {{"key", spec_.Key()},
          {"latency", spec_.latency},
          {"neighbour", absl::StrCat(spec_.neighbour, ":", spec_.rows)},
          {"class", RequestClassName(spec_.neighbour_class)},
          {"load", spec_.LoadName()},
          {"arrivals", client::ArrivalsName(spec_.arrivals)},
          {"rate", rate_},
          {"rungs", rungs}};
}

}  // namespace sluice::bench
