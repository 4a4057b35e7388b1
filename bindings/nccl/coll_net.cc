#include "coll_net.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "environment.h"
#include "group/via_switch/switch_group.h"
#include "handshake.h"
#include "log.h"

namespace netfold::nccl::coll_net {
namespace {

constexpr Nanoseconds kJoinMax = 60 * kSecond;  // all ranks call connect() at the same time

struct CollectiveRequest {
  group::SwitchGroup* group = nullptr;
  bool is_busy = false;
  group::Ticket ticket = 0;
  std::size_t bytes = 0;
};

// It has a job at each switch. NCCL hands the same sums over on all ranks in the same order, and they go to the
// switches in turn.
struct Communicator {
  std::vector<std::unique_ptr<group::SwitchGroup>> groups;
  numbers::Format floats;
  std::size_t submitted = 0;
  std::array<CollectiveRequest, kRequestsMax> requests = {};
};

std::optional<numbers::ElementType> element_of(DataType type) {
  switch (type) {
    case kFloat32: return numbers::ElementType::kFp32;
    case kFloat16: return numbers::ElementType::kFp16;
    case kBfloat16: return numbers::ElementType::kBf16;
    case kInt32:
    case kUint32: return numbers::ElementType::kInt32;  // sums of both wrap to the same bits
    default: return std::nullopt;
  }
}

numbers::Format format_of(numbers::ElementType type, numbers::Format floats) {
  switch (type) {
    case numbers::ElementType::kFp16: return numbers::Format::kFp16;
    case numbers::ElementType::kBf16: return numbers::Format::kBf16;
    case numbers::ElementType::kInt32: return numbers::Format::kInt32;
    default: return floats;
  }
}

std::string job_of(const Handle& handle) {
  std::array<char, 2 * sizeof(control::Nonce) + 1> text;
  sodium_bin2hex(text.data(), text.size(), reinterpret_cast<const unsigned char*>(handle.token.data()),
                 handle.token.size());
  return fmt::format("nccl-{}", text.data());
}

Status refuse(const std::string& text) {
  return report(Error{ErrorCode::kInvalidArgument, text});
}

}  // namespace

Status init(Logger logger) {
  return guarded([logger] {
    set_logger(logger);
    const auto& found = environment();
    if (!found) return report(found.error());
    if (found->settings.switches.empty()) {
      inform("all-reduces go among the ranks: NETFOLD_SWITCH names no switch");
    }
    return kSuccess;
  });
}

Status devices(int* count) {
  const auto& found = environment();
  *count = found && found->has_way_to_switch ? 1 : 0;
  return kSuccess;
}

// A rank accepts no connection here. The handle of rank 0 is the name of the job.
Status listen(void* handle, void** listener) {
  static char nothing_to_listen_at;
  Handle{{}, draw_nonce()}.write(HandleBytes(static_cast<std::byte*>(handle), kHandleBytes));
  *listener = &nothing_to_listen_at;
  return kSuccess;
}

Status connect(void* handles[], int ranks, int rank, void** communicator) {
  return guarded([=] {
    *communicator = nullptr;
    const auto& found = environment();
    if (!found) return report(found.error());
    const auto handle = Handle::read(HandleBytes(static_cast<std::byte*>(handles[0]), kHandleBytes));
    if (!handle) return refuse("rank 0 has another network plugin: use the same NCCL_NET_PLUGIN on all ranks");
    if (ranks > UINT16_MAX) return refuse(fmt::format("a switch takes jobs of up to 65535 ranks, not {}", ranks));
    const Settings& settings = found->settings;
    const Nanoseconds until = now() + std::min(kJoinMax, settings.timeout);
    group::SwitchGroupOptions options;
    options.job = job_of(*handle);
    options.world = static_cast<std::uint16_t>(ranks);
    options.rank = static_cast<std::uint16_t>(rank);
    options.secret = settings.secret_text;
    options.require_auth = settings.requires_auth;
    options.timeout_s = to_seconds(settings.timeout);
    options.connect_timeout_s = to_seconds(settings.connect_timeout);
    options.keep_going = [until] { return now() < until; };
    auto joined = std::make_unique<Communicator>();
    joined->floats = settings.floats;
    for (const std::string& each : settings.switches) {
      options.switch_address = each;
      auto group = group::SwitchGroup::join(options);
      if (!group) return report(group.error());
      inform(fmt::format("rank {} of {} joined {} at the switch {}", rank, ranks, options.job, each));
      joined->groups.push_back(std::move(*group));
    }
    *communicator = joined.release();
    return kSuccess;
  });
}

// NCCL makes averages of sums.
Status reduce_support(DataType type, Operation operation, int* is_supported) {
  *is_supported = operation == kSum && element_of(type) ? 1 : 0;
  return kSuccess;
}

Status iallreduce(void* communicator, void* in, void* out, std::size_t count, DataType type, Operation operation,
                  void** request) {
  return guarded([=] {
    *request = nullptr;
    auto& owner = *static_cast<Communicator*>(communicator);
    const auto element = element_of(type);
    if (!element || operation != kSum)
      return refuse(fmt::format("no sums of type {} (operation {})", +type, +operation));
    const auto free = std::ranges::find_if(owner.requests, [](const auto& each) { return !each.is_busy; });
    if (free == owner.requests.end()) return kSuccess;  // NCCL calls again
    group::CollectiveRequest wanted{.in = in, .out = out, .count = count, .type = *element};
    wanted.format = format_of(*element, owner.floats);
    group::SwitchGroup& group = *owner.groups[owner.submitted % owner.groups.size()];
    const auto submitted = group.submit(wanted);
    if (!submitted) return report(submitted.error());
    ++owner.submitted;
    *free = {&group, true, *submitted, count * numbers::size_bytes(*element)};
    *request = &*free;
    return kSuccess;
  });
}

Status test(void* request, int* is_done, int* bytes) {
  return guarded([=] {
    auto& tested = *static_cast<CollectiveRequest*>(request);
    const auto completion = tested.group->wait(tested.ticket, 0);
    *is_done = completion ? 1 : 0;
    if (!completion) return kSuccess;
    tested.is_busy = false;
    if (completion->error) return report(*completion->error);
    if (bytes != nullptr) *bytes = static_cast<int>(tested.bytes);
    return kSuccess;
  });
}

Status close_communicator(void* communicator) {
  return guarded([communicator] {
    delete static_cast<Communicator*>(communicator);
    return kSuccess;
  });
}

}  // namespace netfold::nccl::coll_net
