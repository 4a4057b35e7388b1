#include "group/via_roce/roce_place.h"

#include <fmt/core.h>

#include <sstream>

#include "base/place_text.h"
#include "group/via_roce/message_layout.h"

namespace netfold::group {

Result<RocePlace> parse_roce_place(const std::string& text, int rank) {
  RocePlace place;
  std::istringstream parts(text);
  std::getline(parts, place.device, ',');
  put_rank(place.device, rank);
  bool is_right = !place.device.empty() && place.device.find('=') == std::string::npos;
  for (std::string part; is_right && std::getline(parts, part, ',');) {
    if (part == "verbs") {
      place.uses_verbs = true;
    } else if (part == "one-way") {
      place.one_way = true;
    } else if (part == "version=1") {
      place.version = wire::roce::Version::kV1;
    } else if (part == "version=2") {
      place.version = wire::roce::Version::kV2;
    } else {
      is_right = read_number(part, "job=", place.job) ||
                 (read_number(part, "packets=", place.message_packets) && is_message_length(place.message_packets));
    }
  }
  if (is_right && place.uses_verbs && place.one_way) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}': an RDMA NIC has no one-way messages: leave out one-way", text));
  }
  if (is_right) return place;
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("'{}' does not name a RoCE endpoint: write INTERFACE or DEVICE,verbs, and after it perhaps "
                  "version=1 or version=2, job=NUMBER, packets=NUMBER (of a message, {} to {}) and one-way, for "
                  "example eth1,version=1,job=9",
                  text, kMessagePacketsMin, wire::roce::kMessagePackets));
}

}  // namespace netfold::group
