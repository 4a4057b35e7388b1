#include "link/shm/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <new>

#include "base/memory_units.h"

namespace netfold::link {
namespace {

constexpr std::uint64_t kArenaMagic = 0x6e6574666f6c6461;

struct ArenaIdentity {
  std::uint64_t magic, world, contribution_bytes, sum_bytes;
};

constexpr std::size_t kCountersBytes = sizeof(Arena::Counters);
constexpr std::size_t kNotesBytes = (Arena::kRemembered + Arena::kRooms) * Arena::kNoteBytes;
static_assert(kCountersBytes % kCacheLineBytes == 0 && std::atomic<std::uint64_t>::is_always_lock_free);

std::size_t part_bytes(Arena::Shape shape) {
  const std::size_t bytes = kCountersBytes + kNotesBytes + Arena::kRooms * (shape.contribution_bytes + shape.sum_bytes);
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

std::size_t total_bytes(int world, Arena::Shape shape) {
  return kPageBytes + static_cast<std::size_t>(world) * part_bytes(shape);
}

}  // namespace

std::unique_ptr<Arena> Arena::create(int world, Shape shape) {
  const std::size_t bytes = total_bytes(world, shape);
  const int descriptor = memfd_create("netfold-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) return nullptr;
  // Asked for now, so that a full machine is an answer and not a signal later; and it stays that large.
  void* data = MAP_FAILED;
  if (posix_fallocate(descriptor, 0, static_cast<off_t>(bytes)) == 0 &&
      fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) == 0) {
    data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  }
  if (data == MAP_FAILED) {
    close(descriptor);
    return nullptr;
  }
  auto arena = std::unique_ptr<Arena>(new Arena(static_cast<std::byte*>(data), world, shape, descriptor));
  for (int rank = 0; rank < world; ++rank) new (arena->part(rank)) Counters{};
  const ArenaIdentity identity{kArenaMagic, static_cast<std::uint64_t>(world), shape.contribution_bytes,
                               shape.sum_bytes};
  std::memcpy(data, &identity, sizeof identity);
  return arena;
}

std::unique_ptr<Arena> Arena::map(int descriptor, int world) {
  if (descriptor < 0) return nullptr;
  auto arena = map_open(descriptor, world);
  close(descriptor);
  return arena;
}

std::unique_ptr<Arena> Arena::map_open(int descriptor, int world) {
  ArenaIdentity found{};
  struct stat status {};
  const int seals = fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 ||
      pread(descriptor, &found, sizeof found, 0) != static_cast<ssize_t>(sizeof found) || found.magic != kArenaMagic ||
      found.world != static_cast<std::uint64_t>(world) || fstat(descriptor, &status) != 0) {
    return nullptr;
  }
  const Shape shape{found.contribution_bytes, found.sum_bytes};
  const auto bytes = static_cast<std::size_t>(status.st_size);
  if (shape.contribution_bytes > bytes || shape.sum_bytes > bytes || total_bytes(world, shape) != bytes) return nullptr;
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) return nullptr;
  return std::unique_ptr<Arena>(new Arena(static_cast<std::byte*>(data), world, shape, -1));
}

Arena::~Arena() {
  munmap(data_, total_bytes(world_, shape_));
  forget_descriptor();
}

void Arena::forget_descriptor() {
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
}

std::byte* Arena::part(int rank) const {
  return data_ + kPageBytes + static_cast<std::size_t>(rank) * part_bytes(shape_);
}

std::byte* Arena::operation_note(int rank, std::uint64_t number) const {
  return part(rank) + kCountersBytes + number % kRemembered * kNoteBytes;
}

std::byte* Arena::chunk_note(int rank, std::uint64_t chunk) const {
  return part(rank) + kCountersBytes + (kRemembered + chunk % kRooms) * kNoteBytes;
}

std::byte* Arena::contribution(int rank, std::uint64_t chunk) const {
  return part(rank) + kCountersBytes + kNotesBytes + chunk % kRooms * shape_.contribution_bytes;
}

std::byte* Arena::sum(int rank, std::uint64_t chunk) const {
  return part(rank) + kCountersBytes + kNotesBytes + kRooms * shape_.contribution_bytes +
         chunk % kRooms * shape_.sum_bytes;
}

}  // namespace netfold::link
