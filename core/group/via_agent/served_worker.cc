#include "group/via_agent/served_worker.h"

#include <fmt/core.h>

#include <array>
#include <new>

#include "base/json.h"
#include "base/log.h"
#include "base/thread.h"
#include "group/via_agent/messages.h"
#include "group/via_switch/switch_group.h"
#include "wire/control/fields.h"

namespace netfold::group {
namespace {

using nlohmann::json;

constexpr Nanoseconds kOpeningTime = 10 * kSecond;       // from connecting to the first message
constexpr Nanoseconds kBeatPeriod = 100 * kMillisecond;  // of the sign of life, while the engine works

}  // namespace

ServedWorker::ServedWorker(LocalSocket socket, std::string agent, std::function<void()> on_end)
    : socket_(std::move(socket)), agent_(std::move(agent)), on_end_(std::move(on_end)), thread_([this] { run(); }) {}

ServedWorker::~ServedWorker() {
  stop("was stopped");
  thread_.join();
  if (engine_) engine_->close();
}

void ServedWorker::stop(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (!stop_reason_) stop_reason_ = why;
  stop_bell_.wake();
}

std::optional<std::string> ServedWorker::stop_reason() const {
  const std::lock_guard lock(mutex_);
  return stop_reason_;
}

bool ServedWorker::goes_on() const {
  return !stop_reason() && memory_->is_alive() && !socket_.has_ended();
}

void ServedWorker::run() {
  set_up_thread("nf-agent", kAnyCore);
  if (const auto opened = open()) {
    serve();
  } else {
    log::warn("a worker was turned away: {}", opened.error().message);
    socket_.send({{"error", to_json(opened.error())}});
  }
  is_over_ = true;
  on_end_();
}

Result<void> ServedWorker::open() {
  const auto peer = socket_.peer();
  if (!peer) return tl::unexpected(peer.error());
  const auto opening = socket_.await(now() + kOpeningTime, [this] { return !stop_reason(); });
  if (!opening) return tl::unexpected(opening.error());
  auto memory = WorkerMemory::of(peer->pid);
  if (!memory) return tl::unexpected(memory.error());
  memory_.emplace(std::move(*memory));
  return open_engine(opening->body);
}

// The token shows that the process that connected is the one whose memory we reach, and that the kernel lets us.
Result<void> ServedWorker::open_engine(const json& opening) {
  control::Fields fields(opening);
  const std::string kind = fields.text("open", 16);
  const auto version = fields.integer<std::uint32_t>("version", 0, UINT32_MAX);
  const auto probe = fields.integer<std::uint64_t>("probe", 0, INT64_MAX);
  const auto token = fields.integer<std::uint64_t>("token", 0, INT64_MAX);
  if (!fields.problem() && version != kChannelVersion) {
    return netfold::fail(ErrorCode::kRefused,
                         fmt::format("{} and the worker are of different versions of Netfold ({} and {}): start the "
                                     "agent again",
                                     agent_, kChannelVersion, version));
  }
  if (!fields.problem() && !opening.contains("options")) fields.complain<int>("options", "is missing");
  if (fields.problem()) return netfold::fail(ErrorCode::kInvalidArgument, *fields.problem());
  std::uint64_t found = 0;
  const auto read = memory_->read(probe, sizeof found, reinterpret_cast<std::byte*>(&found));
  if (!read) return tl::unexpected(read.error());
  if (found != token) return netfold::fail(ErrorCode::kRefused, "the worker's memory is not what it says");

  auto channel = link::make_shared_memory(sizeof(Channel), true);
  if (!channel) return tl::unexpected(channel.error());
  auto mapping = link::Mapping::of(*channel, 0, sizeof(Channel), true);
  if (!mapping) return tl::unexpected(mapping.error());
  auto log = UndoLog::make();
  if (!log) return tl::unexpected(log.error());
  const auto log_for_worker = log->for_worker();
  if (!log_for_worker) return tl::unexpected(log_for_worker.error());
  channel_memory_.emplace(std::move(*mapping));
  channel_ = new (channel_memory_->data()) Channel{};
  log_.emplace(std::move(*log));
  auto made = make_engine(kind, opening["options"]);
  if (!made) return tl::unexpected(made.error());
  relay_.emplace(*channel_, *memory_, *log_, *engine_, world_, rank_);
  channel_->alive_at = now();
  log::info("rank {}, process {}: {}", rank_, memory_->pid(), json_text(*made));
  return socket_.send({{"opened", *made}},
                      {channel->get(), log_for_worker->get(), request_bell_.descriptor(), answer_bell_.descriptor()});
}

Result<json> ServedWorker::make_engine(const std::string& kind, const json& options) {
  const auto on_completion = [this] { engine_bell_.wake(); };
  if (kind == "host") {
    auto wanted = host_group_options(options);
    if (!wanted) return tl::unexpected(wanted.error());
    world_ = wanted->world;
    rank_ = wanted->rank;
    wanted->on_completion = on_completion;
    auto group = PeerGroup::open(*wanted);
    if (!group) return tl::unexpected(group.error());
    group_ = group->get();
    engine_ = std::move(*group);
    return json{{"address", group_->address()}};
  }
  auto wanted = client_options(options);
  if (!wanted) return tl::unexpected(wanted.error());
  world_ = wanted->world;
  rank_ = wanted->rank;
  wanted->on_completion = on_completion;
  wanted->keep_going = [this] { return goes_on(); };
  auto client = SwitchGroup::join(*wanted);
  if (!client) return tl::unexpected(client.error());
  json lease = to_json((*client)->lease());
  engine_ = std::move(*client);
  return lease;
}

void ServedWorker::serve() {
  for (;;) {
    const bool has_moved = work();
    channel_->alive_at.store(now(), std::memory_order_relaxed);
    if (!has_moved) sleep();
    if ((!has_moved || now() >= next_look_) && !look()) return;
  }
}

bool ServedWorker::work() {
  if (has_failed_) return false;
  const auto moved = relay_->step();
  if (!moved) {
    fail(moved.error());
    return false;
  }
  if (relay_->worker_must_wake()) answer_bell_.wake();
  return *moved;
}

void ServedWorker::sleep() {
  if (!has_failed_ && !relay_->may_sleep()) return;
  std::array<pollfd, 5> descriptors{{{socket_.descriptor(), POLLIN, 0},
                                     {memory_->descriptor(), POLLIN, 0},
                                     {stop_bell_.descriptor(), POLLIN, 0},
                                     {request_bell_.descriptor(), POLLIN, 0},
                                     {engine_bell_.descriptor(), POLLIN, 0}}};
  const bool is_busy = !has_failed_ && !relay_->is_idle();
  wait_for(descriptors, is_busy ? now() + kBeatPeriod : kNever);
  if (descriptors[3].revents != 0) request_bell_.clear();
  if (descriptors[4].revents != 0) engine_bell_.clear();
}

bool ServedWorker::look() {
  next_look_ = now() + kLookPeriod;
  if (const auto why = stop_reason()) {
    fail({ErrorCode::kPeerFailed, fmt::format("{}, which folds for rank {}, {}", agent_, rank_, *why), rank_});
    return false;
  }
  const auto message = socket_.receive();
  if (message && *message) return handle((*message)->body);
  if (message && memory_->is_alive()) return true;
  log::info("rank {}, process {}, is gone", rank_, memory_->pid());
  engine_->close(Error{ErrorCode::kPeerFailed,
                       fmt::format("the worker of rank {} (process {}) is gone", rank_, memory_->pid()), rank_});
  return false;
}

bool ServedWorker::handle(const json& message) {
  if (message.contains("connect")) {
    socket_.send(connect(message));
  } else if (message.contains("count")) {
    socket_.send({{"counters", counters()}});
  } else if (message.contains("close")) {
    std::optional<Error> parting;
    if (!relay_->is_idle()) {
      parting =
          Error{ErrorCode::kPeerFailed, fmt::format("rank {} closed in the middle of a collective", rank_), rank_};
    }
    if (message["close"].is_string() && message["close"] != "") {
      parting = Error{ErrorCode::kPeerFailed, message["close"].get<std::string>(), rank_};
    }
    engine_->close(parting);
    socket_.send({{"closed", counters()}});
    return false;
  } else {
    socket_.send({{"error", to_json({ErrorCode::kInvalidArgument, "the agent knows no such message"})}});
  }
  return true;
}

json ServedWorker::connect(const json& message) {
  const auto wanted = connecting_of(message);
  if (!wanted) return {{"error", to_json(wanted.error())}};
  if (group_ == nullptr)
    return {{"error", to_json({ErrorCode::kInvalidArgument, "only ranks without a switch connect"})}};
  group_->set_physical_order(wanted->order);
  const auto connected = group_->connect(wanted->addresses, [this] { return goes_on(); });
  if (!connected) return {{"error", to_json(connected.error())}};
  return {{"connected", true}};
}

// The worker may put its memory back as soon as it reads the failure: the relay is not asked again.
void ServedWorker::fail(const Error& error) {
  if (has_failed_) return;
  has_failed_ = true;
  log::warn("rank {}: {}", rank_, error.message);
  channel_->failure.set(error);
  answer_bell_.wake();
  engine_->close(error);
}

json ServedWorker::counters() const {
  json all = engine_->counters();
  all["cpu_s"] = all["cpu_s"].get<double>() + thread_cpu_s();
  return all;
}

}  // namespace netfold::group
