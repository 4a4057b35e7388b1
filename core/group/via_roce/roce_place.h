// How a user names the RoCE endpoint of a rank, in one line of text: "eth1", "eth1,version=1,packets=8",
// "eth1,one-way", "mlx5_0,verbs,job=9".
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "wire/aggregation_header.h"
#include "wire/roce.h"

namespace netfold::group {

struct RocePlace {
  std::string device;  // an interface, or with `uses_verbs` an RDMA device
  bool uses_verbs = false;
  wire::roce::Version version = wire::roce::Version::kV2;
  std::uint16_t job = 1;
  std::uint32_t message_packets = wire::roce::kMessagePackets;  // of the longest message
  bool one_way = false;  // the switch has one-way messages; not with `uses_verbs`

  bool operator==(const RocePlace&) const = default;
};

// `{rank}` stands for the rank. kInvalidArgument, with what to write.
Result<RocePlace> parse_roce_place(const std::string& text, int rank);

}  // namespace netfold::group
