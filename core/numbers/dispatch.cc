// Which table serves. A new port is one file and one line of kPriority.
#include <array>
#include <cstdlib>
#include <string_view>

#include <spdlog/spdlog.h>

#include "numbers/tables.h"

namespace netfold::numbers {

namespace {

using TableOf = const Kernels* (*)();
constexpr std::array<TableOf, 3> kPriority{
    avx512_kernels,
    avx2_kernels,
    reference_kernels,
};

struct Present {
  std::array<const Kernels*, kPriority.size()> tables{};
  std::size_t count = 0;
};

Present find_present() {
  Present present;
  for (const TableOf table_of : kPriority) {
    if (const Kernels* table = table_of()) present.tables[present.count++] = table;
  }
  return present;
}

const Kernels& choose() {
  const char* wanted = std::getenv("NETFOLD_KERNELS");
  const Kernels* fastest = nullptr;
  for (const Kernels* table : all_kernels()) {
    if (!table->is_supported()) continue;
    if (fastest == nullptr) fastest = table;
    if (wanted != nullptr && std::string_view(wanted) == table->name) return *table;
  }
  if (wanted != nullptr && *wanted != '\0') {
    spdlog::warn("NETFOLD_KERNELS={} names no kernels that this machine can run; using {}", wanted, fastest->name);
  }
  return *fastest;
}

}  // namespace

std::span<const Kernels* const> all_kernels() {
  static const Present present = find_present();
  return {present.tables.data(), present.count};
}

const Kernels& kernels() {
  static const Kernels& chosen = choose();
  return chosen;
}

}  // namespace netfold::numbers
