// A capture file of frames with simulated times, for Wireshark, tshark and scapy (pcap, nanoseconds, Ethernet).
#pragma once

#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string>

#include "switch/mac.h"

namespace netfold::rtl {

class Capture {
 public:
  explicit Capture(const std::string& path) : file_(path, std::ios::binary) {
    if (!file_) throw std::runtime_error("cannot write " + path);
    put({0xa1b23c4d, 2 | 4u << 16, 0, 0, 65535, 1});  // nanoseconds, version 2.4, Ethernet
  }
  void write(const TimedFrame& frame) {
    const std::uint64_t ns = frame.first / kTicksPerNs;
    const auto size = static_cast<std::uint32_t>(frame.bytes.size());
    put({static_cast<std::uint32_t>(ns / 1'000'000'000), static_cast<std::uint32_t>(ns % 1'000'000'000), size, size});
    file_.write(reinterpret_cast<const char*>(frame.bytes.data()), static_cast<std::streamsize>(size));
  }

 private:
  void put(std::initializer_list<std::uint32_t> words) {
    for (const std::uint32_t word : words) file_.write(reinterpret_cast<const char*>(&word), sizeof word);
  }

  std::ofstream file_;
};

}  // namespace netfold::rtl
