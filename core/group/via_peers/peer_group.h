// Ranks that fold among themselves, without a switch: any schedule of any collective, over shared memory and TCP, which
// they find by themselves.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "group/driver.h"
#include "group/via_peers/mesh.h"

namespace netfold::group {

struct PeerGroupOptions {
  int rank = 0, world = 1;
  std::string listen = "127.0.0.1:0";
  double timeout_s = 30;                     // to connect, and for a collective to make progress
  int core = kAnyCore;                       // of the progress thread
  bool shm = true;                           // between ranks of one machine
  int tcp_streams = 1;                       // connections to each rank of another, by each interface
  std::vector<std::string> interfaces = {};  // that carry data to ranks of other machines; none: the route's
  bool inline_progress = false;              // no thread: next_completion() drives the collectives too
  std::function<void()> on_completion = {};  // called each time there is a completion to take
  std::uint8_t dscp = 0;                     // of this rank's packets (link/road.h)
  std::string secret = {};                   // that all ranks must prove to know; "": none
  bool require_auth = false;                 // tags on all data and messages that leave the machine; needs the secret
  bool elastic = false;                      // see PeerSessionOptions
};

class PeerGroup final : public Driver {
 public:
  // Listens. Then every rank's address() is made known to all, and each calls connect() once.
  static Result<std::unique_ptr<PeerGroup>> open(PeerGroupOptions options);
  ~PeerGroup() override { close(); }

  const std::string& address() const { return address_; }
  // Where the ranks sit, for hdrm (schedule::Request). Alike on all ranks, before connect().
  void set_physical_order(std::vector<int> order) { order_ = std::move(order); }
  // Blocks until all ranks are connected to each other, at most timeout_s. `keep_going` is asked at least every 100 ms;
  // false gives up.
  Result<void> connect(const std::vector<std::string>& addresses, const std::function<bool()>& keep_going = {});

  // Before close(): the connections to these ranks outlive this group. After it: those that have not ended; none once
  // another group has them, or they were dropped.
  void keep(std::vector<int> ranks);
  std::vector<int> kept() const;
  void drop_kept();
  // Before connect(): goes on over connections that `old` has kept, and drops its others. `old_ranks`: by rank of this
  // group its rank in the old one, kNoRank where the two connect anew; both ranks of each pair must mean the same.
  // `group`: see CarryOver.
  Result<void> adopt(PeerGroup& old, const std::vector<int>& old_ranks, const std::string& group);

  bool shares_memory() const { return shares_memory_; }  // all ranks do; known once connected

 private:
  PeerGroup(PeerGroupOptions options, std::unique_ptr<Mesh> mesh);

  void before_leave(Session& session) override;
  void after_leave(Session& session) override;

  const PeerGroupOptions options_;
  mutable std::mutex keeping_;
  std::vector<int> keeps_;
  KeptPeers kept_;
  std::mutex connecting_;
  std::unique_ptr<Mesh> mesh_;  // until connected
  std::string address_;
  std::vector<int> order_;
  bool shares_memory_ = false;
};

// Such a session over connected links, and how its driver waits.
struct ConnectedPeers {
  std::unique_ptr<PeerSession> session;
  WaitPolicy policy;
};
// Connects the mesh, at most timeout_s.
Result<ConnectedPeers> connect_peers(Mesh& mesh, const PeerGroupOptions& options,
                                     const std::vector<std::string>& addresses, const std::vector<int>& order,
                                     const std::function<bool()>& keep_going);
// The error of a rank that does otherwise.
tl::unexpected<Error> connects_once(int world, std::size_t addresses);
PeerSessionOptions session_options(const PeerGroupOptions& options);
// A mesh that listens.
Result<std::unique_ptr<Mesh>> listen_for_peers(const PeerGroupOptions& options);

}  // namespace netfold::group
