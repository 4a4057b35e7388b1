#include "link/shm/shm_stream.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>

#include "base/memory_units.h"
#include "link/mirrored_memory.h"

namespace netfold::link {
namespace {

constexpr std::uint64_t kRingsMagic = 0x6e6574666f6c6432;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;  // no peer takes away memory that we have mapped

// Positions only grow; a position modulo the size is a place. Each side writes its own line. `reader_waits` and
// `writer_waits` ask the other side for a ring of the doorbell.
struct RingControl {
  alignas(kCacheLineBytes) std::atomic<std::uint64_t> head;  // written up to here
  alignas(kCacheLineBytes) std::atomic<std::uint64_t> tail;  // read up to here
  alignas(kCacheLineBytes) std::atomic<std::uint32_t> reader_waits;
  alignas(kCacheLineBytes) std::atomic<std::uint32_t> writer_waits;
};

// The first page; the rings' bytes follow.
struct RingsIdentity {
  std::uint64_t magic, ring_bytes;
};
struct Front {
  RingsIdentity identity;
  RingControl rings[2];  // written by the creator; read by the creator
};
static_assert(sizeof(Front) <= kPageBytes && std::atomic<std::uint64_t>::is_always_lock_free);

class ShmStream final : public StreamLink {
 public:
  ShmStream(Front* front, std::unique_ptr<MirroredMemory> out, std::unique_ptr<MirroredMemory> in, bool is_creator,
            std::shared_ptr<Doorbell> peer)
      : front_(front),
        out_control_(front->rings[is_creator ? 0 : 1]),
        in_control_(front->rings[is_creator ? 1 : 0]),
        out_(std::move(out)),
        in_(std::move(in)),
        peer_(std::move(peer)),
        head_(out_control_.head.load(std::memory_order_relaxed)),
        tail_(in_control_.tail.load(std::memory_order_relaxed)) {}
  ~ShmStream() override { munmap(front_, kPageBytes); }

  std::span<std::byte> writable() override {
    return {out_->data() + head_ % out_->size_bytes(), room(out_control_.tail.load(std::memory_order_acquire))};
  }
  void commit(std::size_t bytes) override {
    head_ += bytes;
    stats_.sent_bytes += bytes;
    out_control_.head.store(head_, std::memory_order_release);
    has_committed_ = true;
  }

  std::span<const std::byte> readable() override {
    const std::uint64_t head = in_control_.head.load(std::memory_order_acquire);
    seen_head_ = head;
    return {in_->data() + tail_ % in_->size_bytes(), std::min<std::size_t>(head - tail_, in_->size_bytes())};
  }
  void consume(std::size_t bytes) override {
    tail_ += bytes;
    stats_.received_bytes += bytes;
    in_control_.tail.store(tail_, std::memory_order_release);
    has_consumed_ = true;
  }

  // The fence puts the new position before the look at the flag; arm() does the opposite. One of the two sides sees
  // what the other did, so no ring of the bell is lost.
  void flush() override {
    if (!has_committed_ && !has_consumed_) return;
    std::atomic_thread_fence(std::memory_order_seq_cst);
    bool rings = false;
    if (has_committed_ && out_control_.reader_waits.load(std::memory_order_relaxed) != 0) {
      rings = out_control_.reader_waits.exchange(0) != 0;
    }
    // A writer is woken when there is room for a good piece, not for every line.
    if (has_consumed_ && in_control_.writer_waits.load(std::memory_order_relaxed) != 0 &&
        in_->size_bytes() - (in_control_.head.load(std::memory_order_relaxed) - tail_) >= in_->size_bytes() / 4) {
      rings = in_control_.writer_waits.exchange(0) != 0 || rings;
    }
    has_committed_ = has_consumed_ = false;
    if (rings) peer_->ring();
  }

