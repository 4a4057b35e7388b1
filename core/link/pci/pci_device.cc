#include "link/pci/pci_device.h"

#include <fmt/core.h>

#include <sstream>
#include <string_view>

#include "base/place_text.h"
#include "link/pci/vfio.h"
#include "link/pci/vfio_user_device.h"

namespace netfold::link {
namespace {

// Such as 0000:65:00.0.
bool is_pci_address(const std::string& text) {
  static constexpr std::string_view kShape = "hhhh:hh:hh.d";
  if (text.size() != kShape.size()) return false;
  for (std::size_t i = 0; i < kShape.size(); ++i) {
    const char each = text[i];
    const bool is_digit = each >= '0' && each <= '9';
    const bool is_hex = is_digit || (each >= 'a' && each <= 'f');
    if (kShape[i] == 'h' ? !is_hex : kShape[i] == 'd' ? !is_digit : each != kShape[i]) return false;
  }
  return true;
}

}  // namespace

Result<PciPlace> parse_pci_place(const std::string& text, int rank) {
  constexpr unsigned kBars = 6;
  PciPlace place;
  std::istringstream parts(text);
  std::getline(parts, place.device, ',');
  put_rank(place.device, rank);
  bool is_right = place.is_socket() || is_pci_address(place.device);
  for (std::string part; is_right && std::getline(parts, part, ',');) {
    is_right = (read_number(part, "bar=", place.bar) && place.bar < kBars) ||
               (read_number(part, "offset=", place.offset) && place.offset % sizeof(std::uint32_t) == 0);
  }
  if (is_right) return place;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' does not name a device: write its PCI address or the path of its socket, and after it "
                          "perhaps bar=0 to bar=5 and offset=BYTES (a multiple of 4), for example "
                          "0000:65:00.0,bar=2,offset=0x1000",
                          text));
}

Result<std::unique_ptr<PciDevice>> open_pci_device(const PciPlace& place, std::size_t register_bytes,
                                                   std::size_t memory_bytes) {
  return place.is_socket() ? open_vfio_user_device(place, register_bytes, memory_bytes)
                           : open_vfio_device(place, register_bytes, memory_bytes);
}

}  // namespace netfold::link
