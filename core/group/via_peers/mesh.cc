#include "group/via_peers/mesh.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>

#include "base/wakeup.h"
#include "link/poll_set.h"
#include "link/shm/handover.h"
#include "link/tcp/control_socket.h"

namespace netfold::group {
namespace {

// Rings of a large world are smaller, so that together they stay at home in the caches.
std::size_t ring_bytes_for(int world) {
  std::size_t bytes = std::size_t{1} << 20;
  for (int ranks = 8; ranks < world && bytes > (std::size_t{1} << 17); ranks *= 2) bytes /= 2;
  return bytes;
}

tl::unexpected<Error> two_say_that_they_are(int rank) {
  return fail(ErrorCode::kMismatch, fmt::format("two processes say that they are rank {}", rank), rank);
}

// After the deadline, a rank that cannot reach a lower one has so long to tell the others. They wait twice as long.
constexpr Nanoseconds kLastWords = PeerSession::kCourtesy / 2;
constexpr Nanoseconds kLookAgain = 20 * kMillisecond;  // at streams that are carried over, and for confirmations
// A rank that waits says for whom, again and again: others may connect to it only later.
constexpr Nanoseconds kSayPeriod = 200 * kMillisecond;

std::string interfaces_in_words(std::size_t count) {
  return count == 1 ? "one interface" : fmt::format("{} interfaces", count);
}

// The first of one rank leads to the first of another, and so on.
Result<void> check_interfaces(const std::vector<std::vector<link::Address>>& addresses) {
  const std::size_t first = addresses.front().size();
  for (std::size_t rank = 1; rank < addresses.size(); ++rank) {
    const std::size_t own = addresses[rank].size();
    if (own == first) continue;
    return fail(ErrorCode::kMismatch,
                fmt::format("rank 0 has {} and rank {} has {}: name the same number of interfaces on all ranks",
                            interfaces_in_words(first), rank, interfaces_in_words(own)),
                static_cast<int>(rank));
  }
  return {};
}

// Not known yet: all higher ranks at once, and some strangers.
std::size_t visitors_max(int world) {
  return 256 + 4 * static_cast<std::size_t>(world);
}

}  // namespace

Result<std::unique_ptr<Mesh>> Mesh::listen(int rank, int world, link::Address address, bool shm,
                                           std::optional<control::Secret> secret, std::uint8_t dscp,
                                           const std::vector<std::string>& interfaces) {
  std::unique_ptr<Mesh> mesh(new Mesh(rank, world, shm && world > 1, std::move(secret)));
  if (interfaces.empty()) mesh->roads_ = {{dscp, ""}};
  for (const std::string& each : interfaces) mesh->roads_.push_back({dscp, each});
  for (const link::Road& road : mesh->roads_) {
    if (!road.interface.empty()) {
      const auto own = link::address_of_interface(road.interface, address.ip);
      if (!own) return tl::unexpected(own.error());
      address.ip = *own;
    }
    const auto listener = link::listen_at(address, road);
    if (!listener) return tl::unexpected(listener.error());
    mesh->listeners_.emplace_back(*listener);
    address.port = 0;
  }
  return mesh;
}

Mesh::Mesh(int rank, int world, bool shm, std::optional<control::Secret> secret)
    : rank_(rank),
      world_(world),
      wants_shm_(shm),
      secret_(std::move(secret)),
      peers_(static_cast<std::size_t>(world)),
      life_lines_(std::make_unique<LifeLines>(rank, world, link::epoll_set())) {}

std::vector<link::Address> Mesh::addresses() const {
  std::vector<link::Address> addresses;
  for (const link::Descriptor& each : listeners_) addresses.push_back(link::local_address_of(each.get()));
  return addresses;
}

void Mesh::carry_over(KeptPeers kept, const std::string& group) {
  bell_ = std::move(kept.bell);  // which the others know
  carry_over_ = std::make_unique<CarryOver>(rank_, world_, group, secret_, *life_lines_);
  for (int rank = 0; rank < world_; ++rank) {
    auto& other = kept.peers[static_cast<std::size_t>(rank)];
    if (!other) continue;
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    life_lines_->add(rank, std::move(other->line), group);
    peer.data = std::move(other->data);
    peer.messages = std::move(other->messages);
    peer.bell = std::move(other->bell);
    carry_over_->add(rank, *peer.data, *peer.messages);
  }
}

Result<void> Mesh::end_carry_over(const HandshakeOptions& options) {
  for (;;) {
    const auto done = carry_over_->pump(now());
    if (!done) return tl::unexpected(done.error());
    if (*done) return {};
    if (!carry_over_->arm()) continue;
    std::vector<pollfd> polls{{life_lines_->descriptor(), POLLIN, 0}};
    if (bell_) polls.push_back({bell_->descriptor(), POLLIN, 0});
    carry_over_->add_polls(polls);
    if (const auto ready = wait_until_ready(polls, now() + kLookAgain, options); !ready) {
      const int missing = carry_over_->missing_rank();
      return fail(ready.error().code,
                  fmt::format("rank {} has not taken its connection to rank {} over: {}", missing, rank_,
                              ready.error().message),
                  missing);
    }
    if (bell_ && polls[1].revents != 0) bell_->clear();
  }
}

Result<void> Mesh::connect(const std::vector<std::vector<link::Address>>& addresses, Nanoseconds deadline,
                           const std::function<bool()>& keep_going) {
  if (const auto alike = check_interfaces(addresses); !alike) return alike;
  if (wants_shm_ && !bell_) bell_ = link::Doorbell::create();
  began_ = now();
  std::vector<IpAddress> machines;
  for (const auto& each : addresses) machines.push_back(each.front().ip);
  life_lines_->set_machines(std::move(machines));
  handshake_ = {.rank = rank_,
                .world = world_,
                .bell = bell_,
                .secret = secret_,
                .tagged = is_tagged_,
                .ring_bytes = ring_bytes_for(world_),
                .tcp_streams = tcp_streams_,
                .roads = roads_,
                .deadline = deadline,
                .keep_going = keep_going};
  connect_to_lower_ranks(addresses);
  accept_higher_ranks();
  visitors_.clear();  // strangers
  wait_for_rank(kNoRank);
  if (failure_) return tl::unexpected(*failure_);
  return carry_over_ ? end_carry_over(handshake_) : Result<void>();
}

// Downwards first: rank 0 answers at once, so nobody waits in a circle. Meanwhile this rank answers the higher ones: if
// a lower rank does not answer, they must not take this one for the one that fails.
void Mesh::connect_to_lower_ranks(const std::vector<std::vector<link::Address>>& addresses) {
  HandshakeOptions options = handshake_;
  options.meanwhile = this;
  for (int lower = 0; lower < rank_; ++lower) {
    if (life_lines_->has(lower)) continue;  // carried over
    wait_for_rank(lower);
    auto links = connect_to(lower, addresses[static_cast<std::size_t>(lower)], options);
    const auto taken = links ? take(std::move(*links)) : tl::unexpected(links.error());
    if (!taken) note_failure(taken.error());
    if (failure_) options.deadline = last_words_until_;
  }
}

void Mesh::accept_higher_ranks() {
  HandshakeOptions options = handshake_;
  options.deadline += PeerSession::kCourtesy;
  for (;;) {
    if (failure_) options.deadline = last_words_until_;
    const int missing = missing_rank(failure_ ? rank_ + 1 : 0);
    if (missing == kNoRank) return;
    wait_for_rank(missing);
    std::vector<pollfd> polls;
    const Nanoseconds until = add_polls(polls);
    if (const auto ready = wait_until_ready(polls, until, options); !ready) {
      if (failure_) return;
      failure_ = Error{ready.error().code,
                       fmt::format("rank {} has not connected to rank {}: {}", missing, rank_, ready.error().message),
                       missing};
      return;
    }
    [[maybe_unused]] const auto gone_on = go_on();  // it has noted a failure
  }
}

// The others hear of it, and those that come soon, too: they must not take this rank for the one that failed.
void Mesh::note_failure(const Error& error) {
  if (failure_) return;
  failure_ = error;
  life_lines_->say_failed(error);
  last_words_until_ = now() + kLastWords;
}

Nanoseconds Mesh::add_polls(std::vector<pollfd>& polls) {
  polls.push_back({life_lines_->descriptor(), POLLIN, 0});
  for (const link::Descriptor& listener : listeners_) polls.push_back({listener.get(), POLLIN, 0});
  Nanoseconds until = says_so_at_;
  for (const Visitor& visitor : visitors_) {
    polls.push_back({visitor.descriptor(), POLLIN, 0});
    until = std::min(until, visitor.known_by());
  }
  return until;
}

Result<void> Mesh::go_on() {
  const bool had_failed = failure_.has_value();
  say_waiting(now());
  if (const auto heard = life_lines_->listen(now()); !heard) note_failure(heard.error());
  const auto served = serve();
  if (!served) note_failure(served.error());
  if (failure_ && !had_failed) return tl::unexpected(*failure_);
  if (!accept_visitors() && served && !*served) std::this_thread::sleep_for(kPartialLine);
  return {};
}

// `rank`: kNoRank where this rank can go on. When one rank stalls, others soon wait for it, and others for those. Each
// says for whom it waits, so that the first one that gives up does not blame one that only waits itself.
void Mesh::wait_for_rank(int rank) {
  if (rank == waits_for_) return;
  waits_for_ = rank;
  if (rank == kNoRank && std::exchange(has_said_so_, false)) life_lines_->say_waiting({});
  says_so_at_ = rank == kNoRank ? kNever : now() + kSayPeriod;
}

void Mesh::say_waiting(Nanoseconds now) {
  if (now < says_so_at_) return;
  life_lines_->say_waiting({waits_for_});
  has_said_so_ = true;
  says_so_at_ = now + kSayPeriod;
}

// One at each listener. True if somebody came.
bool Mesh::accept_visitors() {
  bool has_come = false;
  for (const link::Descriptor& listener : listeners_) {
    const int descriptor = accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor < 0) continue;
    has_come = true;
    visitors_.emplace_back(link::Descriptor(descriptor), now());
    if (visitors_.size() > visitors_max(world_)) visitors_.pop_front();
  }
  return has_come;
}

