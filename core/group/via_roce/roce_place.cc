#include "group/via_roce/roce_place.h"

#include <fmt/core.h>

#include <charconv>
#include <sstream>

namespace netfold::group {
namespace {

bool read_job(const std::string& text, std::uint16_t& job) {
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, job);
  return error == std::errc{} && stopped == end;
}

}  // namespace

Result<RocePlace> parse_roce_place(const std::string& text, int rank) {
  RocePlace place;
  std::istringstream parts(text);
  std::getline(parts, place.device, ',');
  constexpr std::string_view kRank = "{rank}";
  if (const auto at = place.device.find(kRank); at != std::string::npos) {
    place.device.replace(at, kRank.size(), std::to_string(rank));
  }
  bool is_right = !place.device.empty() && place.device.find('=') == std::string::npos;
  for (std::string part; is_right && std::getline(parts, part, ',');) {
    if (part == "verbs") {
      place.uses_verbs = true;
    } else if (part == "version=1") {
      place.version = wire::roce::Version::kV1;
    } else if (part == "version=2") {
      place.version = wire::roce::Version::kV2;
    } else {
      is_right = part.starts_with("job=") && read_job(part.substr(4), place.job);
    }
  }
  if (is_right) return place;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' does not name a RoCE endpoint: write INTERFACE or DEVICE,verbs, and after it perhaps "
                          "version=1 or version=2 and job=NUMBER, for example eth1,version=1,job=9",
                          text));
}

}  // namespace netfold::group
