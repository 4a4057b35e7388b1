// A simulated network: machines that send each other datagrams and hold connections, in virtual time. Faults are drawn
// from a seeded generator.
//
// A machine that has lost its power is silent: what reaches it is lost, and its peers notice nothing. A process that
// dies on a running machine leaves its kernel behind, which closes its connections and resets new ones.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/line_buffer.h"
#include "base/prng.h"
#include "link/control_link.h"
#include "link/link.h"
#include "link/stream_link.h"
#include "testing/timeline.h"

namespace netfold::testing {

// What the network does to datagrams, each with its probability, and to everything.
struct Weather {
  Nanoseconds delay_min = 20 * kMicrosecond, delay_max = 40 * kMicrosecond;
  double loss = 0;
  double duplicate = 0;
  double hold = 0;  // back for up to hold_max: later ones overtake it
  Nanoseconds hold_max = kMillisecond;
  double late = 0;  // a second copy comes after up to late_max, perhaps in another life of its job
  Nanoseconds late_max = 10 * kSecond;
  double forge = 0;     // a copy with other elements comes first
  bool spoofs = false;  // a forged copy seems to come from the true sender
  double full = 0;      // the sender's link takes only some of what it is offered
};

// How a stream between ranks behaves.
struct StreamShape {
  std::size_t buffer_bytes = 65536;  // of a rank, each way
  std::size_t window_bytes = 65536;  // taken from the sender, and not yet read
  std::size_t piece_max = 65536;     // bytes that come at once
  double bytes_per_s = 0;            // 0: as fast as can be
  bool is_memory = false;            // that both processes share: what is written is there, and stays there
};

class Network {
 public:
  using OnNews = std::function<void()>;
  using OnAccept = std::function<void(std::unique_ptr<link::ControlLink>, IpAddress ip)>;
  using OnConnect = std::function<void(std::unique_ptr<link::ControlLink>)>;

  Network(Timeline& timeline, std::uint64_t seed) : timeline_(timeline), prng_(seed) {}

  void set_weather(const Weather& weather) { weather_ = weather; }
  // Nothing passes from one machine to the other any more, or all does again. Connections keep what they carry.
  void block(IpAddress from, IpAddress to, bool is_blocked);
  void switch_off(IpAddress ip);
  void switch_on(IpAddress ip) { machines_[ip].is_off = false; }
  // Breaks connections, as a firewall that forgets them does: each end hears of it. Those of a machine, or between two.
  enum class Cut { kAll, kLines, kStreams };
  void cut_connections(IpAddress ip, std::optional<IpAddress> other = {}, Cut which = Cut::kAll);
  // Streams from and to a machine carry at most this much; 0: what they can.
  void slow_down(IpAddress ip, double bytes_per_s) { limits_[ip] = bytes_per_s; }
  // Datagrams to a machine, and those from it, pass one behind the other at this rate. Few may wait: more are lost.
  void narrow(IpAddress ip, double bytes_per_s) { narrow_[ip].bytes_per_s = bytes_per_s; }
  void widen(IpAddress ip) { narrow_.erase(ip); }

  // `on_news` is called for each datagram that comes.
  std::unique_ptr<link::Link> open(link::Address local, OnNews on_news);
  void listen(link::Address local, OnAccept on_accept) { listeners_[{local.ip, local.port}] = std::move(on_accept); }
  void stop_listening(link::Address local) { listeners_.erase({local.ip, local.port}); }
  // Calls back with a connection, or with null if nobody listens there; not at all if no answer comes.
  void connect(IpAddress from, link::Address to, OnConnect on_connect);

  // Both ends of connections that are there already.
  std::array<std::unique_ptr<link::ControlLink>, 2> connect_lines(IpAddress ip, IpAddress other);
  std::array<std::unique_ptr<link::StreamLink>, 2> connect_streams(IpAddress ip, IpAddress other,
                                                                   const StreamShape& shape,
                                                                   const std::array<OnNews, 2>& on_news);

  Nanoseconds usual_confirmation() const;
  bool is_open(IpAddress from, IpAddress to) const { return !is_blocked(from, to) && !is_off(from); }
  bool is_blocked(IpAddress from, IpAddress to) const { return blocked_.contains({from, to}); }
  std::size_t connections_of(IpAddress ip) const;  // ends that a process there holds

 private:
  friend class SimulatedLink;
  friend class SimulatedControlLink;
  friend class SimulatedStream;
  struct Datagram {
    link::Address from;
    std::vector<std::byte> bytes;
  };
  struct Socket {
    std::vector<Datagram> queue;
    OnNews on_news;
  };
  struct Segment {
    Nanoseconds due;
    std::string bytes;
    bool is_end;
  };
  // One end of a connection, and what is on its way to it.
  struct End {
    IpAddress ip;
    bool is_held = true;          // by a process
    bool is_dead = false;         // its machine was switched off: it neither sends nor hears
    bool is_unconfirmed = false;  // what it sent last found no way back for the confirmation
    bool has_ended = false, is_reset = false, has_shut = false;
    std::vector<std::string> arrived;
    std::vector<Segment> on_the_way;
    OnNews on_news;
    // Of a stream.
    std::string queue;         // taken from the process, and not yet sent
    std::size_t incoming = 0;  // bytes on their way to this end, or arrived and not read
    bool is_sending = false, is_closing = false;
    OnNews on_room;
  };
  struct Connection {
    End ends[2];
    std::optional<StreamShape> stream;  // else it carries lines
  };
  struct Machine {
    bool is_off = false;
  };
  struct Narrow {  // way for datagrams
    double bytes_per_s = 0;
    Nanoseconds free_at[2] = {};  // to the machine, from it
  };
  using Key = std::pair<IpAddress, std::uint16_t>;

  std::shared_ptr<Connection> connect_now(IpAddress ip, IpAddress other, std::optional<StreamShape> stream);
  bool is_off(IpAddress ip) const;
  Nanoseconds delay();
  void transmit(link::Address from, link::Address to, std::vector<std::byte> bytes);
  std::optional<Nanoseconds> waits(IpAddress ip, bool is_from, std::size_t size_bytes);
  void deliver(link::Address from, link::Address to, Nanoseconds after, std::vector<std::byte> bytes);
  void send(const std::shared_ptr<Connection>& connection, int to, std::string bytes, bool is_end);
  void arrive(const std::shared_ptr<Connection>& connection, int to);
  void reset(const std::shared_ptr<Connection>& connection, int end, Nanoseconds after);
  void send_queue(const std::shared_ptr<Connection>& connection, int from);
  double speed_of(const Connection& connection) const;

  Timeline& timeline_;
  Prng prng_;
  Weather weather_;
  std::map<IpAddress, Machine> machines_;
  std::set<std::pair<IpAddress, IpAddress>> blocked_;
  std::map<Key, Socket> sockets_;
  std::map<Key, OnAccept> listeners_;
  std::vector<std::weak_ptr<Connection>> connections_;
  std::map<IpAddress, double> limits_;  // bytes a second
  std::map<IpAddress, Narrow> narrow_;
};

// Where a control link tells of news; a link made by the network has one.
void on_news_of(link::ControlLink& link, Network::OnNews on_news);

}  // namespace netfold::testing
