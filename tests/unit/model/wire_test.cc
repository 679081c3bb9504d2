// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onnx_writer.h"

namespace sluice::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(WireReaderTest, ReadsEveryWireTypeAndKeepsOffsets) {
  // Goal: fields come out as they went in, with their place in the file. Method: a message of each kind, read back.
  WireWriter writer;
  writer.Varint(1, 300).Bytes(2, "abc").Fixed32(3, 0x3F800000);
  writer.Raw(std::string("\x21", 1) + std::string("\x01\0\0\0\0\0\0\x80", 8));  // Field 4, fixed64.
  WireReader reader(AsBytes(writer.bytes()), 1000);
  auto field = reader.Next();
  ASSERT_TRUE(field.ok());
  EXPECT_EQ(field->scalar, 300u);
  EXPECT_EQ(field->offset, 1000u);
  field = reader.Next();
  ASSERT_TRUE(field.ok());
  EXPECT_EQ(field->offset, 1003u);
  EXPECT_EQ(field->data_offset, 1005u);
  EXPECT_EQ(FieldText(*field, "f", 3).value(), "abc");
  EXPECT_FALSE(FieldText(*field, "f", 2).ok());
  EXPECT_FALSE(FieldInt(*field, "f").ok());
  field = reader.Next();
  ASSERT_TRUE(field.ok());
  EXPECT_EQ(FieldFloat(*field, "f").value(), 1.0f);
  field = reader.Next();
  ASSERT_TRUE(field.ok());
  EXPECT_EQ(field->scalar, 0x8000000000000001u);
  EXPECT_TRUE(reader.done());
}

TEST(WireReaderTest, RefusesMalformedMessagesWithTheirOffset) {
  // Goal: no byte sequence is read beyond its end, and the error says where. Method: a table of broken messages.
  const struct {
    std::string bytes;
    const char* message;
  } cases[] = {
      {std::string("\x80", 1), "byte 7: varint"},              // Ends inside the tag.
      {std::string("\x08", 1), "the message ends inside it"},  // A tag and no value.
      {std::string("\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F", 11), "longer than 64 bits"},
      {std::string("\x12\x05"
                   "ab",
                   4),
       "reaches beyond its message"},
      {std::string("\x12\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 11), "reaches beyond its message"},
      {std::string("\x0D\x01\x02", 3), "fixed-width number"},
      {std::string("\x0B", 1), "wire type 3"},
      {std::string("\x0C", 1), "wire type 4"},
      {std::string("\x0F", 1), "wire type 7"},
      {std::string("\x00\x01", 2), "not a field number"},
      {std::string("\x80\x80\x80\x80\x10\x01", 6), "not a field number"},  // 2^29.
  };
  for (const auto& test : cases) {
    WireReader reader(AsBytes(test.bytes), 7);
    const auto field = reader.Next();
    ASSERT_FALSE(field.ok()) << test.message;
    EXPECT_EQ(field.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(field.status().message()), HasSubstr(test.message));
  }
}

TEST(WireReaderTest, RepeatedNumbersArePackedOrNot) {
  // Goal: both forms give the same numbers, within the bound. Method: 1, -1 and 300 in each form.
  std::vector<int64_t> numbers;
  WireField field;
  field.scalar = 1;
  ASSERT_TRUE(AppendInts(field, "f", 4, numbers).ok());
  const std::string packed = std::string("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 10) + std::string("\xAC\x02", 2);
  field.type = WireType::kLength;
  field.bytes = AsBytes(packed);
  ASSERT_TRUE(AppendInts(field, "f", 4, numbers).ok());
  EXPECT_THAT(numbers, ElementsAre(1, -1, 300));
  EXPECT_FALSE(AppendInts(field, "f", 4, numbers).ok()) << "one more fits, two do not";
  const std::string truncated("\xAC", 1);
  field.bytes = AsBytes(truncated);
  EXPECT_FALSE(AppendInts(field, "f", 100, numbers).ok());
  std::vector<float> floats;
  field.bytes = AsBytes(packed);
  ASSERT_TRUE(AppendFloats(field, "f", 3, floats).ok());
  EXPECT_EQ(floats.size(), 3u);
  EXPECT_FALSE(AppendFloats(field, "f", 3, floats).ok()) << "beyond the bound";
  field.bytes = field.bytes.first(3);
  EXPECT_FALSE(AppendFloats(field, "f", 100, floats).ok()) << "not whole numbers";
}

TEST(WireReaderTest, TextMustBeUtf8) {
  // Goal: names that reach clients and logs are text. Method: good and bad sequences.
  EXPECT_TRUE(IsValidText("plain \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"));
  for (const std::string& bad :
       {std::string("\xC3"), std::string("\xC0\x80"), std::string("\xED\xA0\x80"), std::string("\xF5\x80\x80\x80"),
        std::string("\x80"), std::string("a\0b", 3), std::string("\xE0\x80\x80"), std::string("\xF0\x80\x80\x80"),
        std::string("\xF4\x90\x80\x80")}) {
    EXPECT_FALSE(IsValidText(bad));
  }
}

}  // namespace
}  // namespace sluice::model
