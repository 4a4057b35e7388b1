#include "group/via_agent/undo_log.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <new>

namespace netfold::group {

UndoLog::Slot::Slot(link::Mapping memory) : memory_(std::move(memory)), header_(*new (memory_.data()) SlotHeader{}) {}

void UndoLog::Slot::is_for(std::uint64_t address, std::size_t size_bytes) {
  header_.address = address;
  header_.size_bytes = size_bytes;
}

void UndoLog::Slot::mark(std::uint64_t ticket) {
  header_.ticket.store(ticket, std::memory_order_release);
}

void UndoLog::Slot::clear() {
  header_.ticket.store(0, std::memory_order_release);
}

Result<UndoLog> UndoLog::make() {
  auto memory = link::make_shared_memory(0, false);
  if (!memory) return tl::unexpected(memory.error());
  return UndoLog(std::move(*memory));
}

Result<UndoLog::Slot*> UndoLog::take() {
  if (free_.empty()) {
    const std::size_t end = slots_.size() * kSlotBytes;
    if (ftruncate(memory_.get(), static_cast<off_t>(end + kSlotBytes)) != 0) {
      return tl::unexpected(system_error("no memory to keep a worker's numbers in"));
    }
    auto mapping = link::Mapping::of(memory_, end, kSlotBytes, true);
    if (!mapping) return tl::unexpected(mapping.error());
    slots_.push_back(std::make_unique<Slot>(std::move(*mapping)));
    free_.push_back(slots_.back().get());
  }
  Slot* const slot = free_.back();
  free_.pop_back();
  return slot;
}

void UndoLog::give_back(Slot* slot) {
  slot->clear();
  free_.push_back(slot);
}

Result<void> undo(const link::Descriptor& log, const std::map<std::uint64_t, Extent>& requests) {
  struct stat status {};
  if (fstat(log.get(), &status) != 0) return fail(ErrorCode::kSystem, "the agent's undo log cannot be read");
  const auto slots = static_cast<std::size_t>(status.st_size) / kSlotBytes;
  for (std::size_t slot = 0; slot < slots; ++slot) {
    const auto memory = link::Mapping::of(log, slot * kSlotBytes, kSlotBytes, false);
    if (!memory) return tl::unexpected(memory.error());
    const auto& header = *reinterpret_cast<const SlotHeader*>(memory->data());
    const auto request = requests.find(header.ticket.load(std::memory_order_acquire));
    if (request == requests.end()) continue;
    const std::uint64_t address = header.address, size_bytes = header.size_bytes;
    const auto& [first, extent_bytes] = request->second;
    const std::uint64_t offset = address - reinterpret_cast<std::uintptr_t>(first);
    if (size_bytes > kSlotDataBytes || size_bytes > extent_bytes || offset > extent_bytes - size_bytes) continue;
    std::memcpy(first + offset, memory->data() + kSlotHeaderBytes, size_bytes);
  }
  return {};
}

}  // namespace netfold::group
