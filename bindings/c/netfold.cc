// The C interface (core/include/netfold.h) over group::PeerGroup, group::NicGroup and group::RoceGroup: options in,
// statuses out, no exception past here.
#include "netfold.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "base/comma_list.h"
#include "base/fork.h"
#include "group/via_nic/nic_group.h"
#include "group/via_peers/peer_group.h"
#include "group/via_roce/roce_group.h"
#include "group/via_roce/roce_place.h"

using netfold::ErrorCode;
using netfold::Nanoseconds;
using netfold::group::CollectiveRequest;
using netfold::group::NicGroup;
using netfold::group::PeerGroup;
using netfold::group::PeerGroupOptions;
using netfold::group::RoceGroup;
using netfold::group::RoceGroupOptions;
using netfold::numbers::ElementType;
using netfold::numbers::Format;
using netfold::numbers::Operation;
using netfold::schedule::Collective;

struct nf_group {
  netfold::ProcessOwned<netfold::group::Group> engine;
  std::string address;
  int world;
  PeerGroup* peers = nullptr;  // one of the three is `engine`, the others are null
  NicGroup* nic = nullptr;
  RoceGroup* roce = nullptr;
};

namespace {

constexpr double kSecondsMax = 1e9;
constexpr const char* kTimeoutRule = "a timeout is 0 to 1e9 seconds";

nf_status status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return NF_INVALID_ARGUMENT;
    case ErrorCode::kTimeout: return NF_TIMEOUT;
    case ErrorCode::kMismatch: return NF_MISMATCH;
    case ErrorCode::kSystem: return NF_SYSTEM;
    default: return NF_PEER_FAILED;
  }
}

nf_status failed(nf_error* to, nf_status status, const std::string& text, int rank = netfold::kNoRank) {
  if (to == nullptr) return status;
  to->status = status;
  to->rank = rank;
  to->text[text.copy(to->text, sizeof to->text - 1)] = '\0';
  return status;
}

nf_status failed(nf_error* to, const netfold::Error& error) {
  return failed(to, status_of(error.code), error.message, error.rank);
}

nf_status wrong(nf_error* to, const std::string& text) {
  return failed(to, NF_INVALID_ARGUMENT, text);
}

// Nothing the engine does throws but the memory it asks for.
template <class Body>
nf_status guarded(nf_error* error, Body body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return failed(error, NF_SYSTEM, "out of memory");
  } catch (const std::exception& exception) {
    return failed(error, NF_SYSTEM, exception.what());
  } catch (...) {
    return failed(error, NF_SYSTEM, "an unknown exception");
  }
}

// A program built with an earlier header hands over a shorter struct: what it lacks keeps its default.
template <class Options>
std::optional<Options> known_part(const Options& given, const Options& defaults) {
  if (given.struct_bytes < sizeof(std::size_t)) return std::nullopt;
  Options options = defaults;
  std::memcpy(&options, &given, std::min(given.struct_bytes, sizeof options));
  return options;
}

std::optional<ElementType> element_type_of(nf_type type) {
  switch (type) {
    case NF_FLOAT32: return ElementType::kFp32;
    case NF_FLOAT16: return ElementType::kFp16;
    case NF_BFLOAT16: return ElementType::kBf16;
    case NF_INT32: return ElementType::kInt32;
    case NF_FLOAT64: return ElementType::kFp64;
    case NF_INT8: return ElementType::kInt8;
    case NF_INT16: return ElementType::kInt16;
    case NF_INT64: return ElementType::kInt64;
    case NF_UINT8: return ElementType::kUint8;
    case NF_UINT16: return ElementType::kUint16;
    case NF_UINT32: return ElementType::kUint32;
    case NF_UINT64: return ElementType::kUint64;
  }
  return std::nullopt;
}

std::optional<Operation> operation_of(nf_operation operation) {
  switch (operation) {
    case NF_SUM: return Operation::kSum;
    case NF_PRODUCT: return Operation::kProduct;
    case NF_MIN: return Operation::kMin;
    case NF_MAX: return Operation::kMax;
    case NF_BIT_AND: return Operation::kAnd;
    case NF_BIT_OR: return Operation::kOr;
    case NF_BIT_XOR: return Operation::kXor;
  }
  return std::nullopt;
}

