#include "link/interface_traffic.h"

#include <gtest/gtest.h>

namespace netfold::link {
namespace {

constexpr const char* kTable =
    "Inter-|   Receive                                                |  Transmit\n"
    " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier\n"
    "    lo: 1000 10    0    0    0     0          0         0     1000 10    0    0    0     0       0          0\n"
    "  eth0:123456789012 5 0 0 0 0 0 0 42 6 0 0 0 0 0 0\n"
    "eth0.7: 5 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n"
    "  torn: 5 1 0\n";

TEST(InterfaceTraffic, IsReadFromTheKernelsTable) {
  EXPECT_EQ(traffic_in(kTable, "lo"), (InterfaceTraffic{1000, 1000}));
  EXPECT_EQ(traffic_in(kTable, "eth0"), (InterfaceTraffic{123456789012, 42}));
  EXPECT_EQ(traffic_in(kTable, "eth0.7"), (InterfaceTraffic{5, 7}));
  for (const char* const name : {"eth1", "eth", "torn", "", " face |bytes"}) EXPECT_FALSE(traffic_in(kTable, name));
  EXPECT_FALSE(traffic_in("", "eth0"));
}

TEST(InterfaceTraffic, TheLoopbackHasNoLink) {
  EXPECT_EQ(interface_with(IpAddress(0x7f000001)), "");
  EXPECT_EQ(interface_with(IpAddress(0xc0000201)), "") << "an address for documents, which no interface has";
  EXPECT_TRUE(traffic_of("lo"));
  EXPECT_FALSE(traffic_of("no-such-one"));
}

}  // namespace
}  // namespace netfold::link
