#include "link/tcp/striped_stream.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>

#include "base/clock.h"
#include "link/tcp/buffered_stream.h"
#include "link/tcp/pacing.h"
#include "link/tcp/stripe_intake.h"
#include "link/tcp/stripes.h"
#include "link/tcp/tcp_stream.h"

namespace netfold::link {
namespace {

constexpr std::size_t kConnectionsMax = kTcpStreamsMax;
constexpr Nanoseconds kAskPeriod = 2 * kMillisecond;    // the kernel, for what was confirmed
constexpr Nanoseconds kStallTime = 300 * kMillisecond;  // without a confirmation, while packets are sent again
constexpr Nanoseconds kIdleTime = kSecond;              // until a slow one may be tried again
constexpr std::uint64_t kNowhere = UINT64_MAX;

// A stripe that the kernel has, or has in part.
struct Sent {
  Range range;                    // empty, at kNowhere: sent again over another connection
  std::uint64_t end_on_wire = 0;  // headers and tags included, of the bytes of this connection
};

struct Connection {
  explicit Connection(Descriptor connected) : socket(std::move(connected)) {}

  Descriptor socket;
  bool is_lost = false;
  bool has_ended = false;  // the peer has closed it

  // Sending.
  std::deque<Sent> sent;                             // that the peer's kernel has not confirmed
  std::uint64_t handed_over = 0;                     // bytes on the wire, headers and tags included
  std::uint64_t left = 0;                            // of the last stripe's bytes on the wire, still here
  std::array<std::byte, kStripeHeaderBytes> header;  // the last stripe's
  Tag tag;                                           // and its tag, where there are tags
  std::vector<std::byte> copy;                       // the last stripe's bytes, once the buffer may drop them
  Speed speed;
  bool is_stalled = false;
  Nanoseconds waits_since = 0;  // since then nothing was confirmed, or nothing sent
  std::uint64_t queued_bytes = 0;

  // Receiving, with tags.
  std::optional<StripeIntake> intake;

  // Receiving, without.
  std::array<std::byte, kStripeHeaderBytes> heading;
  std::size_t heading_bytes = 0;
  Range expected;  // the rest of a stripe

  bool is_usable() const { return !is_lost && !is_stalled; }
  bool may_bring_more() const { return !is_lost && !has_ended; }
};

class StripedStream final : public BufferedStream {
 public:
  StripedStream(std::vector<Descriptor> sockets, Descriptor timer, std::unique_ptr<MirroredMemory> out,
                std::unique_ptr<MirroredMemory> in, std::unique_ptr<Tags> tags)
      : BufferedStream(std::move(out), std::move(in)), timer_(std::move(timer)), tags_(std::move(tags)) {
    for (Descriptor& each : sockets) {
      Connection& connection = connections_.emplace_back(std::move(each));
      if (tags_) connection.intake.emplace();
    }
  }

  void add_polls(std::vector<pollfd>& polls) const override {
    for (const Connection& each : connections_) {
      const bool awaits_data = is_armed_for_data_ && each.may_bring_more() && may_take_more(each);
      const bool awaits_room = each.left > 0 && !each.is_lost;
      const auto events = static_cast<short>((awaits_data ? POLLIN : 0) | (awaits_room ? POLLOUT : 0));
      if (events != 0) polls.push_back({each.socket.get(), events, 0});
    }
    // No descriptor says that something was confirmed.
    if (!has_unsent() || is_single()) return;
    itimerspec soon{};
    soon.it_value.tv_nsec = kAskPeriod;
    timerfd_settime(timer_.get(), 0, &soon, nullptr);
    polls.push_back({timer_.get(), POLLIN, 0});
  }

 private:
  // --- Sending ---

  void send_some() override {
    if (is_broken_ || out_.used() == 0) return;
    if (!is_single()) {
      if (const Nanoseconds time = now(); time >= next_question_ || out_.free() == 0) {
        next_question_ = time + kAskPeriod;
        ask_the_kernel(time);
        drop_confirmed();
      }
    }
    for (Connection& each : connections_) {
      if (each.left > 0 && !each.is_lost) hand_over(each);
    }
    while (has_work() && !is_broken_) {
      Connection* const best = next_connection();
      if (best == nullptr || best->left > 0) break;  // the best is full: it is worth waiting for
      begin_stripe(*best);
      hand_over(*best);
    }
    if (is_single()) drop_up_to(connections_.front(), connections_.front().handed_over);
    drop_confirmed();
  }

