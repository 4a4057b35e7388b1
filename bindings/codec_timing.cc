// The timing loop of `netfold bench codec`: every operation once per round, memcpy of the same floats among them, so
// that what drifts on a machine drifts for all of them alike.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/prng.h"
#include "module.h"
#include "numbers/fold.h"
#include "types.h"

namespace nb = nanobind;
using namespace netfold::numbers;
using netfold::Buffer;
using netfold::make_buffer;

namespace {

constexpr std::size_t kFoldWorkers = 8;

struct Timing {
  std::string system;  // "memcpy" or a kernel table
  std::string operation;
  std::string format;
  std::vector<double> time_s = {};  // of one pass over the floats
};

struct Operation {
  Timing timing;
  std::function<void()> pass;
  std::function<double()> max_abs_error = {};  // of what the last pass left, where numbers were folded
};

// The memory of the passes: floats in, floats out, their wire form, all in the same kind of memory.
struct Buffers {
  Buffers(std::size_t count, BfpShape shape)
      : count(count),
        wire{Format::kBfp, shape},
        in(make_buffer(count * sizeof(float))),
        out(make_buffer(count * sizeof(float))),
        encoded(make_buffer(encoded_bytes(wire, count))) {
    netfold::Prng prng(1);
    auto* values = floats_in();
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = static_cast<float>((prng.unit() + prng.unit() + prng.unit() - 1.5) * 1e-3);
    }
    std::memset(out.get(), 0, count * sizeof(float));
    kernels().bfp_encode(shape, values, count, encoded.get());
  }

  float* floats_in() const { return reinterpret_cast<float*>(in.get()); }
  float* floats_out() const { return reinterpret_cast<float*>(out.get()); }

  // The same bytes as contributions of eight workers, each an eighth as long.
  std::vector<const std::byte*> eighths(const Buffer& buffer, std::size_t size_bytes) const {
    std::vector<const std::byte*> payloads;
    for (std::size_t rank = 0; rank < kFoldWorkers; ++rank) payloads.push_back(buffer.get() + rank * size_bytes);
    return payloads;
  }

  std::size_t count;
  WireFormat wire;
  Buffer in;
  Buffer out;
  Buffer encoded;
};

// The result of a fold in `sum`, against the sum in double precision of what the workers had.
double fold_error(const Buffers& b, const float* sum, std::size_t each) {
  double largest = 0;
  for (std::size_t i = 0; i < each; ++i) {
    double exact = 0;
    for (std::size_t rank = 0; rank < kFoldWorkers; ++rank) exact += double{b.floats_in()[rank * each + i]};
    largest = std::max(largest, std::abs(double{sum[i]} - exact));
  }
  return largest;
}

double bfp_fold_error(const Buffers& b, std::size_t each) {
  std::vector<float> sum(each);
  kernels().bfp_decode(b.wire.bfp, b.out.get(), each, sum.data());
  return fold_error(b, sum.data(), each);
}

// glibc's, not a copy the compiler makes of its own.
void* (*volatile copy)(void*, const void*, std::size_t) = std::memcpy;

// The least that any pass over floats in memory must do: read them. The bound of encode.
#if defined(__x86_64__)
__attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#endif
std::uint64_t
read_all(const std::uint64_t* words, std::size_t count) {
  constexpr std::size_t kLanes = 64;
  std::array<std::uint64_t, kLanes> lanes{};
  for (std::size_t i = 0; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] ^= words[i + lane];
  }
  return std::accumulate(lanes.begin(), lanes.end(), std::uint64_t{0}, std::bit_xor<>());
}
volatile std::uint64_t read_sink;  // so that the reading is not left out

void add_operations(const Kernels& table, const Buffers& b, std::vector<Operation>& operations) {
  const std::string name = table.name;
  const BfpShape shape = b.wire.bfp;
  operations.push_back({{name, "encode", "bfp"},
                        [&table, &b, shape] { table.bfp_encode(shape, b.floats_in(), b.count, b.encoded.get()); }});
  operations.push_back({{name, "decode", "bfp"},
                        [&table, &b, shape] { table.bfp_decode(shape, b.encoded.get(), b.count, b.floats_out()); }});
  operations.push_back({{name, "decode-add", "bfp"}, [&table, &b, shape] {
                          table.bfp_decode_add(shape, b.encoded.get(), b.count, b.floats_out());
                        }});
  const std::size_t each = b.count / kFoldWorkers;
  operations.push_back({{name, "fold-8", "bfp"},
                        [&table, &b, each, payloads = b.eighths(b.encoded, encoded_bytes(b.wire, each))] {
                          Folder(each, kFoldWorkers, table).fold(b.wire, payloads, each, b.out.get());
                        },
                        [&b, each] { return bfp_fold_error(b, each); }});
  operations.push_back({{name, "fold-8", "fp32"},
                        [&table, &b, each, payloads = b.eighths(b.in, each * sizeof(float))] {
                          Folder(each, kFoldWorkers, table).fold({Format::kFp32}, payloads, each, b.out.get());
                        },
                        [&b, each] { return fold_error(b, b.floats_out(), each); }});
}

