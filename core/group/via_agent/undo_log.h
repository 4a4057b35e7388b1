// The former contents of a worker's memory where its agent wrote (channel.h): the agent's end keeps it, the worker's
// end puts it back.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "base/result.h"
#include "group/via_agent/channel.h"
#include "link/shared_memory.h"

namespace netfold::group {

// The agent's.
class UndoLog {
 public:
  class Slot {
   public:
    explicit Slot(link::Mapping memory);

    // Where data() belongs in the worker; at most kSlotDataBytes. Before mark().
    void is_for(std::uint64_t address, std::size_t size_bytes);
    std::byte* data() const { return memory_.data() + kSlotHeaderBytes; }
    // From now on the worker would put data() back.
    void mark(std::uint64_t ticket);
    void clear();

   private:
    link::Mapping memory_;
    SlotHeader& header_;
  };

  static Result<UndoLog> make();

  // Slots are kept for what comes next: fresh memory costs a page fault every 4 KiB.
  Result<Slot*> take();
  void give_back(Slot* slot);  // clears it
  Result<link::Descriptor> for_worker() const { return link::for_reading(memory_); }

 private:
  explicit UndoLog(link::Descriptor memory) : memory_(std::move(memory)) {}

  link::Descriptor memory_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Slot*> free_;
};

// The worker's: what of its memory a request may write, by ticket.
struct Extent {
  std::byte* first;
  std::size_t size_bytes;
};
// Puts back what was overwritten for these requests; nothing outside of them. kSystem if the log cannot be read.
Result<void> undo(const link::Descriptor& log, const std::map<std::uint64_t, Extent>& requests);

}  // namespace netfold::group
