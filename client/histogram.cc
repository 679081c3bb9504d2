// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace sluice::client {
namespace {

constexpr int kBucketBits = 10;
constexpr int64_t kBucketsPerOctave = int64_t{1} << kBucketBits;
constexpr int64_t kLowestNs = 1'000;
constexpr int64_t kHighestNs = 60'000'000'000;

// The bucket of a value of at least 512 ns: the octave of its highest bit, then the ten bits below it.
constexpr size_t BucketOf(int64_t ns) {
  const int octave = std::bit_width(static_cast<uint64_t>(ns)) - 1;
  const int shift = octave - kBucketBits;
  const auto bits = static_cast<uint64_t>(ns);
  const uint64_t below = (shift >= 0 ? bits >> shift : bits << -shift) & (kBucketsPerOctave - 1);
  return static_cast<size_t>((octave - (kBucketBits - 1)) * kBucketsPerOctave) + below;
}

// The middle of a bucket.
constexpr int64_t ValueOf(size_t bucket) {
  const int octave = static_cast<int>(bucket >> kBucketBits) + (kBucketBits - 1);
  const int64_t below = static_cast<int64_t>(bucket) & (kBucketsPerOctave - 1);
  const int shift = octave - kBucketBits;
  if (shift < 0) return (kBucketsPerOctave + below) >> -shift;
  const int64_t width = int64_t{1} << shift;
  return ((kBucketsPerOctave + below) << shift) + width / 2;
}

constexpr size_t kBucketCount = BucketOf(kHighestNs) + 1;

}  // namespace

Histogram::Histogram() : buckets_(kBucketCount, 0) {}

void Histogram::Record(absl::Duration value) {
  const int64_t ns = std::max<int64_t>(0, absl::ToInt64Nanoseconds(value));
  if (ns > kHighestNs) ++saturated_count_;
  ++buckets_[BucketOf(std::clamp(ns, kLowestNs, kHighestNs))];
  min_ns_ = count_ == 0 ? ns : std::min(min_ns_, ns);
  max_ns_ = std::max(max_ns_, ns);
  sum_ += absl::Nanoseconds(ns);
  ++count_;
}

void Histogram::Merge(const Histogram& other) {
  if (other.count_ == 0) return;
  for (size_t i = 0; i < kBucketCount; ++i) buckets_[i] += other.buckets_[i];
  min_ns_ = count_ == 0 ? other.min_ns_ : std::min(min_ns_, other.min_ns_);
  max_ns_ = std::max(max_ns_, other.max_ns_);
  sum_ += other.sum_;
  count_ += other.count_;
  saturated_count_ += other.saturated_count_;
}

absl::Duration Histogram::min() const { return absl::Nanoseconds(min_ns_); }
absl::Duration Histogram::max() const { return absl::Nanoseconds(max_ns_); }
absl::Duration Histogram::mean() const {
  return count_ == 0 ? absl::ZeroDuration() : sum_ / static_cast<int64_t>(count_);
}

absl::Duration Histogram::Quantile(double quantile) const {
  if (count_ == 0) return absl::ZeroDuration();
  const double wanted = std::ceil(quantile * static_cast<double>(count_) - 1e-9);
  const uint64_t rank = std::clamp<uint64_t>(static_cast<uint64_t>(std::max(1.0, wanted)), 1, count_);
  if (rank == count_) return max();
  uint64_t seen = 0;
  for (size_t i = 0; i < kBucketCount; ++i) {
    seen += buckets_[i];
    if (seen >= rank) return absl::Nanoseconds(std::clamp(ValueOf(i), min_ns_, max_ns_));
  }
  return max();
}

uint64_t Histogram::CountUpTo(absl::Duration value) const {
  const int64_t ns = absl::ToInt64Nanoseconds(value);
  if (ns >= max_ns_) return count_;
  const size_t last = BucketOf(std::clamp(ns, kLowestNs, kHighestNs));
  return std::accumulate(buckets_.begin(), buckets_.begin() + static_cast<ptrdiff_t>(last) + 1, uint64_t{0});
}

}  // namespace sluice::client