std::optional<Collective> collective_of(nf_collective collective) {
  switch (collective) {
    case NF_ALL_REDUCE: return Collective::kAllReduce;
    case NF_REDUCE_SCATTER: return Collective::kReduceScatter;
    case NF_ALL_GATHER: return Collective::kAllGather;
    case NF_BROADCAST: return Collective::kBroadcast;
    case NF_BARRIER: return Collective::kBarrier;
  }
  return std::nullopt;
}

// When the caller names none.
const char* usual_algorithm(Collective collective, std::size_t size_bytes, const nf_group& group) {
  constexpr std::size_t kSmallBytes = std::size_t{32} << 10;
  if (collective == Collective::kBarrier) return "dissemination";
  if (collective == Collective::kAllReduce) {
    if (group.nic != nullptr) return netfold::schedule::kRing;
    return netfold::schedule::usual(size_bytes, group.world, group.peers->shares_memory());
  }
  if (size_bytes > kSmallBytes) return netfold::schedule::kRing;
  return collective == Collective::kBroadcast ? "binomial" : netfold::schedule::kDirect;
}

std::optional<Format> format_of(nf_format format, ElementType type) {
  if (type == ElementType::kInt32) return Format::kInt32;
  if (type > ElementType::kInt32) return Format::kNone;
  switch (format) {
    case NF_AS_IT_IS:
      return type == ElementType::kFp16 ? Format::kFp16 : type == ElementType::kBf16 ? Format::kBf16 : Format::kFp32;
    case NF_AS_FLOAT32: return Format::kFp32;
    case NF_AS_FLOAT16: return Format::kFp16;
    case NF_AS_BFLOAT16: return Format::kBf16;
    case NF_AS_BFP: return Format::kBfp;
  }
  return std::nullopt;
}

bool is_timeout(double seconds) {
  return seconds >= 0 && seconds <= kSecondsMax;  // no NaN either
}

bool is_bfp_number(int number) {
  return number >= 0 && number <= 255;
}

nf_status read(const nf_group* group, const void* in, void* out, std::size_t count, nf_type type,
               const nf_fold_options* given, std::optional<nf_collective> collective, CollectiveRequest& request,
               nf_error* error) {
  if (group == nullptr) return wrong(error, "no group (NULL)");
  if (is_inherited(group->engine)) return wrong(error, netfold::kInherited);
  const nf_fold_options defaults = NF_FOLD_OPTIONS_INIT;
  const auto options = known_part(given == nullptr ? defaults : *given, defaults);
  if (!options) return wrong(error, "start from NF_FOLD_OPTIONS_INIT: struct_bytes is not set");
  const auto element = element_type_of(type);
  const auto format = element ? format_of(options->format, *element) : std::nullopt;
  const auto operation = operation_of(options->operation);
  const auto wanted = collective_of(collective.value_or(options->collective));
  if (!format || !operation || !wanted || !is_bfp_number(options->block) || !is_bfp_number(options->mantissa)) {
    return wrong(error, "an unknown nf_type, nf_format, nf_operation or nf_collective, or no shape of bfp");
  }
  const bool folds = *wanted == Collective::kAllReduce || *wanted == Collective::kReduceScatter;
  const Format travels_as = folds && *operation == Operation::kSum ? *format : Format::kNone;
  request = {in, out, count, *element, travels_as, folds && options->average != 0};
  request.collective = *wanted;
  request.operation = folds ? *operation : Operation::kSum;
  request.root = options->root;
  netfold::schedule::Algorithm& algorithm = request.algorithm;
  if (options->algorithm != nullptr) {
    algorithm.name = options->algorithm;
  } else if (group->roce == nullptr) {
    algorithm.name = usual_algorithm(*wanted, count * netfold::numbers::size_bytes(*element), *group);
  }
  algorithm.sub_nodes = options->sub_nodes;
  algorithm.switches = options->switches;
  algorithm.group = options->group;
  if (options->between != nullptr) algorithm.between = options->between;
  request.bfp = {static_cast<std::uint8_t>(options->block), static_cast<std::uint8_t>(options->mantissa)};
  if (group->roce != nullptr && travels_as == Format::kBfp && request.bfp != netfold::numbers::BfpShape{}) {
    return wrong(error, "over RoCE a job has one shape of bfp: blocks of 16 elements, mantissas of 7 bits");
  }
  return NF_OK;
}

nf_status wait(nf_group* group, nf_ticket ticket, Nanoseconds timeout, nf_error* error) {
  if (group == nullptr) return wrong(error, "no group (NULL)");
  if (is_inherited(group->engine)) return wrong(error, netfold::kInherited);
  const auto completion = group->engine->wait(ticket, timeout);
  if (!completion) return NF_PENDING;
  return completion->error ? failed(error, *completion->error) : NF_OK;
}

