// Which table serves.
#include <cstdlib>
#include <string_view>

#include "base/log.h"
#include "numbers/tables.h"

namespace netfold::numbers {

namespace {

const Kernels& choose() {
  const char* wanted = std::getenv("NETFOLD_KERNELS");
  const Kernels* fastest = nullptr;
  for (const Kernels* table : all_kernels()) {
    if (!table->is_supported()) continue;
    if (fastest == nullptr) fastest = table;
    if (wanted != nullptr && std::string_view(wanted) == table->name) return *table;
  }
  if (wanted != nullptr && *wanted != '\0') {
    log::warn("NETFOLD_KERNELS={} names no kernels that this machine can run; using {}", wanted, fastest->name);
  }
  return *fastest;
}

}  // namespace

std::span<const Kernels* const> all_kernels() {
  static const std::vector<const Kernels*> tables = [] {
    std::vector<const Kernels*> all = simd_kernels();
    all.push_back(reference_kernels());
    return all;
  }();
  return tables;
}

const Kernels& kernels() {
  static const Kernels& chosen = choose();
  return chosen;
}

}  // namespace netfold::numbers
