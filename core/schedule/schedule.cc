#include "schedule/schedule.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <unordered_map>

#include "schedule/algorithms.h"

namespace netfold::schedule {
namespace {

Result<Steps> make_on(std::string_view name, const Request& request, const Team& team, int place);

Result<Steps> cannot(std::string_view algorithm, const std::string& why) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' cannot serve this: {}", algorithm, why));
}

Result<Steps> all_reduce_only(std::string_view algorithm, const Request& request, Steps steps) {
  if (request.collective == Collective::kAllReduce) return steps;
  return cannot(algorithm, fmt::format("it is an all-reduce; for {} take {}", name_of(request.collective),
                                       request.collective == Collective::kBroadcast ? "binomial or ring"
                                       : request.collective == Collective::kReduce  ? kDirect
                                       : request.collective == Collective::kBarrier ? "dissemination"
                                                                                    : kRing));
}

// Where hdrm places the ranks of a BiGraph.
struct Mapped {
  std::vector<int> ranks, extras;  // by inner place (PowerOfTwo)
  std::vector<int> place_of;       // by rank; of an extra that of the rank to which it hands over
};

Result<Mapped> map_to_bigraph(const Request& request, const Team& team) {
  const Algorithm& wanted = request.algorithm;
  const auto mapping = rank_mapping(wanted.sub_nodes, wanted.switches);
  if (!mapping) return tl::unexpected(mapping.error());
  const auto reject = [](const std::string& why) { return tl::unexpected(cannot("hdrm", why).error()); };
  const std::size_t positions = mapping->size();
  const std::vector<int>& order = request.order.empty() ? team.ranks : request.order;
  if (request.order.empty() && positions != team.ranks.size()) {
    return reject(
        fmt::format("{} sub-nodes x {} switches are not {} ranks", wanted.sub_nodes, wanted.switches, team.size()));
  }
  if (order.size() != positions && order.size() != 2 * positions) {
    return reject(
        fmt::format("'order' must name the rank at each of {} positions, and may then name the rank that "
                    "hands over to each",
                    positions));
  }
  constexpr int kStranger = -2, kUnplaced = -1;
  Mapped mapped{std::vector<int>(positions), std::vector<int>(positions, -1),
                std::vector<int>(static_cast<std::size_t>(request.world), kStranger)};
  for (const int rank : team.ranks) mapped.place_of[static_cast<std::size_t>(rank)] = kUnplaced;
  int named = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i >= positions && order[i] == -1) continue;
    const auto rank = static_cast<std::size_t>(order[i]);
    if (rank >= mapped.place_of.size() || mapped.place_of[rank] != kUnplaced) {
      named = -1;
      break;
    }
    // The rank at physical position i takes place mapping[i]: in every step partners are on links of their own.
    mapped.place_of[rank] = (*mapping)[i % positions];
    (i < positions ? mapped.ranks : mapped.extras)[static_cast<std::size_t>(mapped.place_of[rank])] = order[i];
    ++named;
  }
  if (named != team.size()) return reject(fmt::format("'order' must name each of the {} ranks once", team.size()));
  return mapped;
}

bool is_halving(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter ||
         collective == Collective::kAllGather;
}

Result<Steps> make_hdrm(const Request& request, const Mapped& mapped, int rank) {
  if (!is_halving(request.collective)) return all_reduce_only("hdrm", request, {});
  const int place = mapped.place_of[static_cast<std::size_t>(rank)];
  const bool is_extra = mapped.ranks[static_cast<std::size_t>(place)] != rank;
  const PowerOfTwo inner(mapped.ranks, mapped.extras, place, is_extra);
  return halving_doubling(request.collective, inner, request.world, request.count, request.align);
}

// Folds inside a machine onto its first rank, all-reduces between those, and spreads the sum inside again.
Result<Steps> make_hierarchical(const Request& request, const Team& team, int place) {
  const int group = request.algorithm.group;
  const std::string& between = request.algorithm.between;
  if (group < 1) return cannot("hierarchical", "'group' must say how many ranks a machine has");
  if (between == "hierarchical") return cannot("hierarchical", "'between' must be another algorithm");
  const int leader = place - place % group;
  Team machine, leaders;
  for (int member = leader; member < std::min(leader + group, team.size()); ++member) {
    machine.ranks.push_back(team.ranks[static_cast<std::size_t>(member)]);
  }
  for (int first = 0; first < team.size(); first += group) {
    leaders.ranks.push_back(team.ranks[static_cast<std::size_t>(first)]);
  }
  const auto append = [](Steps& to, const Steps& more) { to.insert(to.end(), more.begin(), more.end()); };
  Steps steps = binomial_fold(machine, place - leader, request.count);
  if (place == leader) {
    const auto among_leaders = make_on(between, request, leaders, leader / group);
    if (!among_leaders) return among_leaders;
    append(steps, *among_leaders);
  }
  append(steps, binomial_broadcast(machine, place - leader, 0, request.count));
  return steps;
}

struct Maker {
  AlgorithmInfo info;
  Result<Steps> (*make)(const Request&, const Team&, int place);
};

