// A rank's connections to all others: a stream link for data and a life line for what concerns the whole group (who
// has left, who has failed, who waits for whom).
#pragma once

#include <poll.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/collective/handshake.h"
#include "engine/collective/waits.h"
#include "engine/control_socket.h"
#include "link/shm/arena.h"

namespace netfold::engine {

class Mesh {
 public:
  // Listens; the address may name port 0.
  static Result<std::unique_ptr<Mesh>> listen(int rank, int world, link::Address address, bool shm,
                                              std::optional<jobs::Secret> secret);
  ~Mesh();

  link::Address address() const { return local_address_of(listener_); }
  // TCP connections to each lower rank on another machine, 1 to link::kTcpStreamsMax; before connect().
  void set_tcp_streams(int streams) { tcp_streams_ = streams; }
  // To all others, whose addresses are given by rank.
  Result<void> connect(const std::vector<link::Address>& addresses, Nanoseconds deadline,
                       const std::function<bool()>& keep_going);

  // Once connected: memory that all ranks map, if all are on one machine; null if not. Blocks as connect() does.
  Result<std::unique_ptr<link::Arena>> share_memory(link::Arena::Shape shape, Nanoseconds deadline,
                                                    const std::function<bool()>& keep_going);

  std::vector<link::StreamLink*> links() const;
  std::vector<std::shared_ptr<link::Doorbell>> bells() const;  // null where a rank is not reached over shared memory
  const link::StreamLink& link(int rank) const { return *peers_[static_cast<std::size_t>(rank)].data; }

  // Reads what the others say. An error if one of them is gone or has failed.
  Result<void> listen_to_all();
  bool has_left(int rank) const { return peers_[static_cast<std::size_t>(rank)].has_left; }
  // By rank; this rank's own are the caller's.
  const std::vector<Standing>& standings() const { return standings_; }
  bool somebody_waits() const;

  void say_waiting(const std::vector<int>& for_ranks);  // none: no more
  void say_moving();
  void say_failed(const Error& error);
  void leave();

  // What becomes ready when there is news: `wake` first, then the life lines and links, and the doorbell last if it is
  // asked for, which is cleared once it was heard.
  std::vector<pollfd> news(int wake, bool with_bell) const;
  int life_lines() const { return epoll_; }
  bool has_bell() const { return bell_ != nullptr; }
  void clear_bell() const { bell_->clear(); }
  // Sleeps until there is news of any kind, `wake` is readable, or the deadline has passed.
  void sleep(int wake, Nanoseconds deadline) const;
  bool has_unsent() const;
  int local_peers() const;  // that are reached over shared memory

 private:
  struct Peer {
    std::unique_ptr<ControlSocket> control;
    std::unique_ptr<link::StreamLink> data;
    std::vector<link::Descriptor> connections;  // that are to become it; closed: has not come
    std::shared_ptr<link::Doorbell> bell;
    std::optional<bool> shares;  // a higher rank: whether it reaches all over shared memory; rank 0: whether all do
    std::string door, token;     // where it takes memory (link::Door), if so
    std::string proof;           // that its data connection must bring
    bool has_left = false;
  };

  Mesh(int rank, int world, int listener, bool shm, std::optional<jobs::Secret> secret);
  Result<void> accept_higher_ranks(const HandshakeOptions& options);
  Result<void> take(PeerLinks links);
  Result<void> take_connection(Peer& peer, PeerLinks links);
  int missing_rank() const;
  Result<void> hear(int rank, std::string_view line);
  void tell(int rank, const std::string& line);
  void tell_all(const std::string& line);
  Result<void> wait_for_words(const std::function<bool()>& have_come, int of_rank, Nanoseconds deadline,
                              const std::function<bool()>& keep_going);
  Result<std::unique_ptr<link::Arena>> hand_out_memory(link::Arena::Shape shape);

  int rank_, world_;
  int listener_, epoll_;
  bool wants_shm_;
  int tcp_streams_ = 1;
  std::optional<jobs::Secret> secret_;
  std::shared_ptr<link::Doorbell> bell_;  // null: no shared memory
  std::vector<Peer> peers_;
  std::vector<Standing> standings_;
  int failed_by_ = kNoRank;  // who said first that the group has failed
};

}  // namespace netfold::engine
