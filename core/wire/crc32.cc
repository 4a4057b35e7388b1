#include "wire/crc32.h"

#include <isa-l/crc.h>

#include <vector>

namespace netfold::wire {

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before) {
  return crc32_gzip_refl(before, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

Crc32Shift::Crc32Shift(std::size_t size_bytes) {
  const std::vector<std::byte> zeros(size_bytes);
  std::array<std::uint32_t, 32> of_bit;  // a remainder of one bit, with the zeros behind it
  for (std::size_t bit = 0; bit < of_bit.size(); ++bit) of_bit[bit] = ~crc32(zeros, ~(std::uint32_t{1} << bit));
  for (std::size_t place = 0; place < 4; ++place) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      tables_[place][byte] = 0;
      for (std::size_t bit = 0; bit < 8; ++bit) {
        if ((byte >> bit & 1) != 0) tables_[place][byte] ^= of_bit[8 * place + bit];
      }
    }
  }
}

}  // namespace netfold::wire
