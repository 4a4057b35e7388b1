// How a worker joins a job at a switch, as a state machine: attempts to reach it, each with its handshake, until one is
// admitted or time is up. Its owner opens the connections and tells the time; joining.h does so with sockets, the
// simulated cluster (core/testing) with simulated links.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "membership/control_connection.h"
#include "membership/join_options.h"
#include "membership/path_search.h"
#include "wire/path_probe.h"

namespace netfold::membership {

class JoinAttempts {
 public:
  // `options` have been checked, and must outlive this; `draw_nonce` is asked once an attempt.
  JoinAttempts(const JoinOptions& options, link::Address address, std::function<control::Nonce()> draw_nonce,
               Nanoseconds now);

  // True if a connection to the switch is wanted now: its owner begins to open one, and says how that ended, unless
  // is_connecting() has ended by itself: then it gives up that connection.
  bool begin_attempt(Nanoseconds now);
  bool is_connecting() const { return state_ == State::kConnecting; }
  void on_connected(std::unique_ptr<link::ControlLink> link, Nanoseconds now);
  void on_unreachable(const std::string& why, Nanoseconds now);

  // A packet that helps to find the MTU of the path (options.path_bytes_max): to be sent now from the socket of data
  // packets, with zeros after it up to `datagram_bytes`. on_datagram() is told what comes there.
  struct PathPacket {
    link::Address to;
    wire::PathProbeHead head;
    std::size_t datagram_bytes;
  };
  std::optional<PathPacket> next_path_packet(Nanoseconds now);
  void on_datagram(std::span<const std::byte> bytes, Nanoseconds now);
  bool is_searching() const { return search_.has_value(); }

  // Of a switch: the ranks below it, in this attempt and in later ones.
  void say_ranks(const control::Ranks& ranks);

  // Listens and speaks; to be called when something has come or deadline() has passed. Null: it goes on.
  Result<std::unique_ptr<ControlConnection>> pump(Nanoseconds now);
  Nanoseconds deadline() const;
  const ControlConnection* connection() const { return connection_.get(); }  // to poll; null between attempts

  // The connection of an attempt that has failed: the switch is to hear why (ControlConnection::leave). Null: none.
  std::unique_ptr<ControlConnection> take_connection() { return std::move(connection_); }

 private:
  enum class State { kPausing, kConnecting, kTalking };

  void begin_connecting(Nanoseconds now);
  void pause(Nanoseconds now);
  void search(Nanoseconds now);
  WorkerRequest request(Nanoseconds now) const;
  Error unreachable() const;
  Error give_up() const;
  Nanoseconds give_up_at() const;

  const JoinOptions& options_;
  link::Address address_;
  std::function<control::Nonce()> draw_nonce_;
  Nanoseconds deadline_;
  State state_ = State::kPausing;
  Nanoseconds next_attempt_ = 0, attempt_until_ = 0;
  Nanoseconds reached_by_ = 0;        // a connection must be there by then
  Nanoseconds retry_until_ = kNever;  // set by a refusal that may pass
  std::string last_ = "no answer";    // of the switch, to the last attempt
  std::optional<control::Ranks> ranks_;
  std::unique_ptr<ControlConnection> connection_;
  std::optional<PathSearch> search_;  // of the connection, before it joins
};

}  // namespace netfold::membership
