#include "device.h"

#include <algorithm>
#include <cstring>

#include "Vnetfold_nic.h"
#include "clocked.h"

namespace netfold::rtl {

struct Device::Model : Clocked<Vnetfold_nic> {};

namespace {

constexpr unsigned kRegisterWait = 64;  // cycles; the registers answer in two

void place(std::uint32_t* words, const std::byte* from, std::size_t bytes) {
  std::memset(words, 0, kBeatBytes);
  std::memcpy(words, from, bytes);
}

}  // namespace

Address address_of_rank(unsigned rank) {
  return {0x02, 0x4e, 0x46, 0, static_cast<std::uint8_t>(rank >> 8), static_cast<std::uint8_t>(rank)};
}

Device::Device(const DeviceOptions& options)
    : options_(options), prng_(options.seed), model_(std::make_unique<Model>()) {}
Device::~Device() = default;
Device::Device(Device&&) noexcept = default;

std::uint64_t Device::cycles() const {
  return model_->cycles();
}

bool Device::interrupt() const {
  return (*model_)->interrupt_o != 0;
}

std::uint32_t Device::read(std::uint32_t offset) {
  Model& nic = *model_;
  nic->s_axil_araddr_i = offset;
  nic->s_axil_arvalid_i = 1;
  nic->s_axil_rready_i = 1;
  std::uint32_t value = 0;
  for (unsigned i = 0; i < kRegisterWait; ++i) {
    step(false);  // settles first: the flags below are those of the last cycle
    nic->s_axil_arvalid_i = 0;
    if (nic->s_axil_rvalid_o) {
      value = nic->s_axil_rdata_o;
      break;
    }
  }
  step(false);
  nic->s_axil_rready_i = 0;
  return value;
}

bool Device::write(std::uint32_t offset, std::uint32_t value) {
  Model& nic = *model_;
  nic->s_axil_awaddr_i = offset;
  nic->s_axil_awvalid_i = 1;
  nic->s_axil_wdata_i = value;
  nic->s_axil_wvalid_i = 1;
  nic->s_axil_bready_i = 1;
  bool accepted = false;
  for (unsigned i = 0; i < kRegisterWait; ++i) {
    step(false);
    nic->s_axil_awvalid_i = 0;
    nic->s_axil_wvalid_i = 0;
    if (nic->s_axil_bvalid_o) {
      accepted = nic->s_axil_bresp_o == 0;
      break;
    }
  }
  step(false);
  nic->s_axil_bready_i = 0;
  return accepted;
}

void Device::reset() {
  write(NETFOLD_NIC_CONTROL, NETFOLD_NIC_CONTROL_SOFT_RESET_MASK << NETFOLD_NIC_CONTROL_SOFT_RESET_SHIFT);
  const auto is_ready = [&] { return (read(NETFOLD_NIC_STATUS) >> NETFOLD_NIC_STATUS_READY_SHIFT & 1) != 0; };
  for (unsigned i = 0; i < 100000 && !is_ready(); ++i) {
  }
}

void Device::join(const RingPlace& place) {
  reset();
  while (completion()) {
  }
  const auto set_address = [&](std::uint32_t low, unsigned rank) {
    std::uint64_t bits = 0;
    const Address address = address_of_rank(rank);
    for (std::size_t i = 0; i < address.size(); ++i) bits |= std::uint64_t{address[i]} << 8 * i;
    write(low, static_cast<std::uint32_t>(bits));
    write(low + 4, static_cast<std::uint32_t>(bits >> 32));
  };
  set_address(NETFOLD_NIC_OWN_ADDRESS_LOW, place.position);
  set_address(NETFOLD_NIC_RIGHT_ADDRESS_LOW, (place.position + 1) % place.size);
  set_address(NETFOLD_NIC_LEFT_ADDRESS_LOW, (place.position + place.size - 1) % place.size);
  write(NETFOLD_NIC_RING,
        place.position << NETFOLD_NIC_RING_POSITION_SHIFT | place.size << NETFOLD_NIC_RING_SIZE_SHIFT);
  write(NETFOLD_NIC_IDENTITY,
        place.ring << NETFOLD_NIC_IDENTITY_RING_SHIFT | place.epoch << NETFOLD_NIC_IDENTITY_EPOCH_SHIFT);
  write(NETFOLD_NIC_REQUEST_TIMEOUT, place.request_timeout);
  write(NETFOLD_NIC_LINK_TIMEOUT, place.link_timeout);
  write(NETFOLD_NIC_CONTROL, 1u << NETFOLD_NIC_CONTROL_ENABLE_SHIFT | (place.bfp ? 1u : 0u)
                                                                          << NETFOLD_NIC_CONTROL_BFP_SHIFT);
}

bool Device::post(const float* source, float* destination, std::uint32_t count, std::uint16_t tag) {
  const auto from = reinterpret_cast<std::uint64_t>(source), to = reinterpret_cast<std::uint64_t>(destination);
  write(NETFOLD_NIC_REQUEST_SOURCE_LOW, static_cast<std::uint32_t>(from));
  write(NETFOLD_NIC_REQUEST_SOURCE_HIGH, static_cast<std::uint32_t>(from >> 32));
  write(NETFOLD_NIC_REQUEST_DESTINATION_LOW, static_cast<std::uint32_t>(to));
  write(NETFOLD_NIC_REQUEST_DESTINATION_HIGH, static_cast<std::uint32_t>(to >> 32));
  write(NETFOLD_NIC_REQUEST_COUNT, count);
  return write(NETFOLD_NIC_REQUEST_POST, tag);
}

std::optional<Ended> Device::completion() {
  if (!interrupt()) return std::nullopt;
  const std::uint32_t word = read(NETFOLD_NIC_COMPLETION);
  if ((word >> NETFOLD_NIC_COMPLETION_VALID_SHIFT & 1) == 0) return std::nullopt;
  return Ended{static_cast<std::uint16_t>(word >> NETFOLD_NIC_COMPLETION_TAG_SHIFT),
               word >> NETFOLD_NIC_COMPLETION_STATUS_SHIFT & NETFOLD_NIC_COMPLETION_STATUS_MASK};
}

void Device::drive_memory() {
  Model& nic = *model_;
  nic->m_read_command_tready_i = goes();
  nic->m_write_command_tready_i = goes();
  nic->m_write_tready_i = !writes_.empty() && goes();
  nic->s_read_tvalid_i = !reads_.empty() && reads_.front().due <= cycles() && goes();
  if (nic->s_read_tvalid_i) {
    const Burst& burst = reads_.front();
    place(nic->s_read_tdata_i.data(), burst.at + burst.done, std::min(kBeatBytes, burst.bytes - burst.done));
  }
  nic->written_i = !confirmations_.empty() && confirmations_.front().due <= cycles();
}

void Device::drive_ethernet(bool may_send) {
  Model& nic = *model_;
  nic->m_eth_tready_i = may_send;
  nic->s_eth_tvalid_i = !arriving_.empty();
  if (arriving_.empty()) return;
  const Frame& frame = arriving_.front();
  const std::size_t bytes = std::min(kBeatBytes, frame.size() - arrived_);
  place(nic->s_eth_tdata_i.data(), frame.data() + arrived_, bytes);
  nic->s_eth_tlast_i = arrived_ + bytes == frame.size();
}

void Device::take_answers() {
  Model& nic = *model_;
  if (nic->s_read_tvalid_i && nic->s_read_tready_o) {
    Burst& burst = reads_.front();
    ++host_beats_;
    burst.done += kBeatBytes;
    if (burst.done >= burst.bytes) reads_.pop_front();
  }
  if (nic->m_read_command_tvalid_o && nic->m_read_command_tready_i) {
    reads_.push_back({reinterpret_cast<std::byte*>(nic->m_read_command_address_o), nic->m_read_command_bytes_o, 0,
                      cycles() + options_.read_latency});
  }
  if (nic->written_i) confirmations_.pop_front();
  if (nic->m_write_tvalid_o && nic->m_write_tready_i) {
    Burst& burst = writes_.front();
    ++host_beats_;
    const auto* const words = nic->m_write_tdata_o.data();
    const std::uint64_t keep = nic->m_write_tkeep_o;
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      if ((keep >> 4 * lane & 1) != 0) std::memcpy(burst.at + burst.done + 4 * lane, words + lane, 4);
    }
    burst.done += kBeatBytes;
    if (nic->m_write_tlast_o) {
      burst.due = cycles() + options_.write_latency;
      confirmations_.push_back(burst);
      writes_.pop_front();
    }
  }
  if (nic->m_write_command_tvalid_o && nic->m_write_command_tready_i) {
    writes_.push_back(
        {reinterpret_cast<std::byte*>(nic->m_write_command_address_o), nic->m_write_command_bytes_o, 0, 0});
  }
  if (nic->s_eth_tvalid_i) {
    arrived_ += kBeatBytes;
    if (nic->s_eth_tlast_i) {
      arriving_.pop_front();
      arrived_ = 0;
    }
  }
  if (nic->m_eth_tvalid_o && nic->m_eth_tready_i) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(nic->m_eth_tdata_o.data());
    leaving_.insert(leaving_.end(), bytes, bytes + kBeatBytes);
    if (nic->m_eth_tlast_o) {
      sent_.push_back(std::move(leaving_));
      leaving_.clear();
    }
  }
}

void Device::step(bool may_send) {
  drive_memory();
  drive_ethernet(may_send);
  model_->settle();
  take_answers();
  model_->edge();
}

std::optional<Frame> Device::sent() {
  if (sent_.empty()) return std::nullopt;
  Frame frame = std::move(sent_.front());
  sent_.pop_front();
  return frame;
}

}  // namespace netfold::rtl