  // Nothing is sent again then: what the kernel has need not be kept.
  bool is_single() const { return connections_.size() == 1; }

  bool has_work() const { return !again_.empty() || next_ < end_of_new(); }

  // A stripe that is sent again comes behind others in its connection, and those must find room at the other side,
  // whose user may have left a little unread before the bytes that are missing.
  std::uint64_t end_of_new() const {
    return is_single() ? out_.head : std::min(out_.head, out_.tail + out_.size() - kWorthReading);
  }

  Connection* next_connection() {
    std::array<Way, kConnectionsMax> ways;
    std::size_t count = 0;
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      const Connection& each = connections_[i];
      if (each.is_usable() && (!each.has_ended || is_single()))
        ways[count++] = {i, each.queued_bytes, each.speed.bytes_s()};
    }
    if (count == 0) return nullptr;
    return &connections_[ways[earliest({ways.data(), count}, next_stripe().size())].index];
  }

  Range next_stripe() const {
    const Range waiting = again_.empty() ? Range{next_, end_of_new()} : again_.front();
    return {waiting.from, std::min(waiting.to, waiting.from + kStripeBytesMax)};
  }

  void begin_stripe(Connection& connection) {
    const Range range = next_stripe();
    (again_.empty() ? next_ : again_.front().from) = range.to;
    if (!again_.empty() && again_.front().is_empty()) again_.pop_front();
    const StripeHeader header{range.from, static_cast<std::uint32_t>(range.size())};
    std::memcpy(connection.header.data(), &header, kStripeHeaderBytes);
    connection.copy.clear();
    if (tags_) connection.tag = tags_->of(connection.header, {out_.at(range.from), range.size()});
    connection.left = kStripeHeaderBytes + range.size() + tag_bytes();
    if (connection.sent.empty()) connection.waits_since = now();
    connection.sent.push_back({range, connection.handed_over + connection.left});
    connection.queued_bytes += connection.left;
  }

  void hand_over(Connection& to) {
    while (to.left > 0) {
      const Sent& last = to.sent.back();
      const StripeHeader header = header_of(to);
      std::byte* const bytes = to.copy.empty() ? out_.at(last.range.from) : to.copy.data();
      const std::array<iovec, 3> whole{
          {{to.header.data(), kStripeHeaderBytes}, {bytes, header.size}, {to.tag.data(), tag_bytes()}}};
      std::uint64_t done = kStripeHeaderBytes + header.size + tag_bytes() - to.left;
      std::array<iovec, 3> pieces;
      std::size_t count = 0;
      for (const iovec& each : whole) {
        const std::uint64_t gone = std::min(done, std::uint64_t{each.iov_len});
        done -= gone;
        if (gone == each.iov_len) continue;
        pieces[count++] = {static_cast<std::byte*>(each.iov_base) + gone, each.iov_len - gone};
      }
      const ssize_t sent = send_pieces(to.socket.get(), std::span(pieces).first(count));
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && may_try_again()) return;
      if (sent < 0) return lose(to, std::strerror(errno));
      to.left -= static_cast<std::uint64_t>(sent);
      to.handed_over += static_cast<std::uint64_t>(sent);
      if (to.left == 0) stats_.sent_bytes += header.size;
    }
  }

  std::size_t tag_bytes() const { return tags_ ? sizeof(Tag) : 0; }

  static StripeHeader header_of(const Connection& connection) {
    StripeHeader header;
    std::memcpy(&header, connection.header.data(), kStripeHeaderBytes);
    return header;
  }

  static ssize_t send_pieces(int socket, std::span<iovec> pieces) {
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    return sendmsg(socket, &message, MSG_NOSIGNAL);
  }

  // Learns what the peer's kernel has, how fast each connection is, and whether one carries nothing more.
  void ask_the_kernel(Nanoseconds time) {
    for (Connection& each : connections_) {
      if (each.is_lost) continue;
      tcp_info info{};
      socklen_t length = sizeof info;
      const bool has_info = getsockopt(each.socket.get(), IPPROTO_TCP, TCP_INFO, &info, &length) == 0;
      if (has_info) {
        const std::uint64_t busy_us = info.tcpi_busy_time - std::min(info.tcpi_busy_time, info.tcpi_rwnd_limited);
        each.speed.note(info.tcpi_bytes_acked, static_cast<Nanoseconds>(busy_us) * kMicrosecond);
      }
      note_confirmed(each, time);
      if (each.sent.empty() && time - each.waits_since > kIdleTime) {
        each.speed.hope();
        each.waits_since = time;
      }
      const bool sends_again = !each.sent.empty() && has_info && info.tcpi_retransmits > 0;
      if (sends_again && time - each.waits_since > kStallTime && !each.is_stalled) stall(each);
    }
  }

