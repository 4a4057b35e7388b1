// The Verilated switch between interfaces of this machine, in place of the software's
// (switch/ethernet/kernel_switch.h): a thread carries frames between packet sockets and the MACs, and drives the
// hardware's clock. Simulated time passes while frames are in flight and shortly after. Otherwise it stands still, and
// no entry of the hardware ages.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/wakeup.h"
#include "link/packet/packet_socket.h"
#include "switch/switch_device.h"

namespace netfold::rtl {

class InterfaceSwitch {
 public:
  // At most one interface per port; port numbers are positions in the list. kSystem if one cannot be opened.
  static Result<std::unique_ptr<InterfaceSwitch>> open(const std::vector<std::string>& interfaces, bool is_float,
                                                       std::uint32_t folding_ports);
  ~InterfaceSwitch();  // stops

  void configure(bool is_float, std::uint32_t folding_ports);
  // The hardware's counters, "roce_<verdict>" and "roce_drop_<verdict>", of both versions of RoCE together; and
  // underruns, lost_outside, cycles, busy_s (of this machine's time, in which they were simulated), cycles_per_s.
  std::vector<std::pair<std::string, double>> counts();

 private:
  explicit InterfaceSwitch(std::vector<std::unique_ptr<link::PacketSocket>> sockets);
  void run();
  bool exchange();  // true: frames arrived or wait to be sent
  void send(unsigned port);
  // The device, between two of the thread's slices.
  std::unique_lock<std::mutex> hold();

  std::vector<std::unique_ptr<link::PacketSocket>> sockets_;
  std::vector<std::deque<Bytes>> arrived_, leaving_;  // by port
  netfold::Wakeup wakeup_;
  SwitchDevice device_;
  Ticks last_frame_ = 0;
  double busy_s_ = 0;
  std::uint64_t lost_ = 0;  // the queue before the switch was full, or the kernel refused the frame

  std::mutex mutex_;
  std::condition_variable turn_;
  std::atomic<unsigned> visitors_{0};
  std::atomic<bool> is_stopping_{false};
  std::thread thread_;
};

}  // namespace netfold::rtl
