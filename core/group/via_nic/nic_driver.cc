#include "group/via_nic/nic_driver.h"

#include <fmt/core.h>

#include "netfold_nic.h"

namespace netfold::group {
namespace {

// A device that is gone answers with ones.
constexpr std::uint32_t kGone = 0xffffffff;
constexpr unsigned kResetLooks = 100'000;  // a reset waits for a few answers of the host's memory

constexpr bool is_set(std::uint32_t word, std::uint32_t shift) {
  return (word >> shift & 1) != 0;
}

tl::unexpected<Error> is_gone() {
  return fail(ErrorCode::kSystem, "the smart NIC does not answer any more: every register reads as ones");
}

}  // namespace

const char* name_of_nic_status(unsigned status) {
  switch (status) {
    case NETFOLD_NIC_DONE: return "done";
    case NETFOLD_NIC_TIMEOUT: return "timeout";
    case NETFOLD_NIC_MISMATCH: return "mismatch";
    case NETFOLD_NIC_RESET: return "reset";
    case NETFOLD_NIC_REFUSED: return "refused";
    default: return "unknown";
  }
}

Result<NicShape> NicDriver::identify() {
  constexpr std::uint32_t kLetters = 0x4e464c44;  // NFLD
  const auto id = device_.read(NETFOLD_NIC_ID);
  if (!id) return tl::unexpected(id.error());
  if (*id != kLetters) {
    return fail(ErrorCode::kSystem, fmt::format("its ID is {:#010x}, not {:#010x}: the device is not a Netfold NIC, or "
                                                "its registers are at another bar= or offset=",
                                                *id, kLetters));
  }
  const auto version = device_.read(NETFOLD_NIC_VERSION);
  if (!version) return tl::unexpected(version.error());
  if (*version >> 16 != NETFOLD_NIC_MAP_VERSION >> 16) {
    return fail(ErrorCode::kSystem,
                fmt::format("the NIC's registers are of version {}.{}, and this program knows version {}: update the "
                            "older of the two",
                            *version >> 16, *version & 0xffff, NETFOLD_NIC_MAP_VERSION >> 16));
  }
  const auto word = device_.read(NETFOLD_NIC_SHAPE);
  if (!word) return tl::unexpected(word.error());
  return NicShape{.lanes = *word >> NETFOLD_NIC_SHAPE_LANES_SHIFT & NETFOLD_NIC_SHAPE_LANES_MASK,
                  .block = *word >> NETFOLD_NIC_SHAPE_BLOCK_SHIFT & NETFOLD_NIC_SHAPE_BLOCK_MASK,
                  .mantissa = *word >> NETFOLD_NIC_SHAPE_MANTISSA_SHIFT & NETFOLD_NIC_SHAPE_MANTISSA_MASK,
                  .has_bfp = is_set(*word, NETFOLD_NIC_SHAPE_HAS_BFP_SHIFT)};
}

Result<void> NicDriver::reset() {
  if (auto written = device_.write(NETFOLD_NIC_CONTROL, 1u << NETFOLD_NIC_CONTROL_SOFT_RESET_SHIFT); !written) {
    return written;
  }
  for (unsigned looks = 0; looks < kResetLooks; ++looks) {
    const auto status = device_.read(NETFOLD_NIC_STATUS);
    if (!status) return tl::unexpected(status.error());
    if (*status == kGone) return is_gone();
    if (!is_set(*status, NETFOLD_NIC_STATUS_READY_SHIFT)) continue;
    for (;;) {  // what ended before the reset, and by it
      const auto ended = completion();
      if (!ended) return tl::unexpected(ended.error());
      if (!*ended) break;
    }
    const auto room = device_.read(NETFOLD_NIC_REQUEST_ROOM);
    if (!room) return tl::unexpected(room.error());
    room_ = *room;
    return {};
  }
  return fail(ErrorCode::kSystem, "the smart NIC is not ready after a soft reset: does its DMA engine answer?");
}

Result<void> NicDriver::write_pair(std::uint32_t low, std::uint64_t value) {
  if (auto written = device_.write(low, static_cast<std::uint32_t>(value)); !written) return written;
  return device_.write(low + 4, static_cast<std::uint32_t>(value >> 32));
}

Result<void> NicDriver::join(const RingPlace& place) {
  if (auto done = reset(); !done) return done;
  if (auto done = write_pair(NETFOLD_NIC_OWN_ADDRESS_LOW, place.own); !done) return done;
  if (auto done = write_pair(NETFOLD_NIC_RIGHT_ADDRESS_LOW, place.right); !done) return done;
  if (auto done = write_pair(NETFOLD_NIC_LEFT_ADDRESS_LOW, place.left); !done) return done;
  const struct {
    std::uint32_t offset, value;
  } settings[] = {
      {NETFOLD_NIC_RING, place.position << NETFOLD_NIC_RING_POSITION_SHIFT | place.size << NETFOLD_NIC_RING_SIZE_SHIFT},
      {NETFOLD_NIC_IDENTITY, std::uint32_t{place.ring} << NETFOLD_NIC_IDENTITY_RING_SHIFT |
                                 std::uint32_t{place.epoch} << NETFOLD_NIC_IDENTITY_EPOCH_SHIFT},
      {NETFOLD_NIC_REQUEST_TIMEOUT, place.request_timeout},
      {NETFOLD_NIC_LINK_TIMEOUT, place.link_timeout},
      {NETFOLD_NIC_CONTROL, 1u << NETFOLD_NIC_CONTROL_ENABLE_SHIFT | (place.bfp ? 1u : 0u)
                                                                         << NETFOLD_NIC_CONTROL_BFP_SHIFT},
  };
  for (const auto& setting : settings) {
    if (auto done = device_.write(setting.offset, setting.value); !done) return done;
  }
  return {};
}

Result<bool> NicDriver::post(std::uint64_t source, std::uint64_t destination, std::uint32_t count, std::uint16_t tag) {
  if (room_ == 0) return false;
  if (const auto done = write_pair(NETFOLD_NIC_REQUEST_SOURCE_LOW, source); !done) return tl::unexpected(done.error());
  if (const auto done = write_pair(NETFOLD_NIC_REQUEST_DESTINATION_LOW, destination); !done) {
    return tl::unexpected(done.error());
  }
  if (const auto done = device_.write(NETFOLD_NIC_REQUEST_COUNT, count); !done) return tl::unexpected(done.error());
  if (const auto done = device_.write(NETFOLD_NIC_REQUEST_POST, tag); !done) return tl::unexpected(done.error());
  --room_;
  return true;
}

Result<std::optional<NicEnd>> NicDriver::completion() {
  const auto word = device_.read(NETFOLD_NIC_COMPLETION);
  if (!word) return tl::unexpected(word.error());
  if (*word == kGone) return is_gone();
  if (!is_set(*word, NETFOLD_NIC_COMPLETION_VALID_SHIFT)) return std::nullopt;
  ++room_;
  return NicEnd{static_cast<std::uint16_t>(*word >> NETFOLD_NIC_COMPLETION_TAG_SHIFT),
                *word >> NETFOLD_NIC_COMPLETION_STATUS_SHIFT & NETFOLD_NIC_COMPLETION_STATUS_MASK};
}

Result<std::uint64_t> NicDriver::own_address() {
  const auto low = device_.read(NETFOLD_NIC_OWN_ADDRESS_LOW);
  if (!low) return tl::unexpected(low.error());
  const auto high = device_.read(NETFOLD_NIC_OWN_ADDRESS_HIGH);
  if (!high) return tl::unexpected(high.error());
  return std::uint64_t{*high & 0xffff} << 32 | *low;
}

Result<bool> NicDriver::link_is_idle() {
  const auto status = device_.read(NETFOLD_NIC_STATUS);
  if (!status) return tl::unexpected(status.error());
  return is_set(*status, NETFOLD_NIC_STATUS_LINK_IDLE_SHIFT);
}

}  // namespace netfold::group
