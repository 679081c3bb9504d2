// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/common/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "client/random.h"

namespace sluice::bench {
namespace {

double PooledRatio(const std::vector<const RoundPair*>& rounds, double quantile) {
  Numbers above, below;
  for (const RoundPair* round : rounds) {
    above.insert(above.end(), round->above.begin(), round->above.end());
    below.insert(below.end(), round->below.begin(), round->below.end());
  }
  return Ratio(Quantile(std::move(above), quantile), Quantile(std::move(below), quantile));
}

}  // namespace

double Quantile(Numbers numbers, double quantile) {
  if (numbers.empty()) return 0;
  const auto count = static_cast<double>(numbers.size());
  const auto rank = static_cast<std::ptrdiff_t>(std::max(1.0, std::ceil(quantile * count - 1e-9)));
  std::nth_element(numbers.begin(), numbers.begin() + (rank - 1), numbers.end());
  return numbers[static_cast<size_t>(rank - 1)];
}

double Mean(const Numbers& numbers) {
  if (numbers.empty()) return 0;
  return std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size());
}

double PooledRatio(const std::vector<RoundPair>& rounds, double quantile) {
  std::vector<const RoundPair*> all;
  for (const RoundPair& round : rounds) all.push_back(&round);
  return PooledRatio(all, quantile);
}

std::pair<double, double> BootstrapInterval(const std::vector<RoundPair>& rounds, double quantile, int draws,
                                            uint64_t seed) {
  if (rounds.empty()) return {0, 0};
  client::Random random(seed);
  Numbers ratios;
  for (int draw = 0; draw < draws; ++draw) {
    std::vector<const RoundPair*> drawn;
    for (size_t i = 0; i < rounds.size(); ++i) drawn.push_back(&rounds[random.Next() % rounds.size()]);
    ratios.push_back(PooledRatio(drawn, quantile));
  }
  return {Quantile(ratios, 0.025), Quantile(ratios, 0.975)};
}

std::pair<double, double> BootstrapMeans(const Numbers& above, const Numbers& below, int draws, uint64_t seed) {
  const size_t rounds = std::min(above.size(), below.size());
  if (rounds == 0) return {0, 0};
  client::Random random(seed);
  Numbers ratios;
  for (int draw = 0; draw < draws; ++draw) {
    double sum_above = 0;
    double sum_below = 0;
    for (size_t i = 0; i < rounds; ++i) {
      const size_t round = random.Next() % rounds;
      sum_above += above[round];
      sum_below += below[round];
    }
    ratios.push_back(Ratio(sum_above, sum_below));
  }
  return {Quantile(ratios, 0.025), Quantile(ratios, 0.975)};
}

}  // namespace sluice::bench
