#include "numbers/format.h"

#include <gtest/gtest.h>

#include "samples.h"

namespace netfold::numbers::testing {
namespace {

TEST(Format, CountsBytes) {
  EXPECT_EQ(encoded_bytes({Format::kFp32}, 366), 1464u);
  EXPECT_EQ(encoded_bytes({Format::kFp16}, 3), 6u);
  EXPECT_EQ(encoded_bytes({Format::kBf16}, 3), 6u);
  EXPECT_EQ(encoded_bytes({Format::kInt32}, 3), 12u);
  EXPECT_EQ(encoded_bytes({Format::kBfp}, 0), 0u);
  EXPECT_EQ(encoded_bytes({Format::kBfp}, 1), 17u);
  EXPECT_EQ(encoded_bytes({Format::kBfp}, 17), 34u);
  EXPECT_EQ(bfp_block_bytes({8, 2}), 4u);
  EXPECT_EQ(bfp_block_bytes({128, 7}), 129u);
}

TEST(Format, FillsARoomWithWholeBlocksAndNoMore) {
  for (const BfpShape shape : all_shapes()) {
    const WireFormat wire{Format::kBfp, shape};
    for (std::size_t room_bytes = 0; room_bytes < 1500; ++room_bytes) {
      const std::size_t count = elements_that_fit(wire, room_bytes);
      ASSERT_EQ(count % shape.block, 0u);
      ASSERT_LE(encoded_bytes(wire, count), room_bytes);
      ASSERT_GT(encoded_bytes(wire, count + 1), room_bytes);
    }
  }
  EXPECT_EQ(elements_that_fit({Format::kFp32}, 1467), 366u);
  EXPECT_EQ(elements_that_fit({Format::kBf16}, 1467), 733u);
}

TEST(Format, KnowsWhichShapesThereAre) {
  int valid = 0;
  for (unsigned block = 0; block < 256; ++block) {
    for (unsigned mantissa = 0; mantissa < 256; ++mantissa) {
      valid += is_valid({static_cast<std::uint8_t>(block), static_cast<std::uint8_t>(mantissa)}) ? 1 : 0;
    }
  }
  EXPECT_EQ(valid, 30);
  for (const BfpShape shape : all_shapes()) EXPECT_TRUE(is_valid(shape));
}

TEST(Format, NamesAndTheirValuesAgree) {
  for (const Format format : {Format::kFp32, Format::kFp16, Format::kBf16, Format::kInt32, Format::kBfp}) {
    EXPECT_EQ(format_named(name_of(format)), format);
  }
  for (const ElementType type : {ElementType::kFp32, ElementType::kFp16, ElementType::kBf16, ElementType::kInt32}) {
    EXPECT_EQ(element_type_named(name_of(type)), type);
  }
  EXPECT_EQ(format_named("fp8"), std::nullopt);
  EXPECT_EQ(element_type_named("bfp"), std::nullopt);
}

TEST(Format, KeepsIntegersAndFloatsApart) {
  EXPECT_TRUE(can_travel_as(ElementType::kInt32, Format::kInt32));
  EXPECT_FALSE(can_travel_as(ElementType::kInt32, Format::kFp32));
  EXPECT_FALSE(can_travel_as(ElementType::kFp32, Format::kInt32));
  EXPECT_FALSE(can_travel_as(ElementType::kFp32, Format::kNone));
  EXPECT_TRUE(can_travel_as(ElementType::kBf16, Format::kBfp));
  EXPECT_TRUE(can_travel_as(ElementType::kFp16, Format::kFp32));
}

}  // namespace
}  // namespace netfold::numbers::testing
