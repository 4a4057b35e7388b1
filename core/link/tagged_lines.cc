#include "link/tagged_lines.h"

#include <array>
#include <cstring>
#include <span>

#include "base/hex.h"

namespace netfold::link {
namespace {

constexpr std::size_t kTagDigits = 2 * sizeof(Tag);

// Little-endian, as a stripe's position.
std::array<std::byte, sizeof(std::uint64_t)> header_of(std::uint64_t number) {
  std::array<std::byte, sizeof number> header;
  std::memcpy(header.data(), &number, sizeof number);
  return header;
}

std::span<const std::byte> bytes_of(std::string_view line) {
  return std::as_bytes(std::span(line));
}

}  // namespace

ControlLink::Outcome TaggedLines::read(const std::function<void(std::string_view)>& on_line) {
  auto outcome = link_->read([&](std::string_view tagged) {
    if (is_wrong_) return;
    const std::string_view digits = tagged.substr(0, kTagDigits), line = tagged.substr(digits.size());
    Tag tag;
    is_wrong_ = !from_hex(digits, tag) || !tags_->is_right(header_of(read_++), bytes_of(line), tag);
    if (!is_wrong_) on_line(line);
  });
  if (is_wrong_) return {State::kGarbage, "sent a message with a wrong tag"};
  return outcome;
}

ControlLink::Outcome TaggedLines::write(std::string_view lines) {
  std::string tagged;
  while (!lines.empty()) {
    const std::size_t end = lines.find('\n');
    const std::string_view line = lines.substr(0, end);
    tagged += to_hex(tags_->of(header_of(written_++), bytes_of(line)));
    tagged += line;
    tagged += '\n';
    lines.remove_prefix(end == lines.npos ? lines.size() : end + 1);
  }
  return link_->write(tagged);
}

}  // namespace netfold::link
