// A network as a graph, and what in it can be full.
//
// Words. A *node* is a host (where a worker runs: a server, or one GPU of it), a switch, or another forwarder (a PCIe
// switch, a root port, a socket). A *link* leads from one node to another, in one direction. A *resource* is anything
// with a capacity: a link's wire in one direction, a bus that several links share, a reducer, a switch's folding unit.
// Links have one resource each, unless they say that they share one. A flow takes the resources of its path.
//
// Hosts are numbered in the order in which they were added; they are ends of paths, never on the way.
#pragma once

#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace netfold::sim {

enum class NodeKind : std::uint8_t { kHost, kSwitch, kOther };

constexpr int kNone = -1;
constexpr double kUnlimited = std::numeric_limits<double>::infinity();

struct Node {
  NodeKind kind;
  std::string name;
  int fold_resource = kNone;  // what everything that is folded here passes through
};

struct Link {
  int from, to;
  int resource;
  double latency_s;
  double cost;  // routes are those with the smallest sum
};

struct Resource {
  double capacity_bit_s;
  std::string name;  // empty: that of its link, "from -> to"
};

class Topology {
 public:
  int add_node(NodeKind kind, std::string name);
  int add_resource(double capacity_bit_s, std::string name);
  int add_link(int from, int to, double capacity_bit_s, double latency_s, double cost = 1);  // with one of its own
  int add_link_on(int resource, int from, int to, double latency_s, double cost = 1);
  void add_cable(int one, int other, double capacity_bit_s, double latency_s);  // a link each way
  void set_fold_rate(int node, double bit_s);  // of folded input: one operand counts once

  // The links between two hosts, whatever costs say; an empty list takes the rule back.
  void set_path(int from_host, int to_host, std::vector<int> links);

  // kInvalidArgument naming the node, link or resource that is wrong.
  Result<void> check() const;

  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Link>& links() const { return links_; }
  const std::vector<Resource>& resources() const { return resources_; }
  const std::vector<int>& hosts() const { return hosts_; }  // their nodes
  const std::vector<int>& links_from(int node) const { return links_from_[static_cast<std::size_t>(node)]; }
  const std::vector<int>& links_to(int node) const { return links_to_[static_cast<std::size_t>(node)]; }
  const std::vector<int>* path_set(int from_host, int to_host) const;  // null: none was

  std::string name_of_resource(int resource) const;

  // The switch that a host is plugged into, directly or through NICs, PCIe switches and sockets: the nearest one;
  // kNone: it has no switch.
  int switch_of(int host_node) const;

 private:
  std::vector<Node> nodes_;
  std::vector<Link> links_;
  std::vector<Resource> resources_;
  std::vector<int> hosts_;
  std::vector<std::vector<int>> links_from_, links_to_;
  std::map<std::pair<int, int>, std::vector<int>> paths_;
};

}  // namespace netfold::sim