// True if one of them has said something.
Result<bool> Mesh::serve() {
  bool has_heard = false;
  for (auto visitor = visitors_.begin(); visitor != visitors_.end();) {
    const bool had_said_hello = visitor->has_said_hello();
    const auto state = visitor->advance(handshake_);
    if (!state) return tl::unexpected(state.error());
    has_heard = has_heard || visitor->has_said_hello() != had_said_hello;
    // A rank's data connections may be quicker than its last word over the first.
    const bool is_early =
        *state == Visitor::State::kData && visitor->rank() < world_ && !life_lines_->has(visitor->rank());
    if (*state == Visitor::State::kWaits || is_early) {
      ++visitor;
      continue;
    }
    if (*state != Visitor::State::kStranger) {
      if (auto taken = take(visitor->take_links()); !taken) return tl::unexpected(taken.error());
    }
    visitor = visitors_.erase(visitor);
    has_heard = true;
  }
  return has_heard;
}

Result<void> Mesh::take(PeerLinks links) {
  if (links.rank < 0 || links.rank >= world_ || links.rank == rank_) {
    return {};  // a stranger
  }
  Peer& peer = peers_[static_cast<std::size_t>(links.rank)];
  if (links.connection.socket.is_open()) return take_connection(peer, std::move(links));
  if (life_lines_->has(links.rank)) return two_say_that_they_are(links.rank);
  life_lines_->add(links.rank, open_life_line(std::move(links.control), links.pair, handshake_));
  peer.proof = std::move(links.proof);
  peer.pair = links.pair;
  peer.data = std::move(links.data);
  peer.messages = std::move(links.messages);
  peer.bell = std::move(links.bell);
  return {};
}

