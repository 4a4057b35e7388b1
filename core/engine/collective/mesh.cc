#include "engine/collective/mesh.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include <nlohmann/json.hpp>

#include "engine/wakeup.h"
#include "link/shm/handover.h"
#include "link/tcp/tcp_stream.h"

namespace netfold::engine {
namespace {

using nlohmann::json;

// Rings of a large world are smaller, so that together they stay at home in the caches.
std::size_t ring_bytes_for(int world) {
  std::size_t bytes = std::size_t{1} << 20;
  for (int ranks = 8; ranks < world && bytes > (std::size_t{1} << 17); ranks *= 2) bytes /= 2;
  return bytes;
}

std::string line_of(const json& message) {
  return message.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

tl::unexpected<Error> two_say_that_they_are(int rank) {
  return fail(ErrorCode::kMismatch, fmt::format("two processes say that they are rank {}", rank), rank);
}

}  // namespace

Result<std::unique_ptr<Mesh>> Mesh::listen(int rank, int world, link::Address address, bool shm,
                                           std::optional<jobs::Secret> secret) {
  const auto listener = listen_at(address);
  if (!listener) return tl::unexpected(listener.error());
  return std::unique_ptr<Mesh>(new Mesh(rank, world, *listener, shm && world > 1, std::move(secret)));
}

Mesh::Mesh(int rank, int world, int listener, bool shm, std::optional<jobs::Secret> secret)
    : rank_(rank),
      world_(world),
      listener_(listener),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wants_shm_(shm),
      secret_(std::move(secret)),
      peers_(static_cast<std::size_t>(world)),
      standings_(static_cast<std::size_t>(world)) {}

Mesh::~Mesh() {
  close(listener_);
  close(epoll_);
}

Result<void> Mesh::connect(const std::vector<link::Address>& addresses, Nanoseconds deadline,
                           const std::function<bool()>& keep_going) {
  if (wants_shm_) bell_ = link::Doorbell::create();
  const HandshakeOptions options{rank_,        world_,   bell_,     secret_, ring_bytes_for(world_),
                                 tcp_streams_, deadline, keep_going};
  // Downwards first: rank 0 answers at once, so nobody waits in a circle.
  for (int lower = 0; lower < rank_; ++lower) {
    auto links = connect_to(lower, addresses[static_cast<std::size_t>(lower)], options);
    if (!links) return tl::unexpected(links.error());
    if (auto taken = take(std::move(*links)); !taken) return taken;
  }
  if (auto accepted = accept_higher_ranks(options); !accepted) return accepted;
  for (int peer = 0; peer < world_; ++peer) {
    if (peer == rank_) continue;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = peer;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, peers_[static_cast<std::size_t>(peer)].control->descriptor(), &event);
  }
  return {};
}

Result<void> Mesh::accept_higher_ranks(const HandshakeOptions& options) {
  for (int missing = missing_rank(); missing != kNoRank; missing = missing_rank()) {
    if (const auto ready = wait_until_ready(listener_, POLLIN, options); !ready) {
      return fail(ready.error().code,
                  fmt::format("rank {} has not connected to rank {}: {}", missing, rank_, ready.error().message),
                  missing);
    }
    const int descriptor = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor < 0) continue;
    auto links = answer(descriptor, options);
    if (!links) return tl::unexpected(links.error());
    if (auto taken = take(std::move(*links)); !taken) return taken;
  }
  return {};
}

Result<void> Mesh::take(PeerLinks links) {
  if (links.rank < 0 || links.rank >= world_ || links.rank == rank_) {
    if (links.control >= 0) close(links.control);
    return {};  // a stranger
  }
  Peer& peer = peers_[static_cast<std::size_t>(links.rank)];
  if (links.connection.socket.is_open()) return take_connection(peer, std::move(links));
  if (peer.control) {
    close(links.control);
    return two_say_that_they_are(links.rank);
  }
  peer.control = std::make_unique<ControlSocket>(links.control);
  peer.proof = std::move(links.proof);
  peer.data = std::move(links.data);
  peer.bell = std::move(links.bell);
  return {};
}

