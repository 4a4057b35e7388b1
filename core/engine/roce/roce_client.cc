#include "engine/roce/roce_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/roce/packet_channel.h"
#include "engine/roce/verbs_channel.h"
#include "link/fault_injector.h"
#include "link/packet/packet_link.h"
#include "link/pcap_writer.h"

namespace netfold::engine {
namespace {

// Who leaves first says nothing as long as its right neighbour lacks a sum, which only it can ask the switch for again,
// nor while its left one may wait for an acknowledgement. Bounded: they may be gone.
constexpr Nanoseconds kLinger = 50 * kMillisecond, kLeaveMost = 2 * kSecond;

Result<std::unique_ptr<MessageChannel>> open_packets(const RoceClientOptions& options) {
  auto opened = link::open_packet_link(
      {.interface = options.device, .ether_types = {wire::roce::kEtherType, wire::roce::kNoticeEtherType}});
  if (!opened) return tl::unexpected(opened.error());
  auto link = std::move(opened->link);
  if (!options.faults.empty()) {
    const auto faults = link::parse_faults(options.faults);
    if (!faults) return tl::unexpected(faults.error());
    link = link::inject_faults(std::move(link), *faults, &now);
  }
  if (!options.pcap_path.empty()) {
    auto captured = link::capture_frames(std::move(link), options.pcap_path);
    if (!captured) return tl::unexpected(captured.error());
    link = std::move(*captured);
  }
  PacketChannelOptions channel;
  channel.mac = opened->mac;
  channel.queue_pair = 0x100u + 2u * options.job.job;
  channel.first_psn = options.first_psn;
  channel.key = 0x4e46u << 16 | options.job.epoch;
  channel.sender.window_packets = options.window_packets;
  return std::make_unique<PacketChannel>(std::move(link), channel);
}

}  // namespace

Result<std::unique_ptr<RoceClient>> RoceClient::open(RoceClientOptions options) {
  if (options.job.rank >= options.job.world || options.job.world < 2) {
    return netfold::fail(ErrorCode::kInvalidArgument,
                         fmt::format("rank {} of {}: RoCE workers write to each other in a ring, so there are two at "
                                     "least, and ranks are below their number",
                                     options.job.rank, options.job.world));
  }
  auto channel = options.uses_verbs ? open_verbs_channel(options.device) : open_packets(options);
  if (!channel) return tl::unexpected(channel.error());
  return std::unique_ptr<RoceClient>(new RoceClient(std::move(options), std::move(*channel)));
}

RoceClient::RoceClient(RoceClientOptions options, std::unique_ptr<MessageChannel> channel)
    : options_(std::move(options)),
      channel_(std::move(channel)),
      stream_(options_.job, *channel_),
      counters_(channel_->counters()),
      completions_(options_.on_completion) {}

RoceClient::~RoceClient() {
  close();
}

std::string RoceClient::card() const {
  return to_text(channel_->card());
}

Result<void> RoceClient::connect(const std::vector<std::string>& cards) {
  const std::size_t world = options_.job.world, rank = options_.job.rank;
  if (cards.size() != world || thread_.joinable()) {
    return netfold::fail(ErrorCode::kInvalidArgument,
                         fmt::format("connect() once, with the cards of all {} ranks", world));
  }
  const auto right = parse_card(cards[(rank + 1) % world]);
  const auto left = parse_card(cards[(rank + world - 1) % world]);
  if (!right) return tl::unexpected(right.error());
  if (!left) return tl::unexpected(left.error());
  if (const auto connected = channel_->connect(*right, *left); !connected) return connected;
  thread_ = std::thread([this] { run(); });
  return {};
}

Result<RoceClient::Ticket> RoceClient::hand_over(const AllReduce& request, const CollectiveOptions& how,
                                                 bool is_awaited) {
  if (const auto valid = engine::check(request); !valid) return tl::unexpected(valid.error());
  if (how.collective != schedule::Collective::kAllReduce) {
    return netfold::fail(ErrorCode::kInvalidArgument, "a switch serves all-reduces alone");
  }
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) return netfold::fail(ErrorCode::kInvalidArgument, "connect() comes first");
  const Ticket ticket = completions_.issue(is_awaited);
  if (failure_ || is_closing_) {
    completions_.add({ticket}, failure_.value_or(Error{ErrorCode::kInvalidArgument, "this worker is closed"}));
    return ticket;
  }
  submitted_.push_back({ticket, request});
  wakeup_.wake();
  return ticket;
}

