#include "modules.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <stdexcept>

#include "Vbfp_decode.h"
#include "Vbfp_encode.h"
#include "Vfp32_adder_array.h"
#include "base/prng.h"
#include "clocked.h"
#include "numbers/format.h"
#include "numbers/kernels.h"
#include "numbers/tables.h"

namespace netfold::rtl {
namespace {

constexpr unsigned kLanes = NETFOLD_RTL_LANES;
constexpr numbers::BfpShape kShape{NETFOLD_RTL_BLOCK, NETFOLD_RTL_MANTISSA};
constexpr std::size_t kUnit = std::max<std::size_t>(kShape.block, 16);  // elements: a chunk is whole units
constexpr std::size_t kBeatBytes = std::size_t{4} * kLanes;
constexpr std::size_t kChunkUnitsMax = 64;
constexpr std::uint64_t kPatience = 10000;  // cycles without a beat

struct Beat {
  std::array<std::uint32_t, kLanes> words{};
  bool last = false;
};

// Inputs that belong together (fold: both operands; decode: `beats` is the command), and the expected output.
struct Work {
  std::deque<Beat> first, second, expected;
  std::deque<std::uint32_t> commands;
};

// Numbers that reveal errors: corner cases, similar sizes, cancellation, random bits.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : prng_(seed) {}

  std::uint32_t next() {
    switch (prng_.below(8)) {
      case 0: return kCorners[prng_.below(kCorners.size())];
      case 1: return near(last_, 2);
      case 2: return last_ ^ 0x80000000u;
      case 3: return with_exponent(static_cast<std::uint32_t>(prng_.below(28)));
      case 4: return with_exponent(254 - static_cast<std::uint32_t>(prng_.below(4)));
      case 5: return near(last_, 26);
      case 6: return last_ + static_cast<std::uint32_t>(prng_.below(5)) - 2;
      default: return last_ = static_cast<std::uint32_t>(prng_.next());
    }
  }

  // Numbers of one block: mostly of similar size, because others are rounded to zero.
  void block(std::uint32_t* out, std::size_t count) {
    last_ = static_cast<std::uint32_t>(prng_.next());
    const std::uint64_t kind = prng_.below(16);
    for (std::size_t i = 0; i < count; ++i) {
      out[i] = kind == 0   ? next()
               : kind == 1 ? with_exponent(static_cast<std::uint32_t>(prng_.below(12)))
               : kind == 2 ? tie()
                           : near(last_, 10);
      if (kind > 0 && (out[i] >> 23 & 0xff) == 255) out[i] &= 0xbfffffff;
    }
  }

  Prng& prng() { return prng_; }

 private:
  static constexpr std::array<std::uint32_t, 18> kCorners{
      0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x807fffff, 0x00800000, 0x80800000, 0x7f7fffff,
      0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0x3f800000, 0xbf800000, 0x3f7fffff, 0x3f800001};

  std::uint32_t with_exponent(std::uint32_t exponent) {
    return (static_cast<std::uint32_t>(prng_.next()) & 0x807fffffu) | exponent << 23;
  }
  std::uint32_t near(std::uint32_t to, std::uint32_t spread) {
    const auto exponent = static_cast<std::int64_t>(to >> 23 & 0xff) - static_cast<std::int64_t>(prng_.below(spread));
    return with_exponent(static_cast<std::uint32_t>(std::max<std::int64_t>(exponent, 0)));
  }
  // Few bits are set: halves of the last place of a mantissa.
  std::uint32_t tie() { return near(last_, 10) & 0xffff8000u; }

