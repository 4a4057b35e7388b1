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

int digit_of(char text) {
  if (text >= '0' && text <= '9') return text - '0';
  return text >= 'a' && text <= 'f' ? text - 'a' + 10 : -1;
}

// All zeros, which is as bad as any guess, where the text is not a tag.
Tag tag_of(std::string_view digits) {
  Tag tag{};
  for (std::size_t i = 0; i < tag.size() && digits.size() == kTagDigits; ++i) {
    const int high = digit_of(digits[2 * i]), low = digit_of(digits[2 * i + 1]);
    if (high < 0 || low < 0) return Tag{};
    tag[i] = static_cast<std::byte>(16 * high + low);
  }
  return tag;
}

}  // namespace

ControlLink::Outcome TaggedLines::read(const std::function<void(std::string_view)>& on_line) {
  auto outcome = link_->read([&](std::string_view tagged) {
    if (is_wrong_) return;
    const std::string_view digits = tagged.substr(0, kTagDigits), line = tagged.substr(digits.size());
    is_wrong_ = !tags_->is_right(header_of(read_++), bytes_of(line), tag_of(digits));
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