  void note_confirmed(Connection& of, Nanoseconds time) {
    int waiting = 0;
    if (ioctl(of.socket.get(), SIOCOUTQ, &waiting) != 0) return;
    const std::uint64_t on_its_way = std::min(static_cast<std::uint64_t>(waiting), of.handed_over);
    const std::uint64_t confirmed = of.handed_over - on_its_way, queued = on_its_way + of.left;
    const bool has_progress = queued < of.queued_bytes;
    of.queued_bytes = queued;
    drop_up_to(of, confirmed);
    if (!has_progress) return;
    of.waits_since = time;
    of.is_stalled = false;
  }

  static void drop_up_to(Connection& of, std::uint64_t on_wire) {
    while (!of.sent.empty() && of.sent.front().end_on_wire <= on_wire) of.sent.pop_front();
  }

  // Others carry what it had, if there are others.
  void stall(Connection& connection) {
    const bool is_only = std::ranges::none_of(connections_, [&](const Connection& each) {
      return &each != &connection && each.is_usable() && !each.has_ended;
    });
    if (is_only) return;
    connection.is_stalled = true;
    if (connection.left > 0 && connection.copy.empty()) {  // when it goes on, other bytes may be in this place
      const Range& last = connection.sent.back().range;
      connection.copy.assign(out_.at(last.from), out_.at(last.from) + last.size());
    }
    send_again(connection);
  }

  void send_again(Connection& connection) {
    for (Sent& each : connection.sent) {
      if (each.range.from != kNowhere) again_.push_back(each.range);
      each.range = {kNowhere, kNowhere};
    }
    std::ranges::sort(again_, {}, &Range::from);
  }

  void drop_confirmed() {
    std::uint64_t first = again_.empty() ? next_ : std::min(next_, again_.front().from);
    for (const Connection& each : connections_) {
      for (const Sent& sent : each.sent) first = std::min(first, sent.range.from);
    }
    out_.tail = first;
  }

  void lose(Connection& connection, const std::string& why) {
    connection.is_lost = true;
    connection.left = 0;
    send_again(connection);
    connection.sent.clear();
    if (!std::ranges::all_of(connections_, &Connection::is_lost)) return look_for_the_end();
    is_broken_ = true;
    ended_ = "lost its connection: " + why;
  }

  // Each connection: which of them the others' traffic leaves room for is not known here.
  void set_pace(double bytes_s) override {
    for (const Connection& each : connections_) set_socket_pace(each.socket.get(), bytes_s);
  }

  // --- Receiving ---

  std::uint64_t window_end() const { return in_.tail + in_.size(); }

  void receive_some() override {
    for (Connection& each : connections_) {
      if (is_broken_) break;
      if (each.may_bring_more()) tags_ ? receive_tagged(each) : receive_from(each);
    }
    in_.head = arrivals_.whole();
  }

  // Whether the next bytes of this connection have a place. If not, another connection brings what comes before.
  bool may_take_more(const Connection& from) const {
    return tags_ ? !from.intake->is_whole() : from.expected.from < window_end();
  }

  // A stripe that had no place when it came has one since bytes were consumed: no descriptor says so.
  bool has_more_at_hand() const override {
    return tags_ && std::ranges::any_of(connections_, [&](const Connection& each) {
             return each.may_bring_more() && each.intake->is_whole() && each.intake->range().to <= window_end();
           });
  }

  void receive_tagged(Connection& from) {
    while (!take_stripes(*from.intake) && !is_broken_) {
      const std::span<std::byte> room = from.intake->room();
      const auto got = receive(from, [&] { return recv(from.socket.get(), room.data(), room.size(), 0); });
      if (!got) return;
      from.intake->add(*got);
    }
  }