  bool arm(bool for_data, bool for_room) override {
    in_control_.reader_waits.store(for_data ? 1 : 0, std::memory_order_relaxed);
    out_control_.writer_waits.store(for_room ? 1 : 0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (for_data && in_control_.head.load(std::memory_order_acquire) != seen_head_) return true;
    return for_room && room(out_control_.tail.load(std::memory_order_acquire)) >= out_->size_bytes() / 4;
  }

  std::uint64_t committed() const override { return head_; }
  std::uint64_t consumed() const override { return tail_; }
  const std::optional<std::string>& ended() const override { return ended_; }
  const char* kind() const override { return "shm"; }
  const StreamStats& stats() const override { return stats_; }

 private:
  // A peer that writes nonsense into the shared page must not make us write outside of the ring.
  std::size_t room(std::uint64_t tail) const {
    const std::uint64_t used = head_ - tail;
    return used <= out_->size_bytes() ? out_->size_bytes() - used : 0;
  }

  Front* front_;
  RingControl& out_control_;
  RingControl& in_control_;
  std::unique_ptr<MirroredMemory> out_, in_;
  std::shared_ptr<Doorbell> peer_;
  std::uint64_t head_, tail_;    // of what we write and of what we read
  std::uint64_t seen_head_ = 0;  // when readable() was called last: what came since is news
  bool has_committed_ = false, has_consumed_ = false;
  std::optional<std::string> ended_;
  StreamStats stats_;
};

}  // namespace

std::unique_ptr<ShmSegment> ShmSegment::create(std::size_t ring_bytes) {
  const int descriptor = memfd_create("netfold", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) return nullptr;
  auto segment = std::unique_ptr<ShmSegment>(new ShmSegment(descriptor, ring_bytes));
  // Asked for now, so that a lack of memory is an answer and not a signal later.
  if (posix_fallocate(descriptor, 0, static_cast<off_t>(kPageBytes + 2 * ring_bytes)) != 0) return nullptr;
  if (fcntl(descriptor, F_ADD_SEALS, kSeals) != 0) return nullptr;
  void* const page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (page == MAP_FAILED) return nullptr;
  auto* const front = new (page) Front{};
  front->identity = {kRingsMagic, ring_bytes};
  munmap(page, kPageBytes);
  return segment;
}

std::unique_ptr<ShmSegment> ShmSegment::open(int descriptor) {
  if (descriptor < 0) return nullptr;
  RingsIdentity found{};
  struct stat status {};
  const bool is_it = (fcntl(descriptor, F_GET_SEALS) & kSeals) == kSeals &&
                     pread(descriptor, &found, sizeof found, 0) == static_cast<ssize_t>(sizeof found) &&
                     found.magic == kRingsMagic && fstat(descriptor, &status) == 0 && found.ring_bytes > 0 &&
                     found.ring_bytes % kPageBytes == 0 &&
                     static_cast<std::uint64_t>(status.st_size) == kPageBytes + 2 * found.ring_bytes;
  if (is_it) return std::unique_ptr<ShmSegment>(new ShmSegment(descriptor, found.ring_bytes));
  close(descriptor);
  return nullptr;
}

ShmSegment::~ShmSegment() {
  close(descriptor_);
}

std::unique_ptr<StreamLink> shm_stream(const ShmSegment& segment, bool is_creator, std::shared_ptr<Doorbell> peer) {
  void* const page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment.descriptor(), 0);
  if (page == MAP_FAILED) return nullptr;
  const std::size_t ring_bytes = segment.ring_bytes();
  auto first = MirroredMemory::map(segment.descriptor(), kPageBytes, ring_bytes);
  auto second = MirroredMemory::map(segment.descriptor(), kPageBytes + ring_bytes, ring_bytes);
  if (!first || !second) {
    munmap(page, kPageBytes);
    return nullptr;
  }
  auto& out = is_creator ? first : second;
  auto& in = is_creator ? second : first;
  return std::make_unique<ShmStream>(static_cast<Front*>(page), std::move(out), std::move(in), is_creator,
                                     std::move(peer));
}

}  // namespace netfold::link