// One of those that carry a peer's data; with the last of them they become a link.
Result<void> Mesh::take_connection(Peer& peer, PeerLinks links) {
  if (!peer.control || peer.proof != links.proof) return {};  // not that rank's
  auto& [socket, index, of] = links.connection;
  auto& waiting = peer.connections;
  if (waiting.empty()) waiting.resize(static_cast<std::size_t>(of));
  const bool is_expected = !peer.data && waiting.size() == static_cast<std::size_t>(of);
  const auto place = static_cast<std::size_t>(index);
  if (!is_expected || waiting[place].is_open()) return two_say_that_they_are(links.rank);
  waiting[place] = std::move(socket);
  if (!std::ranges::all_of(waiting, &link::Descriptor::is_open)) return {};
  auto stream = link::tcp_stream(std::exchange(waiting, {}));
  if (!stream) return tl::unexpected(stream.error());
  peer.data = std::move(*stream);
  return {};
}

int Mesh::missing_rank() const {
  for (int rank = 0; rank < world_; ++rank) {
    const Peer& peer = peers_[static_cast<std::size_t>(rank)];
    if (rank != rank_ && (!peer.control || !peer.data)) return rank;
  }
  return kNoRank;
}

Result<std::unique_ptr<link::Arena>> Mesh::share_memory(link::Arena::Shape shape, Nanoseconds deadline,
                                                        const std::function<bool()>& keep_going) {
  const bool reaches_all = wants_shm_ && local_peers() + 1 == world_;
  if (world_ == 1) return nullptr;
  if (rank_ == 0) {
    bool all_share = reaches_all;
    for (int rank = 1; rank < world_; ++rank) {
      const auto& shares = peers_[static_cast<std::size_t>(rank)].shares;
      const auto heard = wait_for_words([&] { return shares.has_value(); }, rank, deadline, keep_going);
      if (!heard) return tl::unexpected(heard.error());
      all_share = all_share && *shares;
    }
    Result<std::unique_ptr<link::Arena>> arena;
    if (all_share) arena = hand_out_memory(shape);
    if (!arena) return arena;
    for (int rank = 1; rank < world_; ++rank) tell(rank, line_of({{"kind", "shares"}, {"all", *arena != nullptr}}));
    return arena;
  }
  const auto door = reaches_all ? link::Door::open() : nullptr;
  json offer = {{"kind", "shares"}, {"all", door != nullptr}};
  if (door) offer["door"] = door->name(), offer["token"] = door->token();
  tell(0, line_of(offer));
  const auto& all_share = peers_[0].shares;
  const auto heard = wait_for_words([&] { return all_share.has_value(); }, 0, deadline, keep_going);
  if (!heard) return tl::unexpected(heard.error());
  if (!*all_share) return nullptr;
  if (auto arena = door ? link::Arena::map(door->take(), world_) : nullptr) return arena;
  return fail(ErrorCode::kSystem, fmt::format("rank {} cannot map the memory that rank 0 shares with it", rank_),
              rank_);
}

// Null if the machine has no room for it.
Result<std::unique_ptr<link::Arena>> Mesh::hand_out_memory(link::Arena::Shape shape) {
  auto arena = link::Arena::create(world_, shape);
  for (int rank = 1; arena && rank < world_; ++rank) {
    const Peer& peer = peers_[static_cast<std::size_t>(rank)];
    if (link::hand_in(peer.door, peer.token, arena->descriptor())) continue;
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
  while (!have_come()) {
    if (const auto heard = listen_to_all(); !heard) return heard;
    if (have_come()) break;
    if (has_left(of_rank)) {
      return fail(ErrorCode::kPeerFailed, fmt::format("rank {} left while rank {} connected", of_rank, rank_), of_rank);
    }
    if (const auto ready = wait_until_ready(epoll_, POLLIN, options); !ready) {
      return fail(ready.error().code, fmt::format("rank {}: {}", of_rank, ready.error().message), of_rank);
    }
  }
  return {};
}

std::vector<std::shared_ptr<link::Doorbell>> Mesh::bells() const {
  std::vector<std::shared_ptr<link::Doorbell>> bells;
  for (const Peer& peer : peers_) bells.push_back(peer.bell);
  return bells;
}

std::vector<link::StreamLink*> Mesh::links() const {
  std::vector<link::StreamLink*> links;
  for (const Peer& peer : peers_) links.push_back(peer.data.get());
  return links;
}

Result<void> Mesh::listen_to_all() {
  std::array<epoll_event, 64> events;
  const int ready = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < ready; ++i) {
    const int rank = events[static_cast<std::size_t>(i)].data.fd;
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    Result<void> heard;
    const auto outcome = peer.control->read([&](std::string_view line) {
      if (heard) heard = hear(rank, line);
    });
    if (!heard) return heard;
    if (outcome.state == ControlSocket::State::kOpen) continue;
    epoll_ctl(epoll_, EPOLL_CTL_DEL, peer.control->descriptor(), nullptr);
    if (peer.has_left) continue;
    return fail(ErrorCode::kPeerFailed, fmt::format("rank {} died or was cut off: it {}", rank, outcome.why), rank);
  }
  return {};
}