  // True if there was one, even if it has to wait for room.
  bool take_stripes(StripeIntake& intake) {
    bool has_stripe = false;
    for (;;) {
      const auto state = intake.look(*tags_);
      if (state == StripeIntake::State::kWrong) {
        is_broken_ = true;
        ended_ = "sent bytes with a wrong tag";
      }
      if (state != StripeIntake::State::kWhole) return has_stripe;
      has_stripe = true;
      const Range range = intake.range();
      if (range.to > window_end()) return true;
      // Bytes that have come before may have been read, and others be in their places.
      const auto [known, news] = next_part(range);
      if (news > 0) std::memcpy(in_.at(range.from + known), intake.bytes().data() + known, news);
      arrivals_.add(range);
      stats_.received_bytes += range.size();
      intake.drop();
    }
  }

  // The bytes that `call` has received; nothing if none have come, or none will come any more.
  template <class Call>
  std::optional<std::uint64_t> receive(Connection& from, Call call) {
    ssize_t got = -1;
    do {
      got = call();
    } while (got < 0 && errno == EINTR);
    if (got > 0) return static_cast<std::uint64_t>(got);
    if (got == 0) {
      from.has_ended = true;
      look_for_the_end();
    } else if (!may_try_again()) {
      lose(from, std::strerror(errno));
    }
    return std::nullopt;
  }

  void receive_from(Connection& from) {
    for (;;) {
      const bool had_stripe = !from.expected.is_empty();
      if (!may_take_more(from) && had_stripe) return;
      const auto [known, part] = next_part(from.expected);
      std::array<iovec, 3> pieces;
      std::size_t count = 0;
      if (known > 0) pieces[count++] = {scratch().data(), known};
      if (part > 0) pieces[count++] = {in_.at(from.expected.from + known), part};
      if (known + part == from.expected.size()) {
        pieces[count++] = {from.heading.data() + from.heading_bytes, kStripeHeaderBytes - from.heading_bytes};
      }
      msghdr message{};
      message.msg_iov = pieces.data();
      message.msg_iovlen = count;
      const auto got = receive(from, [&] { return recvmsg(from.socket.get(), &message, 0); });
      if (!got || !note_received(from, *got, known + part) || had_stripe) return;
    }
  }

  struct Part {
    std::size_t known = 0;  // bytes that have arrived before
    std::size_t more = 0;   // bytes after them for which there is room
  };
  Part next_part(const Range& expected) const {
    const std::uint64_t whole = arrivals_.whole();
    const std::uint64_t from = std::clamp(whole, expected.from, expected.to);
    const std::uint64_t to = std::max(from, std::min(expected.to, window_end()));
    return {from - expected.from, to - from};
  }

  // False for something that no rank sends.
  bool note_received(Connection& from, std::uint64_t got, std::uint64_t of_stripe) {
    const std::uint64_t bytes = std::min(got, of_stripe);
    arrivals_.add({from.expected.from, from.expected.from + bytes});
    from.expected.from += bytes;
    stats_.received_bytes += bytes;
    from.heading_bytes += got - bytes;
    if (from.heading_bytes < kStripeHeaderBytes) return true;
    StripeHeader header;
    std::memcpy(&header, from.heading.data(), kStripeHeaderBytes);
    from.heading_bytes = 0;
    if (!header.is_valid()) {
      is_broken_ = true;
      ended_ = "sent something that is not a stripe";
      return false;
    }
    from.expected = {header.position, header.position + header.size};
    return true;
  }

  // Bytes that have arrived before go there, and are not read.
  static std::span<std::byte> scratch() {
    thread_local std::array<std::byte, kStripeBytesMax> bytes;
    return bytes;
  }

  void look_for_the_end() {
    const bool may_bring_more = std::ranges::any_of(connections_, &Connection::may_bring_more);
    if (!may_bring_more && !ended_) ended_ = "closed its connection";
  }

  std::vector<Connection> connections_;
  Descriptor timer_;         // to look again at what was confirmed
  std::uint64_t next_ = 0;   // what comes next: nothing from here on was given to a connection
  std::deque<Range> again_;  // what is to be given to another one
  Nanoseconds next_question_ = 0;
  Arrivals arrivals_;
  std::unique_ptr<Tags> tags_;  // null: without
};

}  // namespace

std::unique_ptr<StreamLink> striped_stream(std::vector<Descriptor> sockets, Descriptor timer,
                                           std::unique_ptr<MirroredMemory> out, std::unique_ptr<MirroredMemory> in,
                                           std::unique_ptr<Tags> tags) {
  return std::make_unique<StripedStream>(std::move(sockets), std::move(timer), std::move(out), std::move(in),
                                         std::move(tags));
}

}  // namespace netfold::link
