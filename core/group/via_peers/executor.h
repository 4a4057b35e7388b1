// Runs all-reduces over stream links: for each peer one queue of transfers to send and one to receive, both in
// submission order. Within an all-reduce they are in the order of the schedule, in which the peer expects them. A
// transfer moves as far as its link and the transfers it waits for allow, a chunk at a time. While a rank receives the
// later part of a segment it already folds and sends the earlier one, and the head of one all-reduce runs beside the
// tail of the one before it.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "group/via_peers/reduction.h"
#include "group/via_peers/runner.h"
#include "link/stream_link.h"

namespace netfold::group {

// A part of a tensor that runs the whole schedule by itself. Parts of a large tensor follow each other closely, so that
// what a rank folds now is still in the caches when its sum comes round. Where every rank has a part of the buffer, a
// slice has some of each: `part` elements of every `stride`.
struct Slice {
  std::size_t first;  // element of the buffer where the plan's element 0 is
  std::size_t part, stride;
  std::shared_ptr<const Plan> plan;

  std::size_t place(std::size_t element) const { return first + element / part * stride + element % part; }
};

class Executor final : public Runner {
 public:
  // links[peer], null for this rank. They must outlive the executor.
  Executor(int rank, std::vector<link::StreamLink*> links);

  void submit(const std::shared_ptr<Reduction>& reduction, const std::vector<Slice>& slices);

  Result<bool> pump() override;
  bool is_idle() const override { return running_.empty(); }
  bool arm() override;
  std::vector<Ticket> take_finished() override;
  std::vector<Ticket> abandon() override;
  std::vector<int> blocking_ranks() const override;
  bool waits_for(int rank) const override {
    const Peer& peer = peers_[static_cast<std::size_t>(rank)];
    return peer.wants_data || peer.wants_room;
  }
  std::uint64_t reduced_elements() const override { return reduced_elements_; }

 private:
  struct Running {
    std::shared_ptr<Reduction> reduction;
    Slice slice;
    std::vector<std::size_t> positions;  // by transfer: elements of the slice up to here are done
    std::vector<bool> headers;           // by transfer: sent, or received and found right
    std::size_t unfinished;
  };
  struct Queued {
    Running* of;
    std::uint32_t transfer;

    bool has_header() const { return of->headers[transfer]; }
    const PlannedTransfer& planned() const { return of->slice.plan->transfers[transfer]; }
    // The place of its elements, as its header says it.
    std::size_t said_offset() const {
      return of->slice.plan->has_common_places ? of->slice.place(planned().offset) : 0;
    }
  };
  struct Peer {
    link::StreamLink* link = nullptr;
    std::deque<Queued> sends, receives;
    bool wants_data = false, wants_room = false;  // why the front of a queue did not move when last tried
  };

  bool send(Peer& peer);
  Result<bool> receive(int rank, Peer& peer);
  Result<bool> fold_together(const Queued& queued);
  static std::size_t arrived(const Queued& queued, std::size_t wanted, std::size_t readable_bytes);
  static std::size_t bytes_of(const Queued& queued, std::size_t count);
  void consume(Peer& peer, std::size_t count);
  Result<bool> check_header(int rank, Peer& peer, Queued& queued);
  void enqueue(std::shared_ptr<Reduction> reduction, const Slice& slice);
  static bool may_begin(const Queued& queued);
  static std::size_t limit(const Queued& queued);
  static const Piece& piece_at(const PlannedTransfer& transfer, std::size_t position);
  void advance(const Queued& queued, std::size_t count);
  void pop(std::deque<Queued>& queue);
  void reap();

  int rank_;
  std::vector<Peer> peers_;
  std::optional<Contributions> all_;  // once a fold needs it
  std::deque<std::unique_ptr<Running>> running_;
  std::vector<Reduction::Ticket> finished_;
  ScratchPool buffers_;
  std::uint64_t reduced_elements_ = 0;
};

}  // namespace netfold::group
