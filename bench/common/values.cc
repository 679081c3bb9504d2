// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/common/values.h"

#include <cstring>

#include "absl/strings/match.h"
#include "base/data_type.h"
#include "client/random.h"

namespace sluice::bench {
namespace {

template <class T, class Make>
void FillWith(std::span<std::byte> bytes, Make&& make) {
  for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    const T value = static_cast<T>(make());
    std::memcpy(bytes.data() + at, &value, sizeof(T));
  }
}

/// The sum of four uniform numbers, of mean 0 and variance 1.
double AboutNormal(uint64_t bits) {
  double sum = 0;
  for (int part = 0; part < 4; ++part) sum += static_cast<double>((bits >> (16 * part)) & 0xffff);
  return (sum / 65536 - 2) * 1.7320508075688772;
}

template <class Make>
void FillIntegers(DataType type, std::span<std::byte> bytes, Make&& make) {
  switch (ElementBytes(type)) {
    case 1:
      return FillWith<uint8_t>(bytes, make);
    case 2:
      return FillWith<uint16_t>(bytes, make);
    case 4:
      return FillWith<uint32_t>(bytes, make);
    default:
      return FillWith<uint64_t>(bytes, make);
  }
}

}  // namespace

void FillInput(const server::ServedTensor& input, std::span<std::byte> bytes) {
  client::Random random(/*seed=*/1);
  switch (input.type) {
    case DataType::kFp32:
      return FillWith<float>(bytes, [&] { return AboutNormal(random.Next()); });
    case DataType::kFp64:
      return FillWith<double>(bytes, [&] { return AboutNormal(random.Next()); });
    case DataType::kFp16:  // Sign and fraction by chance: 0.5 to 1 and -1 to -0.5.
      return FillWith<uint16_t>(bytes, [&] { return 0x3800 | (random.Next() & 0x83ff); });
    case DataType::kBf16:  // Likewise.
      return FillWith<uint16_t>(bytes, [&] { return 0x3f00 | (random.Next() & 0x807f); });
    default:
      break;
  }
  if (absl::StrContains(input.name, "mask")) return FillIntegers(input.type, bytes, [] { return 1; });
  if (absl::StrContains(input.name, "type")) return FillIntegers(input.type, bytes, [] { return 0; });
  const uint64_t bound = input.type == DataType::kBool ? 2 : kIntegerBound;
  FillIntegers(input.type, bytes, [&] { return random.Next() % bound; });
}

}  // namespace sluice::bench