constexpr std::array<Maker, 11> kMakers{{
    {{kRing, "neighbours pass segments round: 2(n-1) steps, every link busy all the time (ai-smart-nic II-B)"},
     [](const Request& r, const Team& team, int place) -> Result<Steps> {
       if (r.collective == Collective::kBarrier || r.collective == Collective::kReduce) {
         return all_reduce_only(kRing, r, {});
       }
       return ring(r.collective, team, place, r.root, r.count, r.align);
     }},
    {{kDirect,
      "all ranks exchange segments with each other, and each folds its own in rank order: the bits of in-network"},
     [](const Request& r, const Team& team, int place) -> Result<Steps> {
       if (r.collective == Collective::kBroadcast || r.collective == Collective::kBarrier) {
         return all_reduce_only(kDirect, r, {});
       }
       return direct(r.collective, team, place, r.root, r.count, r.align);
     }},
    {{"halving-doubling", "partners at distance 1, 2, 4, ... swap halves: 2 log n steps (eflops V-A)"},
     [](const Request& r, const Team& team, int place) -> Result<Steps> {
       if (!is_halving(r.collective)) return all_reduce_only("halving-doubling", r, {});
       return halving_doubling(r.collective, PowerOfTwo(team, place), team.size(), r.count, r.align);
     }},
    {{"hdrm", "halving-doubling with ranks mapped to a BiGraph, one connection a link (eflops V-B, Algorithm 1)"},
     [](const Request&, const Team&, int) -> Result<Steps> {
       return cannot("hierarchical", "hdrm between machines has no BiGraph of machines");
     }},
    {{"recursive-doubling", "partners at distance 1, 2, 4, ... swap everything: log n steps, for small tensors"},
     [](const Request& r, const Team& team, int place) {
       return all_reduce_only("recursive-doubling", r, recursive_doubling(PowerOfTwo(team, place), r.count));
     }},
    {{"rabenseifner", "partners at distance n/2, n/4, ... swap halves, then back (Rabenseifner 2004)"},
     [](const Request& r, const Team& team, int place) {
       return all_reduce_only("rabenseifner", r, rabenseifner(PowerOfTwo(team, place), r.count, r.align));
     }},
    {{"binomial", "a fold up a binomial tree and a broadcast down: for very small tensors, and for broadcast"},
     [](const Request& r, const Team& team, int place) -> Result<Steps> {
       if (r.collective == Collective::kBroadcast) return binomial_broadcast(team, place, r.root, r.count);
       Steps steps = binomial_fold(team, place, r.count);
       const Steps down = binomial_broadcast(team, place, 0, r.count);
       steps.insert(steps.end(), down.begin(), down.end());
       return all_reduce_only("binomial", r, std::move(steps));
     }},
    {{"double-binary-tree", "two complementary trees with half of the tensor each (Sanders 2009)"},
     [](const Request& r, const Team& team, int place) {
       return all_reduce_only("double-binary-tree", r, double_binary_tree(team, place, r.count, r.align));
     }},
    {{"hierarchical", "folds inside each machine (`group` ranks), then `between` the machines"},
     [](const Request& r, const Team& team, int place) -> Result<Steps> {
       if (r.collective != Collective::kAllReduce) return all_reduce_only("hierarchical", r, {});
       return make_hierarchical(r, team, place);
     }},
    {{"in-network", "to the switch once, back once (allreduce-switch II-D)"},
     [](const Request& r, const Team&, int) {
       Steps steps;
       add_step(steps, {{Action::kSend, kSwitch, 0, r.count}, {Action::kStore, kSwitch, 0, r.count}});
       return all_reduce_only("in-network", r, steps);
     }},
    {{"dissemination", "a barrier: signals to distance 1, 2, 4, ... (Hensgen 1988)"},
     [](const Request& r, const Team& team, int place) -> Result<Steps> {
       if (r.collective != Collective::kBarrier)
         return cannot("dissemination", "it is a barrier and moves no elements");
       return dissemination_barrier(team, place);
     }},
}};

constexpr auto kInfos = [] {
  std::array<AlgorithmInfo, kMakers.size()> infos{};
  for (std::size_t i = 0; i < infos.size(); ++i) infos[i] = kMakers[i].info;
  return infos;
}();

Result<Steps> make_on(std::string_view name, const Request& request, const Team& team, int place) {
  const auto found =
      std::find_if(kMakers.begin(), kMakers.end(), [&](const Maker& each) { return each.info.name == name; });
  if (found != kMakers.end()) return found->make(request, team, place);
  std::string names;
  for (const Maker& each : kMakers) names += fmt::format("{}{}", names.empty() ? "" : ", ", each.info.name);
  return fail(ErrorCode::kInvalidArgument, fmt::format("no algorithm is called '{}': there are {}", name, names));
}

}  // namespace

Team Team::of(int world) {
  Team team;
  for (int rank = 0; rank < world; ++rank) team.ranks.push_back(rank);
  return team;
}

