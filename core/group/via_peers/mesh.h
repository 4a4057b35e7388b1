// How a rank connects to all others: to each a stream link for data, one for messages and a life line (life_lines.h),
// and memory that all of them map where they are on one machine. This is the part that blocks.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "group/via_peers/carry_over.h"
#include "group/via_peers/handshake.h"
#include "group/via_peers/peer_session.h"
#include "link/shm/arena.h"
#include "link/tcp/control_socket.h"

namespace netfold::group {

class Mesh : private Meanwhile {
 public:
  // Listens; the address may name port 0. With interfaces it listens at an address of each of them, in the family of
  // `address`, at whose port only the first one listens.
  static Result<std::unique_ptr<Mesh>> listen(int rank, int world, link::Address address, bool shm,
                                              std::optional<control::Secret> secret, std::uint8_t dscp = 0,
                                              const std::vector<std::string>& interfaces = {});

  std::vector<link::Address> addresses() const;  // one an interface
  // TCP connections by each interface to each lower rank on another machine, 1 to link::kTcpStreamsMax in all; before
  // connect().
  void set_tcp_streams(int streams) { tcp_streams_ = streams; }
  // What leaves the machine carries tags, as at all other ranks; needs the secret. Before connect().
  void set_tagged(bool tagged) { is_tagged_ = tagged; }
  // Goes on over connections of an earlier group, by rank of this one (null: connects anew). Before connect(), by both
  // ranks of each. `group`: see CarryOver.
  void carry_over(KeptPeers kept, const std::string& group);
  // To all others, whose addresses() are given by rank.
  Result<void> connect(const std::vector<std::vector<link::Address>>& addresses, Nanoseconds deadline,
                       const std::function<bool()>& keep_going);

  // Once connected: ranks agree on memory that all of them map, if all are on one machine. Blocks as connect() does.
  Result<void> share_memory(link::Arena::Shape shape, Nanoseconds deadline, const std::function<bool()>& keep_going);

  // So that the others do not take this rank for the one that fails.
  void say_failed(const Error& why) { life_lines_->say_failed(why); }

  int local_peers() const;  // that are reached over shared memory
  // All of it, once.
  PeerConnections take_connections();

 private:
  struct Peer {
    std::unique_ptr<link::StreamLink> data, messages;
    std::vector<link::Descriptor> connections;  // that are to become it; closed: has not come
    std::shared_ptr<link::Doorbell> bell;
    std::string proof;  // that its data connection must bring
    control::RankPair pair;
  };

  Mesh(int rank, int world, bool shm, std::optional<control::Secret> secret);
  Result<void> end_carry_over(const HandshakeOptions& options);
  void connect_to_lower_ranks(const std::vector<std::vector<link::Address>>& addresses);
  void accept_higher_ranks();
  void note_failure(const Error& error);
  Nanoseconds add_polls(std::vector<pollfd>& polls) override;
  Result<void> go_on() override;
  bool accept_visitors();
  Result<bool> serve();
  Result<void> take(PeerLinks links);
  Result<void> take_connection(Peer& peer, PeerLinks links);
  int missing_rank(int from) const;
  void wait_for_rank(int rank);
  void say_waiting(Nanoseconds now);
  Error no_word(int of_rank, const Error& error) const;
  Result<void> wait_for_words(const std::function<bool()>& have_come, int of_rank, Nanoseconds deadline,
                              const std::function<bool()>& keep_going);
  Result<std::unique_ptr<link::Arena>> hand_out_memory(link::Arena::Shape shape);

  int rank_, world_;
  bool wants_shm_;
  int tcp_streams_ = 1;
  bool is_tagged_ = false;
  std::vector<link::Descriptor> listeners_;  // a road has one
  std::vector<link::Road> roads_;
  std::optional<control::Secret> secret_;
  std::shared_ptr<link::Doorbell> bell_;  // null: no shared memory
  std::vector<Peer> peers_;
  HandshakeOptions handshake_;
  std::list<Visitor> visitors_;
  int waits_for_ = kNoRank;           // this rank cannot go on without that one
  Nanoseconds says_so_at_ = kNever;   // when the others hear of it next
  bool has_said_so_ = false;          // to those that have connected
  Nanoseconds began_ = 0;             // connect()
  std::optional<Error> failure_;      // of connect(), the first
  Nanoseconds last_words_until_ = 0;  // then
  std::unique_ptr<LifeLines> life_lines_;
  std::unique_ptr<CarryOver> carry_over_;  // null: all connect anew
  std::unique_ptr<link::Arena> arena_;     // null where not all ranks are on one machine
};

}  // namespace netfold::group