Result<void> Mesh::hear(int rank, std::string_view line) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  const json message = json::parse(line, nullptr, false);
  const auto kind = message.is_object() ? message.value("kind", json()) : json();
  const auto number = [&](const char* name) {
    const auto found = message.find(name);
    return found != message.end() && found->is_number_integer() ? found->get<int>() : kNoRank;
  };
  const auto text = [&](const char* name) {
    const auto found = message.find(name);
    return found != message.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  if (kind == "shares") {
    peer.shares = message.value("all", json()) == json(true);
    peer.door = text("door");
    peer.token = text("token");
  } else if (kind == "leave") {
    peer.has_left = true;
  } else if (kind == "waiting") {
    const auto ranks = message.value("for", json());
    auto& waits_for = standings_[static_cast<std::size_t>(rank)].waits_for;
    waits_for.clear();
    for (const json& each : ranks.is_array() ? ranks : json::array()) {
      if (each.is_number_integer()) waits_for.push_back(each.get<int>());
    }
  } else if (kind == "moving") {
    standings_[static_cast<std::size_t>(rank)].moved_at = now();
  } else if (kind == "failed") {
    failed_by_ = number("by") == kNoRank ? rank : number("by");
    // What is blamed on us looks from here like the fault of whoever says so.
    const int blamed = number("rank") == rank_ ? failed_by_ : number("rank");
    const int code = std::clamp(number("code"), 0, static_cast<int>(ErrorCode::kSystem));
    std::string said = text("text").empty() ? "it failed" : text("text");
    if (failed_by_ == rank) said += fmt::format(" (says rank {})", rank);
    return fail(static_cast<ErrorCode>(code), std::move(said), blamed == kNoRank ? rank : blamed);
  }
  return {};
}

void Mesh::tell(int rank, const std::string& line) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (rank != rank_ && peer.control && !peer.has_left) peer.control->write(line);  // if it is gone, reading shows it
}

void Mesh::tell_all(const std::string& line) {
  for (int rank = 0; rank < world_; ++rank) tell(rank, line);
}

bool Mesh::somebody_waits() const {
  return std::any_of(standings_.begin(), standings_.end(), [](const Standing& s) { return !s.waits_for.empty(); });
}

void Mesh::say_waiting(const std::vector<int>& for_ranks) {
  tell_all(line_of({{"kind", "waiting"}, {"for", for_ranks}}));
}

void Mesh::say_moving() {
  tell_all(line_of({{"kind", "moving"}}));
}

void Mesh::say_failed(const Error& error) {
  tell_all(line_of({{"kind", "failed"},
                    {"code", static_cast<int>(error.code)},
                    {"rank", error.rank},
                    {"by", failed_by_ == kNoRank ? rank_ : failed_by_},
                    {"text", error.message}}));
}

void Mesh::leave() {
  const std::string line = line_of({{"kind", "leave"}});
  for (int rank = 0; rank < world_; ++rank) {
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    if (!peer.control) continue;
    tell(rank, line);
    peer.control->shut_down_writing();
    peer.control->read([](std::string_view) {});  // what is left unread would make the kernel forget our last words
  }
}

std::vector<pollfd> Mesh::news(int wake, bool with_bell) const {
  std::vector<pollfd> descriptors{{wake, POLLIN, 0}, {epoll_, POLLIN, 0}};
  for (const Peer& peer : peers_) {
    if (peer.data) peer.data->add_polls(descriptors);
  }
  if (bell_ && with_bell) descriptors.push_back({bell_->descriptor(), POLLIN, 0});
  return descriptors;
}

void Mesh::sleep(int wake, Nanoseconds deadline) const {
  auto descriptors = news(wake, true);
  wait_for(descriptors, deadline);
  if (bell_ && descriptors.back().revents != 0) clear_bell();
}

bool Mesh::has_unsent() const {
  return std::any_of(peers_.begin(), peers_.end(), [](const Peer& p) { return p.data && p.data->has_unsent(); });
}

int Mesh::local_peers() const {
  return static_cast<int>(std::count_if(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.bell; }));
}

}  // namespace netfold::engine