Segment part_of(Segment whole, int parts, int index, std::size_t align) {
  const auto n = static_cast<std::size_t>(parts), i = static_cast<std::size_t>(index);
  const std::size_t units = (whole.count + align - 1) / align;
  const std::size_t each = units / n, longer = units % n;
  const auto cut = [&](std::size_t part) {
    return std::min((part * each + std::min(part, longer)) * align, whole.count);
  };
  return {whole.offset + cut(i), cut(i + 1) - cut(i)};
}

void add_step(Steps& steps, Step step) {
  std::erase_if(step, [](const Transfer& transfer) { return transfer.count == 0; });
  if (!step.empty()) steps.push_back(std::move(step));
}

void add_transfers(Step& step, Action action, int peer, const std::vector<Segment>& elements) {
  for (const Segment& each : elements) step.push_back({action, peer, each.offset, each.count});
}

Result<Steps> make(const Request& request) {
  const auto all = make_all(request);
  if (!all) return tl::unexpected(all.error());
  return (*all)(request.rank);
}

Result<ByRank> make_all(const Request& request) {
  if (request.world < 1) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("a world of {}: it has one rank or more", request.world));
  }
  if (request.root < 0 || request.root >= request.world) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("root {} is not a rank of a world of {}", request.root, request.world));
  }
  if (is_exchange(request.collective) || is_message(request.collective)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("no algorithm of the table makes a schedule of a {}", name_of(request.collective)));
  }
  if (request.align < 1) return fail(ErrorCode::kInvalidArgument, "segments are aligned to one element or more");
  const auto team = std::make_shared<Team>(Team::of(request.world));
  std::shared_ptr<Mapped> mapped;
  if (request.algorithm.name == "hdrm") {
    auto made = map_to_bigraph(request, *team);
    if (!made) return tl::unexpected(made.error());
    mapped = std::make_shared<Mapped>(std::move(*made));
  }
  return [=](int rank) -> Result<Steps> {
    if (rank < 0 || rank >= request.world) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("rank {} of a world of {}: ranks are 0 to world - 1", rank, request.world));
    }
    return mapped ? make_hdrm(request, *mapped, rank) : make_on(request.algorithm.name, request, *team, rank);
  };
}

const char* usual(std::size_t size_bytes, int world, bool share_memory) {
  constexpr std::size_t kSmallBytes = std::size_t{32} << 10, kMiddlingBytes = std::size_t{1} << 20;
  if (share_memory) return kDirect;
  if (size_bytes < kSmallBytes) return "recursive-doubling";
  return is_power_of_two(world) && size_bytes <= kMiddlingBytes ? "halving-doubling" : kRing;
}

std::span<const AlgorithmInfo> algorithms() {
  return kInfos;
}

bool swaps_halves(std::string_view algorithm) {
  return algorithm == "halving-doubling" || algorithm == "hdrm" || algorithm == "rabenseifner";
}

bool folds_in_rank_order(std::string_view algorithm) {
  return algorithm == kDirect;
}

namespace {

// Whether `places` of halving-doubling, a power of two, fold `ranks` ranks as pairwise rank order does. The first
// ranks less places stand for two ranks each. Rank order splits at `places`, halving-doubling at half of the places.
bool doubles_in_rank_order(int ranks, int places) {
  const int extras = ranks - places;
  if (extras == 0 || extras == places) return true;
  return 2 * extras >= places && doubles_in_rank_order(extras, places / 2);
}

}  // namespace

bool sums_in_rank_order(std::string_view algorithm, int world, bool rounds) {
  if (world < 2 || algorithm == "in-network" || folds_in_rank_order(algorithm)) return true;
  if (rounds) return false;
  if (world == 2 || algorithm == "binomial") return true;  // the tree folds in pairs that are neighbours
  if (algorithm != "halving-doubling" && algorithm != "recursive-doubling") return false;
  return doubles_in_rank_order(world, static_cast<int>(std::bit_floor(static_cast<unsigned>(world))));
}

const char* usual_in_rank_order(std::size_t size_bytes, int world, bool share_memory, bool rounds) {
  const char* const algorithm = usual(size_bytes, world, share_memory);
  return sums_in_rank_order(algorithm, world, rounds) ? algorithm : kDirect;
}

const char* name_of(Action action) {
  switch (action) {
    case Action::kSend: return "send";
    case Action::kFold: return "fold";
    case Action::kStore: return "store";
  }
  return "unknown";
}

const char* name_of(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce: return "all-reduce";
    case Collective::kReduceScatter: return "reduce-scatter";
    case Collective::kAllGather: return "all-gather";
    case Collective::kBroadcast: return "broadcast";
    case Collective::kBarrier: return "barrier";
    case Collective::kReduce: return "reduce";
    case Collective::kAllToAll: return "all-to-all";
    case Collective::kGather: return "gather";
    case Collective::kScatter: return "scatter";
    case Collective::kSend: return "send";
    case Collective::kReceive: return "receive";
  }
  return "unknown";
}

Result<Collective> collective_named(std::string_view name) {
  for (const auto each : {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
                          Collective::kBroadcast, Collective::kBarrier, Collective::kReduce}) {
    if (name == name_of(each)) return each;
  }
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("no collective is called '{}': all-reduce, reduce-scatter, all-gather, broadcast, barrier, reduce",
                  name));
}

}  // namespace netfold::schedule
