#include "membership/worker_side.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <variant>

namespace netfold::membership {

WorkerSide::WorkerSide(WorkerRequest request, Nanoseconds now)
    : request_(std::move(request)), next_tick_(now + heartbeat_) {}

void WorkerSide::on_line(std::string_view line, Nanoseconds now) {
  if (state_ == State::kFailed) return;
  missed_ = 0;
  const auto message = control::parse(line);
  if (!message) {
    return fail_with(ErrorCode::kSwitchFailed,
                     fmt::format("the program at {} is not a Netfold switch ({}): check the address",
                                 request_.switch_name, message.error().message));
  }
  if (const auto* hello = std::get_if<control::Hello>(&*message); hello && state_ == State::kConnecting) {
    return handle(*hello, now);
  }
  if (const auto* waiting = std::get_if<control::Waiting>(&*message); waiting && state_ == State::kWaiting) {
    return handle(*waiting);
  }
  if (const auto* admitted = std::get_if<control::Admitted>(&*message); admitted && state_ == State::kWaiting) {
    return handle(*admitted);
  }
  if (const auto* left = std::get_if<control::Left>(&*message); left && state_ == State::kAdmitted) {
    if (left->rank < request_.join.world && left->rank != request_.join.rank) left_.insert(left->rank);
    return;
  }
  if (const auto* refused = std::get_if<control::Refused>(&*message)) return handle(*refused);
  if (const auto* failed = std::get_if<control::Failed>(&*message)) return handle(*failed);
  if (const auto* heartbeat = std::get_if<control::Heartbeat>(&*message)) {
    if (heartbeat->link_share) link_share_ = heartbeat->link_share;
    is_late_ = is_late_ || heartbeat->is_late;
    return;
  }
  fail_with(ErrorCode::kSwitchFailed, fmt::format("the switch at {} sent '{}' out of turn: install the same Netfold on "
                                                  "the switch and on the workers",
                                                  request_.switch_name, control::type_of(*message)));
}

// The first intervals count from the start, so a host that takes the connection and says nothing is found out too.
void WorkerSide::on_time(Nanoseconds now) {
  if (state_ == State::kFailed || now < next_tick_) return;
  next_tick_ = now + heartbeat_;
  if (++missed_ > kHeartbeatsMissedMax) {
    return fail_with(ErrorCode::kSwitchFailed,
                     fmt::format("the switch at {} has been silent for {:g} s: see whether it runs and whether the "
                                 "network to it works, then start the job again",
                                 request_.switch_name, to_seconds(heartbeat_ * kHeartbeatsMissedMax)));
  }
  if (in_job()) output_ += emit(control::Heartbeat{shared_});
}

void WorkerSide::on_close(const std::string& why) {
  if (state_ == State::kFailed) return;
  fail_with(ErrorCode::kSwitchFailed,
            fmt::format("the switch at {} is gone ({}): start it again if it has stopped, then start the job again",
                        request_.switch_name, why));
}

void WorkerSide::say_ranks(const control::Ranks& ranks) {
  request_.ranks = ranks;
  if (state_ == State::kWaiting) output_ += emit(ranks);
}

void WorkerSide::say_left(std::uint16_t rank) {
  if (state_ == State::kAdmitted) output_ += emit(control::Left{rank});
}

void WorkerSide::leave(const std::optional<Error>& error) {
  if (state_ == State::kFailed) return;
  control::Leave leave;
  if (error) {
    // Until a worker hears of its admission it cannot blame another rank: all ranks may have joined.
    const int blamed = state_ == State::kAdmitted ? std::clamp(error->rank, kNoRank, control::kWorldMax - 1) : kNoRank;
    leave = control::Leave{true, error->message, error->code, blamed};
  }
  if (in_job()) output_ += emit(leave);
  state_ = State::kFailed;
  error_ = error ? *error
                 : Error{ErrorCode::kInvalidArgument, fmt::format("this worker has left job '{}'", request_.join.job)};
}

void WorkerSide::handle(const control::Hello& hello, Nanoseconds now) {
  const auto version = control::common_version(hello);
  if (!version) {
    return fail_with(ErrorCode::kRefused,
                     fmt::format("the switch at {} speaks version {} of the control protocol, this worker version {}: "
                                 "install the same Netfold on both",
                                 request_.switch_name, hello.version, control::kControlVersion));
  }
  request_.join.version = *version;
  if (hello.auth && !request_.secret) {
    return fail_with(ErrorCode::kAuth,
                     fmt::format("the switch at {} asks for a secret: give this worker the secret that "
                                 "the switch was started with",
                                 request_.switch_name));
  }
  if (request_.require_auth && !hello.tagged) {
    return fail_with(ErrorCode::kAuth,
                     fmt::format("the switch at {} does not authenticate packets, and this worker asks "
                                 "for it: start the switch with a secret, so that it authenticates them",
                                 request_.switch_name));
  }
  hello_ = hello;
  heartbeat_ = from_seconds(hello.heartbeat_s);
  next_tick_ = now + heartbeat_;
  if (request_.searches_path && hello.path_port != 0) {
    state_ = State::kSearching;
  } else {
    join();
  }
}

void WorkerSide::on_mtu(std::uint32_t mtu) {
  if (state_ != State::kSearching) return;
  request_.join.mtu = mtu;
  join();
}

void WorkerSide::join() {
  control::Join join = request_.join;
  join.timeout_s = std::clamp(join.timeout_s, control::kTimeoutSecondsMin, control::kTimeoutSecondsMax);
  join.is_hosted = join.is_hosted || join.is_host();
  if (hello_.auth) {
    join.proof = request_.secret->join_proof(hello_.nonce, join);
  } else if (request_.secret && !join.below) {
    join.token = request_.secret->token(join.job);
  }
  output_ += emit(join);
  if (request_.ranks) output_ += emit(*request_.ranks);
  state_ = State::kWaiting;
}

void WorkerSide::handle(const control::Waiting& waiting) {
  present_ = waiting.present;
}

void WorkerSide::handle(const control::Admitted& admitted) {
  if (hello_.auth) {
    const bool proven =
        admitted.proof &&
        control::equal_in_constant_time(*admitted.proof, request_.secret->admit_proof(request_.join.nonce, admitted));
    if (!proven || admitted.tagged != hello_.tagged) {
      return fail_with(ErrorCode::kAuth,
                       fmt::format("what answers at {} does not know this job's secret: it is not the switch it seems "
                                   "to be, see whether the address is right",
                                   request_.switch_name));
    }
  } else if (admitted.tagged) {
    return fail_with(ErrorCode::kAuth,
                     fmt::format("the switch at {} wants tagged packets without a secret: install the "
                                 "same Netfold on both",
                                 request_.switch_name));
  }
  lease_.job = admitted.job_id;
  lease_.epoch = admitted.epoch;
  lease_.world = request_.join.world;
  lease_.slots = admitted.slots;
  lease_.shards = static_cast<std::uint16_t>(admitted.udp_ports.size());
  lease_.payload_bytes = admitted.payload_bytes;
  lease_.bfp = request_.join.bfp;
  lease_.first_chunk = admitted.first_chunk();
  lease_.is_tree = admitted.in_tree;
  above_ = admitted.above;
  if (admitted.tagged) {
    lease_.keys.emplace(request_.secret->tag_key(admitted.salt, admitted.job_id, admitted.epoch), lease_.first_chunk);
  }
  udp_ports_ = admitted.udp_ports;
  data_ip_ = admitted.data_ip;
  state_ = State::kAdmitted;
}

void WorkerSide::handle(const control::Refused& refused) {
  retry_s_ = refused.retry_s;
  fail_with(refused.code, fmt::format("the switch at {} refused: {}", request_.switch_name, refused.reason),
            refused.rank);
}

void WorkerSide::handle(const control::Failed& failed) {
  fail_with(failed.code,
            failed.code == ErrorCode::kSwitchFailed
                ? fmt::format("the switch at {} says: {}", request_.switch_name, failed.reason)
                : failed.reason,
            failed.rank);
}

void WorkerSide::fail_with(ErrorCode code, std::string message, int rank) {
  state_ = State::kFailed;
  error_ = Error{code, std::move(message), rank};
}

std::vector<std::uint16_t> WorkerSide::missing_ranks() const {
  std::vector<std::uint16_t> missing;
  for (std::uint16_t rank = 0; rank < request_.join.world; ++rank) {
    if (rank != request_.join.rank && std::find(present_.begin(), present_.end(), rank) == present_.end()) {
      missing.push_back(rank);
    }
  }
  return missing;
}

Nanoseconds WorkerSide::deadline() const {
  return state_ == State::kFailed ? kNever : next_tick_;
}

std::string WorkerSide::take_output() {
  return std::exchange(output_, {});
}

}  // namespace netfold::membership
