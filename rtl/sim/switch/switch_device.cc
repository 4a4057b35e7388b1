#include "switch/switch_device.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

#include <verilated.h>

#include "Vnetfold_switch.h"
#include "clocked.h"

namespace netfold::rtl {

struct SwitchDevice::Model {
  VerilatedContext context;
  Vnetfold_switch top{&context};
  ~Model() { top.final(); }
};

namespace {

constexpr unsigned kResetCycles = 16, kTableCycles = 4096 / 4 + 64, kRegisterWait = 64;
constexpr Ticks kPauseQuantum = 512;

// A port's part of a vector, which Verilator stores as a number or an array of words, both little-endian.
template <class Vector>
std::byte* bytes_of(Vector& vector) {
  return reinterpret_cast<std::byte*>(&vector);
}
template <class Vector>
void set_bit(Vector& vector, unsigned port, bool value) {
  vector = static_cast<Vector>((vector & ~(Vector{1} << port)) | static_cast<Vector>(Vector{value} << port));
}
template <class Vector>
void assign(Vector& vector, std::uint32_t value) {
  vector = static_cast<Vector>(value);
}
template <class Vector>
bool bit(const Vector& vector, unsigned port) {
  return (vector >> port & 1) != 0;
}

}  // namespace

SwitchDevice::SwitchDevice(Ticks skew)
    : model_(std::make_unique<Model>()),
      receivers_(kPorts),
      senders_(kPorts, MacSender(kHasCrossings ? kMacPeriod : kCorePeriod)) {
  for (unsigned port = 0; port < kPorts; ++port) {
    port_edges_[port] = skew * port % kMacPeriod;
    on_frame(port, {});
  }
  model_->top.spi_cs_ni = 1;
  begin_reset(model_->top);
  for (unsigned i = 0; i < kResetCycles; ++i) core_cycle();
  model_->top.rst_ni = 1;
  for (unsigned i = 0; i < kTableCycles; ++i) core_cycle();
}
SwitchDevice::~SwitchDevice() = default;

void SwitchDevice::on_frame(unsigned port, MacReceiver::Sink sink) {
  senders_[port].connect([this, port, sink = std::move(sink)](const TimedFrame& frame) {
    if (!hear_pause(port, frame) && sink) sink(frame);
  });
}

// The neighbour obeys pause frames (IEEE 802.3, annex 31B).
bool SwitchDevice::hear_pause(unsigned port, const TimedFrame& frame) {
  constexpr std::array<std::uint8_t, 6> to{0x01, 0x80, 0xc2, 0, 0, 0x01};
  constexpr std::array<std::uint8_t, 4> kind{0x88, 0x08, 0, 0x01};
  if (frame.bytes.size() < 18 || std::memcmp(frame.bytes.data(), to.data(), to.size()) != 0 ||
      std::memcmp(frame.bytes.data() + 12, kind.data(), kind.size()) != 0) {
    return false;
  }
  const auto quanta = static_cast<Ticks>(frame.bytes[16]) << 8 | static_cast<Ticks>(frame.bytes[17]);
  receivers_[port].pause(now_ + quanta * kPauseQuantum);
  ++pauses_[port];
  return true;
}

void SwitchDevice::drive(unsigned port) {
  Vnetfold_switch& top = model_->top;
  const auto beat = top.rst_ni ? receivers_[port].beat(now_) : std::nullopt;
  set_bit(top.s_rx_tvalid_i, port, beat.has_value());
  if (beat) {
    std::memcpy(bytes_of(top.s_rx_tdata_i) + kBeatBytes * port, &beat->data, sizeof beat->data);
    bytes_of(top.s_rx_tkeep_i)[port] = static_cast<std::byte>((1u << beat->bytes) - 1);
    set_bit(top.s_rx_tlast_i, port, beat->is_last);
    set_bit(top.s_rx_tuser_i, port, beat->is_damaged);
  }
  is_ready_[port] = senders_[port].is_ready(now_);
  set_bit(top.m_tx_tready_i, port, is_ready_[port]);
}

void SwitchDevice::sample(unsigned port) {
  if (!is_ready_[port]) return;
  Vnetfold_switch& top = model_->top;
  if (!bit(top.m_tx_tvalid_o, port)) return senders_[port].take(now_, std::nullopt);
  Beat beat;
  std::memcpy(&beat.data, bytes_of(top.m_tx_tdata_o) + kBeatBytes * port, sizeof beat.data);
  beat.is_last = bit(top.m_tx_tlast_o, port);
  beat.is_damaged = beat.is_last && bit(top.m_tx_tuser_o, port);
  const auto keep = static_cast<std::uint8_t>(bytes_of(top.m_tx_tkeep_o)[port]);
  beat.bytes = static_cast<unsigned>(std::popcount(keep));
  if ((!beat.is_last && beat.bytes != kBeatBytes) || keep + 1u != 1u << beat.bytes || beat.bytes == 0) {
    throw std::logic_error("the switch sent a beat that is not filled from its lowest byte");
  }
  senders_[port].take(now_, beat);
}

void SwitchDevice::step() {
  Vnetfold_switch& top = model_->top;
  if constexpr (kHasCrossings) {
    now_ = std::min(core_edge_, *std::ranges::min_element(port_edges_));
  } else {
    now_ = core_edge_;
  }
  const bool is_core = core_edge_ == now_;
  const auto ticks = [&](unsigned port) { return kHasCrossings ? port_edges_[port] == now_ : is_core; };
  std::uint32_t edges = 0;
  for (unsigned port = 0; port < kPorts; ++port) {
    if (ticks(port)) edges |= 1u << port;
  }
  for (std::uint32_t left = edges; left != 0; left &= left - 1) drive(static_cast<unsigned>(std::countr_zero(left)));
  top.clk_i = 0;
  top.rx_clk_i = 0;
  top.tx_clk_i = 0;
  top.eval();
  for (std::uint32_t left = edges; left != 0; left &= left - 1) sample(static_cast<unsigned>(std::countr_zero(left)));
  top.clk_i = is_core;
  if (kHasCrossings) {
    assign(top.rx_clk_i, edges);
    assign(top.tx_clk_i, edges);
  }
  top.eval();
  for (std::uint32_t left = edges; left != 0; left &= left - 1) port_edges_[std::countr_zero(left)] += kMacPeriod;
  if (is_core) {
    core_edge_ += kCorePeriod;
    ++cycles_;
  }
}

void SwitchDevice::run_for(Ticks time) {
  for (const Ticks end = now_ + time; now_ < end;) step();
}

void SwitchDevice::core_cycle() {
  for (const std::uint64_t before = cycles_; cycles_ == before;) step();
}

std::uint32_t SwitchDevice::read(std::uint32_t offset) {
  Vnetfold_switch& top = model_->top;
  assign(top.s_axil_araddr_i, offset);
  top.s_axil_arvalid_i = 1;
  top.s_axil_rready_i = 1;
  for (unsigned i = 0; i < kRegisterWait; ++i) {
    core_cycle();
    top.s_axil_arvalid_i = 0;
    if (!top.s_axil_rvalid_o) continue;
    const std::uint32_t value = top.s_axil_rdata_o;
    core_cycle();
    top.s_axil_rready_i = 0;
    return value;
  }
  throw std::runtime_error("the switch's registers do not answer");
}

bool SwitchDevice::write(std::uint32_t offset, std::uint32_t value) {
  Vnetfold_switch& top = model_->top;
  assign(top.s_axil_awaddr_i, offset);
  top.s_axil_awvalid_i = 1;
  top.s_axil_wdata_i = value;
  top.s_axil_wvalid_i = 1;
  top.s_axil_bready_i = 1;
  for (unsigned i = 0; i < kRegisterWait; ++i) {
    core_cycle();
    top.s_axil_awvalid_i = 0;
    top.s_axil_wvalid_i = 0;
    if (!top.s_axil_bvalid_o) continue;
    const bool is_accepted = top.s_axil_bresp_o == 0;
    core_cycle();
    top.s_axil_bready_i = 0;
    return is_accepted;
  }
  throw std::runtime_error("the switch's registers do not answer");
}

}  // namespace netfold::rtl