  Prng prng_;
  std::uint32_t last_ = 0x3f800000;
};

void append(std::deque<Beat>& beats, const std::byte* bytes, std::size_t size, std::size_t padded) {
  for (std::size_t at = 0; at < padded; at += kBeatBytes) {
    Beat beat;
    if (at < size) std::memcpy(beat.words.data(), bytes + at, std::min(kBeatBytes, size - at));
    beat.last = at + kBeatBytes >= padded;
    beats.push_back(beat);
  }
}

std::size_t whole_beats(std::size_t bytes) {
  return (bytes + kBeatBytes - 1) / kBeatBytes * kBeatBytes;
}

// Each function adds one chunk of work and returns its numbers.
std::size_t make_fold(Numbers& numbers, Work& work, std::size_t units) {
  const std::size_t count = units * kUnit;
  std::vector<float> a(count), b(count), sum(count);
  for (std::size_t i = 0; i < count; ++i) {
    a[i] = std::bit_cast<float>(numbers.next());
    b[i] = std::bit_cast<float>(numbers.next());
  }
  numbers::reference_kernels()->add_fp32(a.data(), b.data(), count, sum.data());
  append(work.first, reinterpret_cast<std::byte*>(a.data()), count * 4, count * 4);
  append(work.second, reinterpret_cast<std::byte*>(b.data()), count * 4, count * 4);
  append(work.expected, reinterpret_cast<std::byte*>(sum.data()), count * 4, count * 4);
  return count;
}

std::size_t make_encode(Numbers& numbers, Work& work, std::size_t units) {
  const std::size_t count = units * kUnit;
  std::vector<std::uint32_t> in(count);
  for (std::size_t i = 0; i < count; i += kShape.block) numbers.block(in.data() + i, kShape.block);
  std::vector<std::byte> wire(numbers::encoded_bytes({numbers::Format::kBfp, kShape}, count));
  numbers::reference_kernels()->bfp_encode(kShape, reinterpret_cast<float*>(in.data()), count, wire.data());
  append(work.first, reinterpret_cast<std::byte*>(in.data()), count * 4, count * 4);
  append(work.expected, wire.data(), wire.size(), whole_beats(wire.size()));
  return count;
}

std::size_t make_decode(Numbers& numbers, Work& work, std::size_t units) {
  const std::size_t count = units * kUnit;
  std::vector<std::byte> wire(numbers::encoded_bytes({numbers::Format::kBfp, kShape}, count));
  for (auto& byte : wire) byte = static_cast<std::byte>(numbers.prng().next());
  for (std::size_t at = 0; at < wire.size(); at += numbers::bfp_block_bytes(kShape)) {
    if (numbers.prng().below(8) == 0) wire[at] = static_cast<std::byte>(numbers.prng().below(12));
    if (numbers.prng().below(16) == 0) wire[at] = static_cast<std::byte>(250 + numbers.prng().below(6));
  }
  std::vector<float> out(count);
  numbers::reference_kernels()->bfp_decode(kShape, wire.data(), count, out.data());
  append(work.first, wire.data(), wire.size(), whole_beats(wire.size()));
  append(work.expected, reinterpret_cast<std::byte*>(out.data()), count * 4, count * 4);
  work.commands.push_back(static_cast<std::uint32_t>(count / kLanes));
  return count;
}

// The ports of each module: input, whether it is accepted, and output.
struct Fold : Clocked<Vfp32_adder_array> {
  static constexpr auto make = make_fold;
  static constexpr bool kComparesNumbers = true;
  void offer(const Work& work, bool gives) {
    auto& m = *this;
    m->a_tvalid_i = m->b_tvalid_i = gives && !work.first.empty();
    if (work.first.empty()) return;
    std::memcpy(m->a_tdata_i.data(), work.first.front().words.data(), kBeatBytes);
    std::memcpy(m->b_tdata_i.data(), work.second.front().words.data(), kBeatBytes);
    m->b_tuser_i = work.first.front().last;
  }
  bool takes(Work& work) {
    auto& m = *this;
    if (!m->a_tvalid_i || !m->a_tready_o || !m->b_tready_o) return false;
    work.first.pop_front();
    work.second.pop_front();
    return true;
  }
  bool out_last() { return (*this)->m_tuser_o != 0; }
};

struct Encode : Clocked<Vbfp_encode> {
  static constexpr auto make = make_encode;
  static constexpr bool kComparesNumbers = false;
  void offer(const Work& work, bool gives) {
    auto& m = *this;
    m->s_tvalid_i = gives && !work.first.empty();
    if (work.first.empty()) return;
    std::memcpy(m->s_tdata_i.data(), work.first.front().words.data(), kBeatBytes);
    m->s_tlast_i = work.first.front().last;
  }
  bool takes(Work& work) {
    auto& m = *this;
    if (!m->s_tvalid_i || !m->s_tready_o) return false;
    work.first.pop_front();
    return true;
  }
  bool out_last() { return (*this)->m_tlast_o != 0; }
};

struct Decode : Clocked<Vbfp_decode> {
  static constexpr auto make = make_decode;
  static constexpr bool kComparesNumbers = true;
  void offer(const Work& work, bool gives) {
    auto& m = *this;
    m->s_tvalid_i = gives && !work.first.empty();
    m->command_valid_i = !work.commands.empty();
    if (!work.commands.empty()) m->command_beats_i = work.commands.front();
    if (work.first.empty()) return;
    std::memcpy(m->s_tdata_i.data(), work.first.front().words.data(), kBeatBytes);
    m->s_tlast_i = work.first.front().last;
  }
  bool takes(Work& work) {
    auto& m = *this;
    if (m->command_valid_i && m->command_ready_o) work.commands.pop_front();
    if (m->mismatch_o) throw std::runtime_error("bfp_decode reports a mismatch without a cause");
    if (!m->s_tvalid_i || !m->s_tready_o) return false;
    work.first.pop_front();
    return true;
  }
  bool out_last() { return (*this)->m_tlast_o != 0; }
};

std::size_t count_differences(const Beat& expected, const std::uint32_t* found, bool as_numbers) {
  std::size_t differences = 0;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const auto left = std::bit_cast<float>(expected.words[lane]), right = std::bit_cast<float>(found[lane]);
    const bool both_nan = as_numbers && std::isnan(left) && std::isnan(right);
    if (!both_nan && expected.words[lane] != found[lane]) ++differences;
  }
  return differences;
}

