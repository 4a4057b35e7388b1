// tests/vectors/bfp.json, which RTL, GPU and Python read too: every table writes and reads those bytes.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "samples.h"

namespace netfold::numbers::testing {
namespace {

std::vector<float> floats_from(const nlohmann::json& words) {
  std::vector<float> values;
  for (const auto& word : words) {
    values.push_back(from_bits(static_cast<std::uint32_t>(std::stoul(word.get<std::string>(), nullptr, 16))));
  }
  return values;
}

std::vector<std::byte> bytes_from(const std::string& digits) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoul(digits.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

TEST(GoldenBytes, AreWrittenAndReadByEveryTable) {
  std::ifstream file(NETFOLD_VECTORS "/bfp.json");
  ASSERT_TRUE(file) << "no " NETFOLD_VECTORS "/bfp.json";
  const auto cases = nlohmann::json::parse(file).at("cases");
  ASSERT_GE(cases.size(), 30u);
  for (const Kernels* table : all_kernels()) {
    if (!table->is_supported()) continue;
    for (const auto& golden : cases) {
      const BfpShape shape{golden.at("block").get<std::uint8_t>(), golden.at("mantissa").get<std::uint8_t>()};
      const std::vector<float> input = floats_from(golden.at("input"));
      const std::vector<std::byte> wire = bytes_from(golden.at("wire").get<std::string>());
      const std::string which = std::string(table->name) + ": " + golden.at("name").get<std::string>();
      std::vector<std::byte> encoded(encoded_bytes({Format::kBfp, shape}, input.size()));
      table->bfp_encode(shape, input.data(), input.size(), encoded.data());
      EXPECT_EQ(difference(wire, encoded), "") << which;
      std::vector<float> decoded(input.size());
      table->bfp_decode(shape, wire.data(), decoded.size(), decoded.data());
      EXPECT_EQ(difference(floats_from(golden.at("decoded")), decoded), "") << which;
    }
  }
}

}  // namespace
}  // namespace netfold::numbers::testing
