// The channel that carries a worker's messages to its right neighbour, and brings those of its left one, whose numbers
// the switch has replaced by the sum: a process over a packet socket (packet_channel.h), or an RDMA NIC
// (verbs_channel.h).
//
// Messages are numbered from 0. Each direction has room for four, message m in place m mod 4. The buffer of a message
// may be filled once the message four before is acknowledged. Received bytes stay there until the message four later is
// posted.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "base/clock.h"
#include "base/result.h"
#include "group/via_roce/roce_endpoint.h"

namespace netfold::group {

class MessageChannel {
 public:
  struct Arrived {
    std::uint32_t number;
    std::span<const std::byte> bytes;  // of a short message: the aggregation header and kShortBytes
  };

  virtual ~MessageChannel() = default;

  // Hot calls first. pump: receives what has come and sends what may go; true if the link is full and should be polled
  // for writing. An error ends the channel.
  virtual Result<bool> pump(Nanoseconds now) = 0;
  virtual std::span<std::byte> room(std::uint32_t number) = 0;
  // `is_short`: in short packets, of which only the aggregation header is read from the room. Only for
  // one-way messages.
  virtual void post(std::uint32_t number, std::size_t size_bytes, bool is_short, Nanoseconds now) = 0;
  virtual std::uint64_t acknowledged() const = 0;  // messages, in their order
  virtual std::optional<Arrived> take() = 0;       // the next message that is whole, in their order

  virtual Nanoseconds deadline() const = 0;
  virtual int descriptor() const = 0;
  // Notices of the switch about packets that were sent again; a NIC's worker gets no notices.
  virtual std::optional<wire::roce::Notice> take_notice() { return std::nullopt; }
  virtual nlohmann::json counters() const = 0;

  // Called before the first post: this endpoint and its neighbours.
  virtual QpPairInfo card() const = 0;
  virtual Result<void> connect(const QpPairInfo& right, const QpPairInfo& left) = 0;
};

// Endpoint information as text, for people and other processes.
std::string to_text(const QpPairInfo& card);
Result<QpPairInfo> parse_card(const std::string& text);

}  // namespace netfold::group
