#include "device.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "Vnetfold_nic.h"
#include "clocked.h"
#include "netfold_nic.h"

namespace netfold::rtl {

struct Device::Model : Clocked<Vnetfold_nic> {};

namespace {

constexpr unsigned kRegisterWait = 64;  // cycles; the registers answer in two

void place(std::uint32_t* words, const std::byte* from, std::size_t bytes) {
  std::memset(words, 0, kBeatBytes);
  std::memcpy(words, from, bytes);
}

}  // namespace

void HostMemory::read(std::uint64_t address, std::span<std::byte> into) const {
  std::memcpy(into.data(), reinterpret_cast<const std::byte*>(address), into.size());
}
void HostMemory::write(std::uint64_t address, std::span<const std::byte> bytes) const {
  std::memcpy(reinterpret_cast<std::byte*>(address), bytes.data(), bytes.size());
}

Device::Device(DeviceOptions options)
    : options_(std::move(options)), prng_(options_.seed), model_(std::make_unique<Model>()) {}
Device::~Device() = default;
Device::Device(Device&&) noexcept = default;

std::uint64_t Device::cycles() const {
  return model_->cycles();
}

bool Device::interrupts() const {
  return (*model_)->interrupt_o != 0;
}

Result<std::uint32_t> Device::read(std::uint32_t offset) {
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

Result<void> Device::write(std::uint32_t offset, std::uint32_t value) {
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
  if (!accepted) return fail(ErrorCode::kSystem, "the NIC answered a write of a register with a bus error");
  return {};
}

void Device::drive_memory() {
  Model& nic = *model_;
  nic->m_read_command_tready_i = goes();
  nic->m_write_command_tready_i = goes();
  nic->m_write_tready_i = !writes_.empty() && goes();
  nic->s_read_tvalid_i = !reads_.empty() && reads_.front().due <= cycles() && goes();
  if (nic->s_read_tvalid_i) {
    const Burst& burst = reads_.front();
    std::array<std::byte, kBeatBytes> beat;
    const auto part = std::span(beat).first(std::min(kBeatBytes, burst.bytes - burst.done));
    options_.host->read(burst.address + burst.done, part);
    place(nic->s_read_tdata_i.data(), part.data(), part.size());
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
    burst.done += kBeatBytes;
    if (burst.done >= burst.bytes) reads_.pop_front();
  }
  if (nic->m_read_command_tvalid_o && nic->m_read_command_tready_i) {
    reads_.push_back({.address = nic->m_read_command_address_o,
                      .bytes = nic->m_read_command_bytes_o,
                      .due = cycles() + options_.read_latency});
  }
  if (nic->written_i) confirmations_.pop_front();
  if (nic->m_write_tvalid_o && nic->m_write_tready_i) {
    Burst& burst = writes_.front();
    const auto* const words = nic->m_write_tdata_o.data();
    const std::size_t kept = static_cast<std::size_t>(std::popcount(std::uint64_t{nic->m_write_tkeep_o}));
    options_.host->write(burst.address + burst.done, std::as_bytes(std::span(words, kLanes)).first(kept));
    burst.done += kBeatBytes;
    if (nic->m_write_tlast_o) {
      burst.due = cycles() + options_.write_latency;
      confirmations_.push_back(burst);
      writes_.pop_front();
    }
  }
  if (nic->m_write_command_tvalid_o && nic->m_write_command_tready_i) {
    writes_.push_back({.address = nic->m_write_command_address_o, .bytes = nic->m_write_command_bytes_o});
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
