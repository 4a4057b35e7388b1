#include "link/pci/held_device.h"

#include <fmt/core.h>

#include <utility>

namespace netfold::link {

tl::unexpected<Error> HeldDevice::failed(const std::string& why) const {
  return fail(ErrorCode::kSystem, fmt::format("{} at {}: {}", kind_, place_.device, why));
}

Result<void> HeldDevice::check_room(std::uint64_t bar_bytes, std::size_t register_bytes) const {
  if (bar_bytes >= place_.offset && bar_bytes - place_.offset >= register_bytes) return {};
  return failed(fmt::format("BAR {} has {} bytes: no room for {} bytes of registers at offset {}", place_.bar,
                            bar_bytes, register_bytes, place_.offset));
}

Result<Descriptor> HeldDevice::make_memory(std::size_t memory_bytes) {
  auto descriptor = make_shared_memory(memory_bytes, true);
  if (!descriptor) return descriptor;
  auto mapping = Mapping::of(*descriptor, 0, memory_bytes, true);
  if (!mapping) return tl::unexpected(mapping.error());
  memory_.emplace(std::move(*mapping));
  return descriptor;
}

}  // namespace netfold::link