nf_status run(nf_collective collective, nf_group* group, const void* in, void* out, std::size_t count, nf_type type,
              const nf_fold_options* options, nf_error* error) {
  return guarded(error, [&] {
    CollectiveRequest request;
    if (const nf_status status = read(group, in, out, count, type, options, collective, request, error);
        status != NF_OK) {
      return status;
    }
    const auto over = group->engine->run(request);
    return over ? NF_OK : failed(error, over.error());
  });
}

// `which`: the pointer to such an engine in a group.
template <class Engine, class Options>
nf_status open_engine(Engine* nf_group::*which, Options options, int world, nf_group** group, nf_error* error) {
  auto opened = Engine::open(std::move(options));
  if (!opened) return failed(error, opened.error());
  Engine* const engine = opened->get();
  std::unique_ptr<netfold::group::Group> owned = std::move(*opened);
  *group = new nf_group{netfold::owned_by_process(std::move(owned)), engine->address(), world};
  (*group)->*which = engine;
  return NF_OK;
}

// Ranks among themselves, with or without smart NICs.
nf_status open_peers(const nf_group_options& options, nf_group** group, nf_error* error) {
  constexpr int kDscpMax = 63;
  if (options.dscp < 0 || options.dscp > kDscpMax) return wrong(error, "dscp is 0 to 63");
  PeerGroupOptions wanted;
  wanted.rank = options.rank;
  wanted.world = options.world;
  if (options.listen != nullptr) wanted.listen = options.listen;
  wanted.timeout_s = options.timeout_s;
  wanted.core = options.core;
  wanted.shm = options.use_shared_memory != 0;
  if (options.secret != nullptr) wanted.secret = options.secret;
  wanted.require_auth = options.require_auth != 0;
  if (options.interfaces != nullptr) wanted.interfaces = netfold::comma_list(options.interfaces);
  wanted.tcp_streams = options.tcp_streams;
  wanted.dscp = static_cast<std::uint8_t>(options.dscp);
  wanted.inline_progress = options.placement == NF_CALLERS_THREAD;
  if (options.nic == nullptr) return open_engine(&nf_group::peers, std::move(wanted), options.world, group, error);
  return open_engine(&nf_group::nic, netfold::group::NicGroupOptions{std::move(wanted), options.nic}, options.world,
                     group, error);
}

nf_status open_roce(const nf_group_options& options, nf_group** group, nf_error* error) {
  constexpr int kRanksMax = 0xffff;
  if (options.require_auth != 0) return wrong(error, "RoCE has no tags: leave out require_auth or roce");
  if (options.nic != nullptr) return wrong(error, "a switch of RoCE or smart NICs: leave out roce or nic");
  if (options.rank < 0 || options.rank > kRanksMax || options.world < 0 || options.world > kRanksMax) {
    return wrong(error, "a rank is 0 to world - 1");
  }
  const auto place = netfold::group::parse_roce_place(options.roce, options.rank);
  if (!place) return failed(error, place.error());
  RoceGroupOptions wanted;
  const auto job = static_cast<std::uint16_t>(place->job + options.roce_group);
  wanted.job = {job,
                0,
                static_cast<std::uint16_t>(options.rank),
                static_cast<std::uint16_t>(options.world),
                {},
                place->message_packets,
                place->one_way};
  wanted.device = place->device;
  wanted.uses_verbs = place->uses_verbs;
  wanted.version = place->version;
  wanted.timeout_s = options.timeout_s;
  wanted.core = options.core;
  return open_engine(&nf_group::roce, std::move(wanted), options.world, group, error);
}

}  // namespace

nf_status nf_all_reduce(nf_group* group, const void* in, void* out, size_t count, nf_type type,
                        const nf_fold_options* options, nf_error* error) {
  return run(NF_ALL_REDUCE, group, in, out, count, type, options, error);
}

nf_status nf_reduce_scatter(nf_group* group, const void* in, void* out, size_t count, nf_type type,
                            const nf_fold_options* options, nf_error* error) {
  return run(NF_REDUCE_SCATTER, group, in, out, count, type, options, error);
}

nf_status nf_all_gather(nf_group* group, const void* in, void* out, size_t count, nf_type type,
                        const nf_fold_options* options, nf_error* error) {
  return run(NF_ALL_GATHER, group, in, out, count, type, options, error);
}

