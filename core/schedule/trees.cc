// Trees: the binomial tree, and two complementary binary trees that share the work (Sanders, Speck and Traeff,
// "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009).
#include <algorithm>
#include <array>
#include <map>

#include "schedule/algorithms.h"

namespace netfold::schedule {
namespace {

// A binary tree over places 0 .. size-1: an in-order tree over 1 .. size-1 whose leaves are the odd places, under
// place 0. A place's level is its lowest set bit.
struct Node {
  int parent = -1;
  std::array<int, 2> children{-1, -1};
};

Node tree_node(int size, int place) {
  Node node;
  if (place == 0) {
    int top = 1;
    while (top * 2 < size) top *= 2;
    if (size > 1) node.children[0] = top;
    return node;
  }
  const int level = place & -place;
  node.parent = (place ^ level) | (level * 2);
  if (node.parent >= size) node.parent = place ^ level;
  if (level > 1) {
    node.children[0] = place - level / 2;
    for (int below = level / 2; below >= 1 && node.children[1] < 0; below /= 2) {
      if (place + below < size) node.children[1] = place + below;
    }
  }
  return node;
}

// When a place has folded all of its children, counted in steps; each child takes a step of its own.
int folded_at(int size, int place) {
  int step = 0;
  for (const int child : tree_node(size, place).children) {
    if (child >= 0) step = std::max(step, folded_at(size, child)) + 1;
  }
  return step;
}

// The step in which `place` hands its fold to its parent: after the parent's earlier child, and after its own.
int handed_up_at(int size, int place) {
  int step = 0;
  for (const int child : tree_node(size, tree_node(size, place).parent).children) {
    if (child < 0) continue;
    step = std::max(step, folded_at(size, child));
    if (child == place) return step;
    ++step;
  }
  return step;
}

int depth_of(int size, int place) {
  int depth = 0;
  for (int at = place; tree_node(size, at).parent >= 0; at = tree_node(size, at).parent) ++depth;
  return depth;
}

// Adds what `place` does in one tree, by step. `rank_of` turns the tree's places into ranks.
template <class RankOf>
void add_tree(std::map<int, Step>& by_step, int size, int place, Segment segment, RankOf rank_of) {
  const Node node = tree_node(size, place);
  const int turn = folded_at(size, 0);  // from here on the sum goes down
  const int depth = depth_of(size, place);
  const auto add = [&](int step, Action action, int other) {
    by_step[step].push_back({action, rank_of(other), segment.offset, segment.count});
  };
  for (const int child : node.children) {
    if (child < 0) continue;
    add(handed_up_at(size, child), Action::kFold, child);
    add(turn + depth, Action::kSend, child);
  }
  if (node.parent >= 0) {
    add(handed_up_at(size, place), Action::kSend, node.parent);
    add(turn + depth - 1, Action::kStore, node.parent);
  }
}

}  // namespace

Steps double_binary_tree(const Team& team, int place, std::size_t count, std::size_t align) {
  const int n = team.size();
  std::map<int, Step> by_step;
  if (n > 1) {
    const auto rank_at = [&](int index) { return team.ranks[static_cast<std::size_t>(index)]; };
    // The second tree is the first with places counted from the other end, or, where their number is odd, shifted by
    // one: leaves of one are inner nodes of the other.
    const bool mirrors = n % 2 == 0;
    const auto other = [&](int index) { return mirrors ? n - 1 - index : (index + 1) % n; };
    const int place_in_other = mirrors ? n - 1 - place : (place - 1 + n) % n;
    add_tree(by_step, n, place, part_of({0, count}, 2, 0, align), rank_at);
    add_tree(by_step, n, place_in_other, part_of({0, count}, 2, 1, align),
             [&](int index) { return rank_at(other(index)); });
  }
  Steps steps;
  for (auto& [step, transfers] : by_step) add_step(steps, std::move(transfers));
  return steps;
}

Steps binomial_fold(const Team& team, int place, std::size_t count) {
  Steps steps;
  for (int distance = 1; distance < team.size(); distance *= 2) {
    if (place % (2 * distance) != 0) {
      add_step(steps, {{Action::kSend, team.ranks[static_cast<std::size_t>(place - distance)], 0, count}});
      break;
    }
    if (place + distance < team.size()) {
      add_step(steps, {{Action::kFold, team.ranks[static_cast<std::size_t>(place + distance)], 0, count}});
    }
  }
  return steps;
}

Steps binomial_broadcast(const Team& team, int place, int root, std::size_t count) {
  const int n = team.size();
  const int turned = (place - root + n) % n;  // the root counts as place 0
  const auto rank_at = [&](int index) { return team.ranks[static_cast<std::size_t>((index + root) % n)]; };
  int top = 1;
  while (top < n) top *= 2;
  const int level = turned == 0 ? top : turned & -turned;
  Steps steps;
  if (turned != 0) add_step(steps, {{Action::kStore, rank_at(turned - level), 0, count}});
  for (int distance = level / 2; distance >= 1; distance /= 2) {
    if (turned + distance < n) add_step(steps, {{Action::kSend, rank_at(turned + distance), 0, count}});
  }
  return steps;
}

}  // namespace netfold::schedule
