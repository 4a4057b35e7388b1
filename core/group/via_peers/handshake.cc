#include "group/via_peers/handshake.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sodium.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <thread>

#include "base/hex.h"
#include "base/json.h"
#include "base/wakeup.h"
#include "group/via_peers/rank_tags.h"
#include "link/shm/handover.h"
#include "link/tagged_lines.h"
#include "link/tcp/control_socket.h"
#include "link/tcp/tcp_stream.h"

namespace netfold::group {
namespace {

using link::Descriptor;
using nlohmann::json;

constexpr std::size_t kLineBytesMax = 4096;
constexpr Nanoseconds kLookAround = 100 * kMillisecond;
constexpr Nanoseconds kRetry = 20 * kMillisecond;

Result<void> send_line(int descriptor, const json& message) {
  const std::string line = message.dump() + "\n";  // far less than what a new connection takes at once
  if (send(descriptor, line.data(), line.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(line.size())) return {};
  return fail(ErrorCode::kPeerFailed, "lost its connection");
}

// Takes the line and nothing that follows it: what follows may be data. Empty: the line is not whole yet.
Result<std::optional<json>> take_line(int descriptor) {
  std::array<char, kLineBytesMax> buffer;
  const ssize_t got = recv(descriptor, buffer.data(), buffer.size(), MSG_PEEK);
  if (got < 0 && link::may_try_again()) return std::nullopt;
  if (got <= 0) return fail(ErrorCode::kPeerFailed, "closed its connection");
  const std::string_view text(buffer.data(), static_cast<std::size_t>(got));
  const std::size_t end = text.find('\n');
  if (end == text.npos) {
    if (text.size() == buffer.size()) return fail(ErrorCode::kRefused, "does not speak as a rank of netfold");
    return std::nullopt;
  }
  [[maybe_unused]] const ssize_t taken = recv(descriptor, buffer.data(), end + 1, 0);
  json message = parse_json(text.substr(0, end));
  if (message.is_object() && message.value("netfold_ranks", json()) == json(kRanksVersion)) return message;
  return fail(ErrorCode::kRefused, "does not speak as a rank of this version of netfold");
}

// Until this descriptor is ready or it is `until`. Goes on with what else there is to do.
Result<void> wait_for_one(int descriptor, short events, Nanoseconds until, const HandshakeOptions& options) {
  for (;;) {
    std::vector<pollfd> polls{{descriptor, events, 0}};
    const Nanoseconds next = options.meanwhile != nullptr ? options.meanwhile->add_polls(polls) : kNever;
    const auto ready = wait_until_ready(polls, std::min(until, next), options);
    if (!ready || polls.front().revents != 0 || now() >= until) return ready;
    if (options.meanwhile == nullptr) continue;
    if (const auto gone_on = options.meanwhile->go_on(); !gone_on) return gone_on;
  }
}

Result<json> receive_line(int descriptor, const HandshakeOptions& options) {
  for (;;) {
    if (const auto ready = wait_for_one(descriptor, POLLIN, kNever, options); !ready)
      return tl::unexpected(ready.error());
    auto line = take_line(descriptor);
    if (!line) return tl::unexpected(line.error());
    if (*line) return std::move(**line);
    std::this_thread::sleep_for(kPartialLine);
  }
}

template <class T>
T field(const json& message, const char* name, T otherwise) {
  const auto found = message.find(name);
  if (found == message.end()) return otherwise;
  if constexpr (std::is_same_v<T, std::string>) {
    return found->is_string() ? found->template get<T>() : otherwise;
  } else if constexpr (std::is_same_v<T, bool>) {
    return found->is_boolean() ? found->template get<T>() : otherwise;
  } else {
    return found->is_number_integer() ? found->template get<T>() : otherwise;
  }
}

control::Nonce draw_nonce() {
  control::Nonce nonce;
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

control::Nonce nonce_of(const json& message) {
  control::Nonce nonce = {};
  const std::string text = field(message, "nonce", std::string());
  sodium_hex2bin(reinterpret_cast<unsigned char*>(nonce.data()), nonce.size(), text.data(), text.size(), nullptr,
                 nullptr, nullptr);  // a value that is not a nonce proves nothing
  return nonce;
}

// "" without a secret.
std::string proof_for(const char* part, const control::RankPair& pair, const HandshakeOptions& options) {
  return options.secret ? to_hex(options.secret->rank_proof(part, pair)) : std::string();
}

bool is_proven(const json& message, const std::string& proof) {
  return control::equal_in_constant_time(field(message, "proof", std::string()), proof);
}

const char* name_of_stream(bool is_for_messages) {
  return is_for_messages ? "messages" : "data";
}

json hello(const HandshakeOptions& options, const char* kind) {
  return {{"netfold_ranks", kRanksVersion}, {"kind", kind}, {"rank", options.rank}, {"world", options.world}};
}

tl::unexpected<Error> about(int rank, const HandshakeOptions& options, const Error& error) {
  return fail(error.code, fmt::format("rank {}, while rank {} connects to it: {}", rank, options.rank, error.message),
              rank);
}

Result<void> check_world(int rank, const json& message, const HandshakeOptions& options) {
  const int world = field(message, "world", 0);
  if (world == options.world) return {};
  return fail(ErrorCode::kMismatch,
              fmt::format("rank {} is in a world of {}, rank {} in one of {}: start all with the same world", rank,
                          world, options.rank, options.world),
              rank);
}

// Both must want tags, or neither: else one would take bytes without.
Result<void> check_tags(int rank, const json& message, const HandshakeOptions& options) {
  const bool wants_tags = field(message, "tagged", false);
  if (wants_tags == options.tagged) return {};
  return fail(ErrorCode::kMismatch,
              fmt::format("rank {} authenticates what it sends to other ranks, and rank {} does not: give all ranks "
                          "the same require_auth (NETFOLD_REQUIRE_AUTH)",
                          wants_tags ? rank : options.rank, wants_tags ? options.rank : rank),
              rank);
}

Result<Descriptor> open_connection(link::Address address, const link::Road& road, const HandshakeOptions& options) {
  for (;;) {
    int error = 0;
    if (const auto begun = link::begin_connect(address, {}, road)) {
      Descriptor socket(*begun);
      if (const auto ready = wait_for_one(*begun, POLLOUT, kNever, options); !ready) {
        return tl::unexpected(ready.error());
      }
      error = link::connect_result(*begun);
      if (error == 0) return socket;
    }
    if (now() + kRetry >= options.deadline || (options.keep_going && !options.keep_going())) {
      const std::string by = road.interface.empty() ? "" : fmt::format(" by interface {}", road.interface);
      return fail(ErrorCode::kTimeout, fmt::format("nobody answers at {}{}: {}", link::to_string(address), by,
                                                   error != 0 ? std::strerror(error) : "no way there"));
    }
    if (const auto slept = wait_for_one(-1, 0, now() + kRetry, options); !slept) return tl::unexpected(slept.error());
  }
}

// The connections take the roads to these addresses in turn.
Result<std::unique_ptr<link::StreamLink>> connect_stream(std::span<const link::Address> addresses, bool is_for_messages,
                                                         int connections, const control::RankPair& pair,
                                                         const HandshakeOptions& options) {
  std::vector<Descriptor> sockets;
  for (int index = 0; index < connections; ++index) {
    const std::size_t way = static_cast<std::size_t>(index) % addresses.size();
    auto opened = open_connection(addresses[way], options.roads[way], options);
    if (!opened) return tl::unexpected(opened.error());
    json first = hello(options, name_of_stream(is_for_messages));
    first["proof"] = proof_for("data", pair, options);
    first["index"] = index;
    first["of"] = connections;
    if (const auto sent = send_line(opened->get(), first); !sent) return tl::unexpected(sent.error());
    sockets.push_back(std::move(*opened));
  }
  return open_stream(std::move(sockets), is_for_messages, pair, options);
}

Result<PeerLinks> connect_links(int rank, std::span<const link::Address> addresses, const HandshakeOptions& options) {
  const link::Address address = addresses.front();
  auto opened = open_connection(address, options.roads.front(), options);
  if (!opened) return tl::unexpected(opened.error());
  Descriptor control = std::move(*opened);
  const auto door = options.bell ? link::FdReceiver::open() : nullptr;
  json own = hello(options, "control");
  own["to"] = rank;
  control::RankPair pair{options.rank, rank, options.world, draw_nonce(), {}, options.tagged};
  own["nonce"] = to_hex(pair.asked);
  own["tagged"] = options.tagged;
  if (door) {
    own["door"] = door->name();
    own["token"] = door->token();
    own["bell"] = options.bell->name();
  }
  if (const auto sent = send_line(control.get(), own); !sent) return tl::unexpected(sent.error());
  const auto answer = receive_line(control.get(), options);
  if (!answer) return tl::unexpected(answer.error());
  const int found = field(*answer, "rank", kNoRank);
  pair.answers = found;
  pair.answered = nonce_of(*answer);
  pair.answerer_tags = field(*answer, "tagged", false);
  const bool is_known = is_proven(*answer, proof_for("answer", pair, options));
  json verdict = hello(options, "verdict");
  if (is_known) verdict["proof"] = proof_for("ask", pair, options);
  Result<void> meant = check_world(rank, *answer, options);
  if (meant && found != rank) {
    meant = fail(ErrorCode::kMismatch,
                 fmt::format("at its address, {}, rank {} answers: give every rank's address in the order of ranks",
                             link::to_string(address), found),
                 found);
  }
  if (meant) meant = check_tags(rank, *answer, options);
  if (!meant) {
    [[maybe_unused]] const auto sent = send_line(control.get(), verdict);  // so that the other rank reports it too
    return tl::unexpected(meant.error());
  }
  if (!is_known) {
    return fail(ErrorCode::kAuth,
                fmt::format("rank {} and rank {} do not know the same secret: give all ranks the same, or none", rank,
                            options.rank),
                rank);
  }
  PeerLinks links{.rank = rank, .pair = pair};
  if (door && field(*answer, "shm", false)) {
    const auto segment = link::ShmSegment::open(door->take()), for_messages = link::ShmSegment::open(door->take());
    auto bell = link::Doorbell::find(field(*answer, "bell", std::string()));
    if (segment && for_messages && bell) {
      links.data = link::shm_stream(*segment, false, bell);
      links.messages = link::shm_stream(*for_messages, false, bell);
    }
    if (!links.messages) links.data.reset();
    if (links.data) links.bell = std::move(bell);
  }
  verdict["shm"] = links.data != nullptr;
  if (const auto sent = send_line(control.get(), verdict); !sent) return tl::unexpected(sent.error());
  if (!links.data) {
    links.messages.reset();
    const int connections = options.tcp_streams * static_cast<int>(addresses.size());
    auto data = connect_stream(addresses, false, connections, pair, options);
    if (!data) return tl::unexpected(data.error());
    auto messages = connect_stream(addresses.first(1), true, 1, pair, options);
    if (!messages) return tl::unexpected(messages.error());
    links.data = std::move(*data);
    links.messages = std::move(*messages);
  }
  links.control = std::move(control);
  return links;
}

// For data, then for messages. Nothing if the peer is not on this machine, in this network namespace.
void offer_memory(PeerLinks& links, const json& message, const std::shared_ptr<link::Doorbell>& bell,
                  const HandshakeOptions& options) {
  const auto segment = link::ShmSegment::create(options.ring_bytes);
  const auto for_messages = link::ShmSegment::create(kMessageRingBytes);
  const auto door = field(message, "door", std::string()), token = field(message, "token", std::string());
  if (!segment || !link::send_fd(door, token, segment->descriptor())) return;
  if (!for_messages || !link::send_fd(door, token, for_messages->descriptor())) return;
  links.data = link::shm_stream(*segment, true, bell);
  links.messages = link::shm_stream(*for_messages, true, bell);
  if (!links.messages) links.data.reset();
}

}  // namespace

std::unique_ptr<link::ControlLink> open_life_line(Descriptor socket, const control::RankPair& pair,
                                                  const HandshakeOptions& options) {
  auto line = std::make_unique<link::ControlSocket>(socket.release());
  if (!options.tagged) return line;
  auto tags = rank_tags(*options.secret, "life line", pair, pair.asks == options.rank);
  return std::make_unique<link::TaggedLines>(std::move(line), std::move(tags));
}

Result<std::unique_ptr<link::StreamLink>> open_stream(std::vector<Descriptor> sockets, bool is_for_messages,
                                                      const control::RankPair& pair, const HandshakeOptions& options) {
  if (!options.tagged) return link::tcp_stream(std::move(sockets));
  const bool asks = pair.asks == options.rank;
  return link::tcp_stream(std::move(sockets), rank_tags(*options.secret, name_of_stream(is_for_messages), pair, asks));
}

Result<void> wait_until_ready(std::span<pollfd> polls, Nanoseconds until, const HandshakeOptions& options) {
  for (;;) {
    if (options.keep_going && !options.keep_going()) return fail(ErrorCode::kTimeout, "the caller gave up");
    const Nanoseconds time = now();
    if (time >= options.deadline) return fail(ErrorCode::kTimeout, "did not answer in time");
    if (time >= until) return {};
    wait_for(polls, std::min({options.deadline, until, time + kLookAround}));
    if (std::ranges::any_of(polls, [](const pollfd& each) { return each.revents != 0; })) return {};
  }
}

Result<PeerLinks> connect_to(int rank, std::span<const link::Address> addresses, const HandshakeOptions& options) {
  auto links = connect_links(rank, addresses, options);
  if (!links && links.error().rank == kNoRank) return about(rank, options, links.error());
  return links;
}

Result<Visitor::State> Visitor::advance(const HandshakeOptions& options) {
  if (state_ != State::kWaits) return state_;
  auto line = take_line(socket_.get());
  if (line && !*line) return now() < known_by_ ? State::kWaits : State::kStranger;
  if (!has_said_hello_) {
    if (!line) return State::kStranger;
    has_said_hello_ = true;
    return hear_hello(**line, options);
  }
  if (!line && options.secret) return State::kStranger;  // gone, as it could not prove anything
  if (!line) return about(links_.rank, options, line.error());
  return hear_verdict(**line);
}

Result<Visitor::State> Visitor::hear_hello(const json& message, const HandshakeOptions& options) {
  links_.rank = field(message, "rank", kNoRank);
  if (links_.rank < 0) return State::kStranger;
  const auto kind = field(message, "kind", std::string());
  if (kind == "data" || kind == "messages") {
    const bool is_for_messages = kind == "messages";
    const int index = field(message, "index", 0), of = field(message, "of", 0);
    if (of < 1 || of > (is_for_messages ? 1 : link::kTcpStreamsMax) || index < 0 || index >= of) {
      return State::kStranger;
    }
    links_.connection = {std::move(socket_), index, of, is_for_messages};
    links_.proof = field(message, "proof", std::string());
    return state_ = State::kData;
  }
  known_by_ = options.deadline;
  const int to = field(message, "to", kNoRank);
  Result<void> meant = check_world(links_.rank, message, options);
  if (to != options.rank || links_.rank <= options.rank) {
    meant = fail(ErrorCode::kMismatch,
                 fmt::format("rank {} connected to rank {} where it meant rank {}: give every rank's address in the "
                             "order of ranks",
                             links_.rank, options.rank, to),
                 links_.rank);
  }
  if (meant) meant = check_tags(links_.rank, message, options);
  if (!meant) objection_ = meant.error();

  std::shared_ptr<link::Doorbell> bell;
  if (options.bell && !objection_) bell = link::Doorbell::find(field(message, "bell", std::string()));
  if (bell) offer_memory(links_, message, bell, options);
  links_.bell = std::move(bell);
  json own = hello(options, "control");
  own["shm"] = links_.data != nullptr;
  if (links_.data) own["bell"] = options.bell->name();
  const control::RankPair pair{links_.rank,       options.rank, field(message, "world", 0),
                               nonce_of(message), draw_nonce(), field(message, "tagged", false),
                               options.tagged};
  links_.pair = pair;
  own["nonce"] = to_hex(pair.answered);
  own["tagged"] = options.tagged;
  own["proof"] = proof_for("answer", pair, options);
  awaited_proof_ = proof_for("ask", pair, options);
  links_.proof = proof_for("data", pair, options);
  const auto sent = send_line(socket_.get(), own);
  if (objection_ && !options.secret) return tl::unexpected(*objection_);
  if (!sent && !options.secret) return about(links_.rank, options, sent.error());
  return sent ? State::kWaits : State::kStranger;
}

Result<Visitor::State> Visitor::hear_verdict(const json& message) {
  if (!is_proven(message, awaited_proof_)) return State::kStranger;
  if (objection_) return tl::unexpected(*objection_);
  if (!field(message, "shm", false)) links_.data.reset(), links_.messages.reset(), links_.bell.reset();
  links_.control = std::move(socket_);
  return state_ = State::kRank;
}

}  // namespace netfold::group