struct Measured {
  std::uint64_t differences = 0, beats_in = 0, beats_out = 0;
  std::uint64_t first_in = 0, last_in = 0, first_out = 0, last_out = 0;  // cycles
};

// `more` adds work; false when there is enough.
template <class Module, class More>
Measured drive(Module& module, const ModuleRun& run, More more) {
  Work work;
  Measured measured;
  Prng prng(run.seed ^ 0x5eed);
  std::uint64_t quiet = 0;
  const auto goes = [&](double pause) { return pause == 0 || !prng.chance(pause); };
  for (;;) {
    while (work.first.size() < 2 * kLanes * kChunkUnitsMax && more(work)) {
    }
    if (work.expected.empty()) return measured;
    module.offer(work, goes(run.idle));
    module->m_tready_i = goes(run.stall);
    module.settle();
    const std::uint64_t now = module.cycles();
    if (module->m_tvalid_o && module->m_tready_i) {
      const Beat& expected = work.expected.front();
      measured.differences += count_differences(expected, module->m_tdata_o.data(), Module::kComparesNumbers);
      if (module.out_last() != expected.last) ++measured.differences;
      work.expected.pop_front();
      if (measured.beats_out++ == 0) measured.first_out = now;
      measured.last_out = now;
      quiet = 0;
    }
    if (module.takes(work)) {
      if (measured.beats_in++ == 0) measured.first_in = now;
      measured.last_in = now;
    }
    module.edge();
    if (++quiet > kPatience) throw std::runtime_error(run.module + ": the module has stopped");
  }
}

template <class Module>
nlohmann::json campaign(const ModuleRun& run) {
  Numbers numbers(run.seed);
  Module module;
  bool is_alone = true;  // first, one unit in the empty module
  const auto one = [&](Work& work) { return std::exchange(is_alone, false) && Module::make(numbers, work, 1) > 0; };
  const Measured alone = drive(module, {run.module, 0, run.seed, 0, 0}, one);
  std::uint64_t values = 0;
  const auto many = [&](Work& work) {
    if (values >= run.values) return false;
    values += Module::make(numbers, work, 1 + numbers.prng().below(kChunkUnitsMax));
    return true;
  };
  const Measured measured = drive(module, run, many);
  const bool gives_more = measured.beats_out > measured.beats_in;  // decode: its output is counted
  const std::uint64_t beats = gives_more ? measured.beats_out : measured.beats_in;
  const std::uint64_t cycles =
      1 + (gives_more ? measured.last_out - measured.first_out : measured.last_in - measured.first_in);
  // An encoder needs its whole block before its first output.
  const std::uint64_t latency = alone.first_out - (run.module == "encode" ? alone.last_in : alone.first_in);
  return {{"module", run.module},
          {"lanes", kLanes},
          {"block", kShape.block},
          {"mantissa", kShape.mantissa},
          {"values", values},
          {"differences", measured.differences + alone.differences},
          {"beats", beats},
          {"cycles", cycles},
          {"beats_per_cycle", static_cast<double>(beats) / static_cast<double>(cycles)},
          {"latency_cycles", latency}};
}

}  // namespace

nlohmann::json run_module(const ModuleRun& run) {
  if (run.module == "fold") return campaign<Fold>(run);
  if (run.module == "encode") return campaign<Encode>(run);
  if (run.module == "decode") return campaign<Decode>(run);
  throw std::invalid_argument("'" + run.module + "' is not a module: write fold, encode or decode");
}

}  // namespace netfold::rtl