// One of those that carry a peer's data; with the last of them they become a link.
Result<void> Mesh::take_connection(Peer& peer, PeerLinks links) {
  if (!life_lines_->has(links.rank) || peer.proof != links.proof) return {};  // not that rank's
  auto& [socket, index, of, is_for_messages] = links.connection;
  if (is_for_messages) {
    if (peer.messages) return two_say_that_they_are(links.rank);
    std::vector<link::Descriptor> only;
    only.push_back(std::move(socket));
    auto stream = open_stream(std::move(only), true, peer.pair, handshake_);
    if (!stream) return tl::unexpected(stream.error());
    peer.messages = std::move(*stream);
    return {};
  }
  auto& waiting = peer.connections;
  if (waiting.empty()) waiting.resize(static_cast<std::size_t>(of));
  const bool is_expected = !peer.data && waiting.size() == static_cast<std::size_t>(of);
  const auto place = static_cast<std::size_t>(index);
  if (!is_expected || waiting[place].is_open()) return two_say_that_they_are(links.rank);
  waiting[place] = std::move(socket);
  if (!std::ranges::all_of(waiting, &link::Descriptor::is_open)) return {};
  auto stream = open_stream(std::exchange(waiting, {}), false, peer.pair, handshake_);
  if (!stream) return tl::unexpected(stream.error());
  peer.data = std::move(*stream);
  return {};
}

int Mesh::missing_rank(int from) const {
  for (int rank = from; rank < world_; ++rank) {
    const Peer& peer = peers_[static_cast<std::size_t>(rank)];
    if (rank != rank_ && (!life_lines_->has(rank) || !peer.data || !peer.messages)) return rank;
  }
  return kNoRank;
}

