// Text in which a user says where something is, with parts between commas: "eth1,version=1,job=9".
#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <system_error>

namespace netfold {

// The number behind `word` in a part such as job=9 or offset=0x1000. False if the part is another, or something else
// follows.
template <class Number>
bool read_number(std::string_view part, std::string_view word, Number& number) {
  if (!part.starts_with(word)) return false;
  part.remove_prefix(word.size());
  const bool is_hexadecimal = part.starts_with("0x");
  if (is_hexadecimal) part.remove_prefix(2);
  const char *const begin = part.data(), *const end = begin + part.size();
  const auto [stopped, error] = std::from_chars(begin, end, number, is_hexadecimal ? 16 : 10);
  return error == std::errc{} && stopped == end;
}

// Puts the rank where {rank} stands.
inline void put_rank(std::string& text, int rank) {
  constexpr std::string_view kRank = "{rank}";
  if (const auto at = text.find(kRank); at != std::string::npos) text.replace(at, kRank.size(), std::to_string(rank));
}

}  // namespace netfold
