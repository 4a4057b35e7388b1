// The driver of a smart NIC beside registers that are wrong, gone or full. That it works is tested with the hardware
// (tests/python/test_nic_driver.py).
#include "group/via_nic/nic_driver.h"

#include <gtest/gtest.h>

#include <map>

#include "netfold_nic.h"

namespace netfold::group {
namespace {

// Registers that keep what is written to them.
class Registers final : public link::PciDevice {
 public:
  Result<std::uint32_t> read(std::uint32_t offset) override {
    const auto found = values.find(offset);
    return found == values.end() ? otherwise : found->second;
  }
  Result<void> write(std::uint32_t offset, std::uint32_t value) override {
    writes[offset] = value;
    return {};
  }
  std::span<std::byte> memory() override { return {}; }
  std::uint64_t memory_address() const override { return 0; }
  int interrupt() const override { return -1; }
  void clear_interrupt() override {}

  std::map<std::uint32_t, std::uint32_t> values, writes;
  std::uint32_t otherwise = 0;
};

std::string refusal(Registers& registers) {
  const auto shape = NicDriver(registers).identify();
  return shape ? "" : shape.error().message;
}

TEST(NicDriver, IdentifiesTheNic) {
  Registers registers;
  EXPECT_NE(refusal(registers).find("not a Netfold NIC"), std::string::npos);
  registers.values[NETFOLD_NIC_ID] = 0x4e464c44;
  registers.values[NETFOLD_NIC_VERSION] = NETFOLD_NIC_MAP_VERSION + 0x10000;
  EXPECT_NE(refusal(registers).find("update the older"), std::string::npos);
  registers.values[NETFOLD_NIC_VERSION] = NETFOLD_NIC_MAP_VERSION + 1;  // a minor one adds registers
  registers.values[NETFOLD_NIC_SHAPE] = 16 | 32 << 8 | 5 << 16 | 1 << 20;
  EXPECT_EQ(NicDriver(registers).identify(), (NicShape{.lanes = 16, .block = 32, .mantissa = 5, .has_bfp = true}));
}

TEST(NicDriver, ADeviceThatIsGoneIsAnError) {
  Registers registers;
  registers.otherwise = 0xffffffff;
  NicDriver driver(registers);
  EXPECT_NE(driver.reset().error().message.find("does not answer any more"), std::string::npos);
  EXPECT_NE(driver.completion().error().message.find("does not answer any more"), std::string::npos);
}

TEST(NicDriver, AResetThatDoesNotEndIsAnError) {
  Registers registers;
  EXPECT_NE(NicDriver(registers).reset().error().message.find("DMA engine"), std::string::npos);
}

TEST(NicDriver, PostsAsManyRequestsAsThereIsRoomFor) {
  Registers registers;
  registers.values[NETFOLD_NIC_STATUS] = 1u << NETFOLD_NIC_STATUS_READY_SHIFT;
  registers.values[NETFOLD_NIC_REQUEST_ROOM] = 2;
  NicDriver driver(registers);
  ASSERT_TRUE(driver.reset());
  EXPECT_TRUE(driver.post(0x1'0000'0004, 0x2'0000'0008, 7, 0).value());
  EXPECT_EQ(registers.writes[NETFOLD_NIC_REQUEST_SOURCE_HIGH], 1u);
  EXPECT_EQ(registers.writes[NETFOLD_NIC_REQUEST_SOURCE_LOW], 4u);
  EXPECT_EQ(registers.writes[NETFOLD_NIC_REQUEST_DESTINATION_HIGH], 2u);
  EXPECT_EQ(registers.writes[NETFOLD_NIC_REQUEST_DESTINATION_LOW], 8u);
  EXPECT_EQ(registers.writes[NETFOLD_NIC_REQUEST_COUNT], 7u);
  EXPECT_TRUE(driver.post(0, 0, 1, 1).value());
  EXPECT_FALSE(driver.post(0, 0, 1, 2).value());
  registers.values[NETFOLD_NIC_COMPLETION] = 1u << NETFOLD_NIC_COMPLETION_VALID_SHIFT | NETFOLD_NIC_MISMATCH << 16 | 9;
  const auto ended = driver.completion().value();
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->tag, 9);
  EXPECT_STREQ(name_of_nic_status(ended->status), "mismatch");
  registers.values[NETFOLD_NIC_COMPLETION] = 0;
  EXPECT_FALSE(driver.completion().value());
  EXPECT_TRUE(driver.post(0, 0, 1, 3).value());
}

}  // namespace
}  // namespace netfold::group