Result<void> Mesh::share_memory(link::Arena::Shape shape, Nanoseconds deadline,
                                const std::function<bool()>& keep_going) {
  const bool reaches_all = wants_shm_ && local_peers() + 1 == world_;
  if (world_ == 1) return {};
  if (rank_ == 0) {
    bool all_share = reaches_all;
    for (int rank = 1; rank < world_; ++rank) {
      const auto& sharing = life_lines_->sharing_of(rank);
      auto heard = wait_for_words([&] { return sharing.has_value(); }, rank, deadline, keep_going);
      if (!heard) return heard;
      all_share = all_share && sharing->all;
    }
    if (all_share) {
      auto arena = hand_out_memory(shape);
      if (!arena) return tl::unexpected(arena.error());
      arena_ = std::move(*arena);
    }
    for (int rank = 1; rank < world_; ++rank) life_lines_->say_sharing(rank, {arena_ != nullptr, {}, {}});
    return {};
  }
  const auto receiver = reaches_all ? link::FdReceiver::open() : nullptr;
  LifeLines::Sharing offer{receiver != nullptr, {}, {}};
  if (receiver) offer.receiver = receiver->name(), offer.token = receiver->token();
  life_lines_->say_sharing(0, offer);
  const auto& sharing = life_lines_->sharing_of(0);
  // If rank 0 waits in vain for another rank, it says so first.
  auto heard = wait_for_words([&] { return sharing.has_value(); }, 0, deadline + PeerSession::kCourtesy, keep_going);
  if (!heard || !sharing->all) return heard;
  arena_ = receiver ? link::Arena::map(receiver->take(), world_) : nullptr;
  if (arena_) return {};
  return fail(ErrorCode::kSystem, fmt::format("rank {} cannot map the memory that rank 0 shares with it", rank_),
              rank_);
}

// Null if the machine has no room for it.
Result<std::unique_ptr<link::Arena>> Mesh::hand_out_memory(link::Arena::Shape shape) {
  auto arena = link::Arena::create(world_, shape);
  for (int rank = 1; arena && rank < world_; ++rank) {
    const LifeLines::Sharing& sharing = *life_lines_->sharing_of(rank);
    if (link::send_fd(sharing.receiver, sharing.token, arena->descriptor())) continue;
    return fail(ErrorCode::kSystem, fmt::format("rank 0 cannot give its memory to rank {}", rank), rank);
  }
  if (arena) arena->forget_descriptor();
  return arena;
}

Result<void> Mesh::wait_for_words(const std::function<bool()>& have_come, int of_rank, Nanoseconds deadline,
                                  const std::function<bool()>& keep_going) {
  HandshakeOptions options;
  options.deadline = deadline;
  options.keep_going = keep_going;
  wait_for_rank(of_rank);
  while (!have_come()) {
    say_waiting(now());
    if (const auto heard = life_lines_->listen(now()); !heard) return heard;
    if (have_come()) break;
    if (life_lines_->has_left(of_rank)) {
      return fail(ErrorCode::kPeerFailed, fmt::format("rank {} left while rank {} connected", of_rank, rank_), of_rank);
    }
    std::array<pollfd, 1> polls{{{life_lines_->descriptor(), POLLIN, 0}}};
    // Also between two messages of this rank: a confirmation takes a while, and would never be seen right behind one.
    if (const auto ready = wait_until_ready(polls, std::min(says_so_at_, now() + kLookAgain), options); !ready) {
      return tl::unexpected(no_word(of_rank, ready.error()));
    }
  }
  wait_for_rank(kNoRank);
  return {};
}

// That rank has said nothing. It may wait for another one itself, or what it says does not arrive.
Error Mesh::no_word(int of_rank, const Error& error) const {
  const Nanoseconds time = now();
  if (const auto cut_off = life_lines_->cut_off((time - began_) / 2, time)) {
    const std::string whom = *cut_off == rank_ ? "no other machine confirms what this one sends"
                                               : "its machine does not confirm what is sent to it";
    return {error.code, fmt::format("rank {}: {}: is it cut off?", *cut_off, whom), *cut_off};
  }
  auto standings = life_lines_->standings();
  standings[static_cast<std::size_t>(rank_)].waits_for = {of_rank};
  const int stalled = find_stall(standings, rank_).rank;
  if (stalled == kNoRank || stalled == of_rank) {
    return {error.code, fmt::format("rank {}: {}", of_rank, error.message), of_rank};
  }
  return {error.code, fmt::format("rank {}: {}, and rank {} waits for it", stalled, error.message, of_rank), stalled};
}

PeerConnections Mesh::take_connections() {
  PeerConnections connections;
  for (Peer& peer : peers_) {
    connections.data.push_back(std::move(peer.data));
    connections.messages.push_back(std::move(peer.messages));
    connections.bells.push_back(std::move(peer.bell));
  }
  connections.life_lines = std::move(life_lines_);
  connections.arena = std::move(arena_);
  connections.bell = std::move(bell_);
  return connections;
}

int Mesh::local_peers() const {
  return static_cast<int>(std::count_if(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.bell; }));
}

}  // namespace netfold::group