void RoceClient::close(std::optional<Error>) {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
  }
  wakeup_.wake();
  if (thread_.joinable()) thread_.join();
  completions_.close();
}

nlohmann::json RoceClient::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

void RoceClient::run() {
  set_up_thread(fmt::format("nf-roce-{}", options_.job.rank), options_.core);
  Nanoseconds left_at = kNever, settled_at = kNever;
  for (;;) {
    const Nanoseconds time = now();
    std::deque<Submission> taken;
    {
      const std::lock_guard lock(mutex_);
      if (is_closing_ && left_at == kNever) left_at = time;
      taken.swap(submitted_);
    }
    if (left_at != kNever) {
      if (failure_ || !stream_.is_idle() || time - left_at > kLeaveMost) break;
      if (!stream_.is_acknowledged())
        settled_at = kNever;
      else if (settled_at == kNever)
        settled_at = time;
      if (settled_at != kNever && time - settled_at > kLinger) break;
    }
    for (const Submission& each : taken) stream_.submit(each.ticket, each.request, time);
    if (!failure_) progress(time);
    sleep();
  }
  fail({ErrorCode::kInvalidArgument, "this worker is closed"});
}

void RoceClient::progress(Nanoseconds time) {
  do {
    const auto pumped = channel_->pump(time);
    if (!pumped) return fail(pumped.error());
    link_is_full_ = *pumped;
  } while (stream_.step(time) && !link_is_full_);
  if (auto finished = stream_.take_finished(); !finished.empty()) complete(finished, std::nullopt);
  if (stream_.failure()) return fail(*stream_.failure());
  if (const auto error = stream_.overdue(time, from_seconds(options_.timeout_s))) fail(*error);
}

void RoceClient::sleep() {
  const short events = link_is_full_ ? POLLIN | POLLOUT : POLLIN;
  std::array<pollfd, 2> descriptors{{{wakeup_.descriptor(), POLLIN, 0}, {channel_->descriptor(), events, 0}}};
  Nanoseconds deadline = channel_->deadline();
  if (!stream_.is_idle()) deadline = std::min(deadline, stream_.last_progress() + from_seconds(options_.timeout_s));
  bool is_closing;
  {
    const std::lock_guard lock(mutex_);
    is_closing = is_closing_;
    if (!submitted_.empty()) return;
  }
  if (is_closing) deadline = std::min(deadline, now() + kMillisecond);
  const bool is_over = failure_ && !is_closing;  // only close() is still of interest
  wait_for(std::span(descriptors).first(is_over ? 1 : 2), is_over ? kNever : deadline);
  if (descriptors[0].revents != 0) wakeup_.clear();
}

void RoceClient::fail(const Error& error) {
  std::vector<Ticket> tickets = stream_.abandon();
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = error;
    for (const Submission& each : submitted_) tickets.push_back(each.ticket);
    submitted_.clear();
  }
  complete(tickets, error);
}

void RoceClient::complete(const std::vector<Ticket>& tickets, const std::optional<Error>& error) {
  {
    const std::lock_guard lock(mutex_);
    counters_ = channel_->counters();
    counters_["reduced_elements"] = stream_.reduced_elements();
    counters_["cpu_s"] = thread_cpu_s();
  }
  completions_.add(tickets, error);
}

}  // namespace netfold::engine
