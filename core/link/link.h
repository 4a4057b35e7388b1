// A link carries datagrams. This page is the whole contract; memory, udp and the wrappers (fault_injector, pcap_writer)
// implement it, DPDK and simulated wires will.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ip_address.h"
#include "base/result.h"

namespace netfold::link {

// A memory link uses only the port.
struct Address {
  IpAddress ip;
  std::uint16_t port = 0;

  bool operator==(const Address&) const = default;
};

std::string to_string(Address address);  // "10.0.0.1:7171", "[fd00::1]:7171"
// "host:port"; the host is looked up. An IPv6 address stands in brackets. Of a host with both kinds of address the IPv4
// one is taken if this machine has a way to it, else the IPv6 one.
Result<Address> parse_address(const std::string& host_and_port);
// Several with commas between them, of a machine that is reached by several NICs.
std::string to_string(std::span<const Address> addresses);
Result<std::vector<Address>> parse_addresses(const std::string& text);

// A datagram to send, in up to three pieces that follow each other on the wire (header, payload, tag). The pieces must
// live until send() returns.
struct Outgoing {
  Address to;
  std::span<const std::byte> head;
  std::span<const std::byte> body;
  std::span<const std::byte> tail;

  std::size_t size_bytes() const { return head.size() + body.size() + tail.size(); }
};

// A datagram that came, valid until the next call of receive().
struct Incoming {
  Address from;
  std::span<const std::byte> bytes;
};

struct LinkStats {
  std::uint64_t sent_packets = 0, sent_bytes = 0;  // UDP payload bytes
  std::uint64_t received_packets = 0, received_bytes = 0;
  std::uint64_t send_errors = 0;  // refused by the kernel for good (counted as lost)
  std::uint64_t system_calls = 0;
};

// Of datagrams that cross the kernel as one: an IP packet's limit less headers.
inline constexpr std::size_t kSegmentedBytesMax = 65000;

class Link {
 public:
  virtual ~Link() = default;

  // Hot calls first. send: takes datagrams from the front and returns how many it took; fewer than offered means
  // "full, wait until writable". Order to one address is kept. Never blocks.
  virtual std::size_t send(std::span<const Outgoing> batch) = 0;
  // receive: what has come, at most `most` datagrams; empty if nothing. Never blocks.
  virtual std::span<const Incoming> receive(std::size_t most) = 0;

  // A wrapper that delays packets says when it wants to be called next; kNever if it does not.
  virtual Nanoseconds deadline() const { return kNever; }
  // File descriptor to poll for reading (and writing, after a short send); -1 for a link in memory.
  virtual int descriptor() const = 0;
  virtual Address local_address() const = 0;
  virtual const LinkStats& stats() const = 0;
};

}  // namespace netfold::link
