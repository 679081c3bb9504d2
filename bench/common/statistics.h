// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace sluice::bench {

using Numbers = std::vector<double>;

/// The smallest number that at least `quantile` of all do not exceed; 0 when there is none. 0 < quantile <= 1.
double Quantile(Numbers numbers, double quantile);
inline double Median(Numbers numbers) { return Quantile(std::move(numbers), 0.5); }
double Mean(const Numbers& numbers);
/// 0 where there is nothing to divide by.
inline double Ratio(double above, double below) { return below > 0 ? above / below : 0; }

/// The numbers of one round of a measurement that compares two things.
struct RoundPair {
  Numbers above, below;
};

/// All rounds pooled: quantile of `above` over quantile of `below`.
double PooledRatio(const std::vector<RoundPair>& rounds, double quantile);

/// The middle 95 % of that ratio when whole rounds are drawn anew, with replacement, `draws` times: how far it moves
/// between rounds. The same numbers give the same interval.
std::pair<double, double> BootstrapInterval(const std::vector<RoundPair>& rounds, double quantile, int draws,
                                            uint64_t seed);

/// The same for the mean of `above` over the mean of `below`, which have one number a round each.
std::pair<double, double> BootstrapMeans(const Numbers& above, const Numbers& below, int draws, uint64_t seed);

}  // namespace sluice::bench