nf_status nf_broadcast(nf_group* group, void* memory, size_t count, nf_type type, int root, nf_error* error) {
  nf_fold_options options = NF_FOLD_OPTIONS_INIT;
  options.root = root;
  return run(NF_BROADCAST, group, memory, memory, count, type, &options, error);
}

nf_status nf_barrier(nf_group* group, nf_error* error) {
  return run(NF_BARRIER, group, nullptr, nullptr, 0, NF_UINT8, nullptr, error);
}

nf_status nf_submit(nf_group* group, const void* in, void* out, size_t count, nf_type type,
                    const nf_fold_options* options, nf_ticket* ticket, nf_error* error) {
  return guarded(error, [&] {
    if (ticket == nullptr) return wrong(error, "nowhere to put the ticket (NULL)");
    CollectiveRequest request;
    if (const nf_status status = read(group, in, out, count, type, options, {}, request, error); status != NF_OK) {
      return status;
    }
    const auto submitted = group->engine->submit(request);
    if (!submitted) return failed(error, submitted.error());
    *ticket = *submitted;
    return NF_OK;
  });
}

nf_status nf_wait(nf_group* group, nf_ticket ticket, double timeout_s, nf_error* error) {
  return guarded(error, [&] {
    if (!is_timeout(timeout_s)) return wrong(error, kTimeoutRule);
    return wait(group, ticket, netfold::from_seconds(timeout_s), error);
  });
}

nf_status nf_test(nf_group* group, nf_ticket ticket, nf_error* error) {
  return guarded(error, [&] { return wait(group, ticket, 0, error); });
}

nf_status nf_group_open(const nf_group_options* given, nf_group** group, nf_error* error) {
  if (group == nullptr) return wrong(error, "nowhere to put the group (NULL)");
  *group = nullptr;
  return guarded(error, [&] {
    const nf_group_options defaults = NF_GROUP_OPTIONS_INIT;
    const auto options = given == nullptr ? std::nullopt : known_part(*given, defaults);
    if (!options) return wrong(error, "start from NF_GROUP_OPTIONS_INIT: no options, or struct_bytes is not set");
    if (!is_timeout(options->timeout_s)) return wrong(error, kTimeoutRule);
    if (options->placement != NF_OWN_THREAD && options->placement != NF_CALLERS_THREAD) {
      return wrong(error, "an unknown nf_placement");
    }
    return options->roce != nullptr ? open_roce(*options, group, error) : open_peers(*options, group, error);
  });
}

const char* nf_group_address(const nf_group* group) {
  return group == nullptr ? "" : group->address.c_str();
}

nf_status nf_group_connect(nf_group* group, const char* const* addresses, double timeout_s, nf_error* error) {
  return guarded(error, [&] {
    if (!is_timeout(timeout_s)) return wrong(error, kTimeoutRule);
    if (group == nullptr || addresses == nullptr ||
        std::any_of(addresses, addresses + group->world, [](const char* each) { return each == nullptr; })) {
      return wrong(error, "no group, or an address is missing (NULL)");
    }
    if (is_inherited(group->engine)) return wrong(error, netfold::kInherited);
    const Nanoseconds deadline = netfold::now() + netfold::from_seconds(timeout_s);
    const std::vector<std::string> all(addresses, addresses + group->world);
    const auto goes_on = [&] { return netfold::now() < deadline; };
    const auto connected = group->roce != nullptr  ? group->roce->connect(all)
                           : group->nic != nullptr ? group->nic->connect(all, goes_on)
                                                   : group->peers->connect(all, goes_on);
    return connected ? NF_OK : failed(error, connected.error());
  });
}

void nf_group_close(nf_group* group, const char* reason) {
  if (group == nullptr) return;
  guarded(nullptr, [&] {
    std::optional<netfold::Error> error;
    if (reason != nullptr) error = netfold::Error{ErrorCode::kPeerFailed, reason};
    if (!is_inherited(group->engine)) group->engine->close(std::move(error));
    return NF_OK;
  });
  delete group;
}

const char* nf_version() {
  return NETFOLD_VERSION;
}

const char* nf_status_name(nf_status status) {
  switch (status) {
    case NF_OK: return "ok";
    case NF_PENDING: return "pending";
    case NF_INVALID_ARGUMENT: return "invalid_argument";
    case NF_TIMEOUT: return "timeout";
    case NF_PEER_FAILED: return "peer_failed";
    case NF_MISMATCH: return "mismatch";
    case NF_SYSTEM: return "system";
  }
  return "unknown";
}