double seconds_of(const std::function<void()>& pass, std::size_t passes) {
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < passes; ++i) pass();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count() / static_cast<double>(passes);
}

std::vector<const Kernels*> tables_named(const std::vector<std::string>& names) {
  std::vector<const Kernels*> tables;
  for (const std::string& name : names) {
    const Kernels* found = nullptr;
    for (const Kernels* table : all_kernels()) {
      if (table->is_supported() && name == table->name) found = table;
    }
    if (found == nullptr) throw nb::value_error(("this machine has no kernels called '" + name + "'").c_str());
    tables.push_back(found);
  }
  return tables;
}

netfold::Records time_codec(const std::vector<std::string>& names, std::size_t size_bytes, std::size_t repeat,
                            double pass_time_s, unsigned block, unsigned mantissa) {
  const BfpShape shape{static_cast<std::uint8_t>(block), static_cast<std::uint8_t>(mantissa)};
  if (block > 128 || mantissa > 7 || !is_valid(shape)) throw nb::value_error("no such block and mantissa");
  const std::size_t eights = size_bytes / sizeof(float) / (kFoldWorkers * block);
  if (eights == 0 || repeat == 0) throw nb::value_error("needs eight blocks of floats and one repetition at least");
  const std::vector<const Kernels*> tables = tables_named(names);
  const Buffers buffers(eights * kFoldWorkers * block, shape);
  std::vector<Operation> operations;
  const auto copy_pass = [&] { copy(buffers.out.get(), buffers.in.get(), buffers.count * sizeof(float)); };
  operations.push_back({{"memcpy", "copy", "fp32"}, copy_pass});
  operations.push_back({{"read", "read", "fp32"}, [&] {
                          read_sink = read_all(reinterpret_cast<const std::uint64_t*>(buffers.in.get()),
                                               buffers.count * sizeof(float) / sizeof(std::uint64_t));
                        }});
  for (const Kernels* table : tables) add_operations(*table, buffers, operations);

  std::vector<std::size_t> passes;  // enough that the clock's own cost and resolution do not show
  for (const Operation& operation : operations) {
    seconds_of(operation.pass, 1);
    passes.push_back(1 + static_cast<std::size_t>(pass_time_s / seconds_of(operation.pass, 1)));
  }
  for (std::size_t round = 0; round < repeat; ++round) {
    for (std::size_t i = 0; i < operations.size(); ++i) {
      const nb::gil_scoped_release release;
      operations[i].timing.time_s.push_back(seconds_of(operations[i].pass, passes[i]));
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
  netfold::Records timings;
  for (const Operation& operation : operations) {
    nb::dict timing;
    timing["system"] = operation.timing.system;
    timing["algorithm"] = operation.timing.operation;
    timing["format"] = operation.timing.format;
    timing["size_bytes"] = buffers.count * sizeof(float);
    timing["time_s"] = operation.timing.time_s;
    if (operation.max_abs_error) {
      operation.pass();
      timing["max_abs_error"] = operation.max_abs_error();
    }
    timings.append(timing);
  }
  return timings;
}

}  // namespace

void bind_codec_timing(nb::module_& module) {
  using namespace nb::literals;
  module.def("time_codec", time_codec, "kernels"_a, "size_bytes"_a, "repeat"_a, "pass_time_s"_a = 0.0005,
             "block"_a = 16, "mantissa"_a = 7,
             "Seconds that each operation of each kernel table takes for `size_bytes` of floats, memcpy of the same "
             "floats and only reading them, `repeat` times in turn; the largest error where eight workers' floats "
             "were folded.");
  module.attr("FOLD_WORKERS") = kFoldWorkers;
}
