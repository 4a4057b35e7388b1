// Bytes in, lines out. It holds at most one unfinished line of kLineBytesMax bytes, whatever a peer sends.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <cstddef>

namespace netfold {

// With its newline.
constexpr std::size_t kLineBytesMax = 65536;

class LineBuffer {
 public:
  // Takes what came and calls on_line(std::string_view) for each whole line, without its newline (and without a
  // carriage return before it). False once a line is too long: the peer does not speak our protocol.
  template <class OnLine>
  bool feed(std::string_view bytes, OnLine&& on_line) {
    while (!overflown_ && !bytes.empty()) {
      const std::size_t end = bytes.find('\n');
      const std::string_view piece = bytes.substr(0, end);
      if (unfinished_.size() + piece.size() >= kLineBytesMax) {
        overflown_ = true;
        break;
      }
      if (end == std::string_view::npos) {
        unfinished_ += piece;
        break;
      }
      bytes.remove_prefix(end + 1);
      if (unfinished_.empty()) {
        deliver(piece, on_line);
      } else {
        std::string line = std::move(unfinished_);
        unfinished_.clear();
        line += piece;
        deliver(line, on_line);
      }
    }
    if (overflown_) unfinished_ = {};
    return !overflown_;
  }

 private:
  template <class OnLine>
  static void deliver(std::string_view line, OnLine& on_line) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    on_line(line);
  }

  std::string unfinished_;
  bool overflown_ = false;
};

}  // namespace netfold
