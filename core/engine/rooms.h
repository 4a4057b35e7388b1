// Memory for saved bytes and partial sums, kept between all-reduces: fresh memory costs a page fault every 4 KiB.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace netfold::engine {

struct Room {
  std::unique_ptr<std::byte[]> bytes;
  std::size_t size_bytes = 0;
};

class Rooms {
 public:
  // At least `size_bytes`, not initialised. The smallest that fits: if small tensors took large rooms, large tensors
  // would need new ones until every room was large.
  Room take(std::size_t size_bytes) {
    auto best = rooms_.end();
    for (auto room = rooms_.begin(); room != rooms_.end(); ++room) {
      if (room->size_bytes < size_bytes) continue;
      if (best == rooms_.end() || room->size_bytes < best->size_bytes) best = room;
    }
    if (best != rooms_.end()) {
      Room taken = std::move(*best);
      rooms_.erase(best);
      return taken;
    }
    if (!rooms_.empty()) rooms_.pop_back();  // too small: one that fits takes its place
    return {std::make_unique_for_overwrite<std::byte[]>(size_bytes), size_bytes};
  }
  void give_back(Room room) {
    if (room.bytes) rooms_.push_back(std::move(room));
  }

 private:
  std::vector<Room> rooms_;
};

}  // namespace netfold::engine
