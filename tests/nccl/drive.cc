// Drives the plugin as NCCL does, over host memory:
//   drive PLUGIN VERSION RANKS TASK [NAMESPACE ...]
// A task is a function below. Every rank is a process; the settings are the plugin's own, in the environment.
#include <csignal>
#include <cstring>
#include <deque>
#include <map>
#include <memory>

#include "plugin.h"
#include "ranks.h"
#include "relay.h"

namespace netfold::nccl::testing {
namespace {

constexpr std::size_t kSlice = 512 << 10;  // what NCCL hands over at once

class Rank {
 public:
  Rank(Ranks& ranks, Plugin plugin, int rank) : ranks_(ranks), plugin_(std::move(plugin)), rank_(rank) {
    CHECK(plugin_.init(print_log) == kSuccess);
    CHECK(plugin_.init_collectives(print_log) == kSuccess);
  }

  void say_devices();
  void messages();
  void ring();
  void sums();
  void killed_in_ring();
  void killed_in_sums();
  void stranger();
  void changed();
  void times();
  void stream();

 private:
  int world() const { return ranks_.world(); }
  int next() const { return (rank_ + 1) % world(); }
  void open_ring();
  void close_ring();
  void join();
  void leave();
  void all_reduce_in_ring(std::vector<float>& values);
  void all_reduce_in_network(std::vector<float>& values);
  template <class Test>
  Status finish(const Test& test, void* request, int* bytes = nullptr) {
    const double until = now_s() + kPatienceS;
    for (;;) {
      int is_done = 0;
      if (const Status status = test(request, &is_done, bytes); status != kSuccess) return status;
      if (is_done != 0) return kSuccess;
      CHECK(now_s() < until);
      sched_yield();
    }
  }
  template <class Element>
  void check_sum(DataType type, std::size_t count, Element (*of)(int));
  void check_same_bits(std::size_t count);

  Ranks& ranks_;
  const Plugin plugin_;
  const int rank_;
  std::unique_ptr<Relay> relay_;
  void *listener_ = nullptr, *sender_ = nullptr, *receiver_ = nullptr, *communicator_ = nullptr;
};

void Rank::say_devices() {
  int count = 0, collective = 0;
  CHECK(plugin_.devices(&count) == kSuccess && plugin_.collective_devices(&collective) == kSuccess);
  std::printf("devices %d, for collectives %d, gather %d, dma %d:", count, collective, +plugin_.has_gather,
              +plugin_.has_dma);
  for (int device = 0; device < count; ++device) {
    PropertiesV12 found;
    CHECK(plugin_.properties(device, &found) == kSuccess && found.memory_kinds == kHostMemory);
    CHECK(found.receives_max == 1 && found.speed_mbit_s > 0);
    std::printf(" %s", found.name);
  }
  std::printf("\n");
  int sums = 0, maxima = 0, doubles = 0;
  plugin_.reduce_support(kFloat32, kSum, &sums);
  plugin_.reduce_support(kFloat32, kMax, &maxima);
  plugin_.reduce_support(kFloat64, kSum, &doubles);
  CHECK(sums == 1 && maxima == 0 && doubles == 0);
  void* registration = nullptr;
  CHECK(plugin_.register_memory(&registration, 2, &registration) != kSuccess);  // memory of a GPU
}

void Rank::open_ring() {
  CHECK(plugin_.listen(0, ranks_.shared().handles[rank_], &listener_) == kSuccess && listener_ != nullptr);
  ranks_.wait_for_all();
  unsigned char handle[kHandleBytes];
  std::memcpy(handle, ranks_.shared().handles[next()], sizeof handle);
  if (const char* const at = std::getenv("DRIVE_CHANGE_AT"); at != nullptr && rank_ == 0) {
    relay_ = std::make_unique<Relay>(handle, std::strtoull(at, nullptr, 10));
  }
  const double until = now_s() + kPatienceS;
  while (sender_ == nullptr || receiver_ == nullptr) {
    if (sender_ == nullptr) CHECK(plugin_.connect(0, handle, &sender_) == kSuccess);
    if (receiver_ == nullptr) CHECK(plugin_.accept(listener_, &receiver_) == kSuccess);
    CHECK(now_s() < until);
  }
  CHECK(plugin_.close_listen(listener_) == kSuccess);
  void* registration = nullptr;
  CHECK(plugin_.register_memory(sender_, kHostMemory, &registration) == kSuccess);
}

void Rank::close_ring() {
  ranks_.wait_for_all();
  CHECK(plugin_.close_send(sender_) == kSuccess && plugin_.close_receive(receiver_) == kSuccess);
}

void Rank::join() {
  void* listener = nullptr;
  CHECK(plugin_.listen_for_job(0, ranks_.shared().handles[rank_], &listener) == kSuccess && listener != nullptr);
  ranks_.wait_for_all();
  std::vector<void*> handles;
  for (int rank = 0; rank < world(); ++rank) handles.push_back(ranks_.shared().handles[rank]);
  CHECK(plugin_.join(handles.data(), world(), rank_, listener, &communicator_) == kSuccess);
  CHECK(communicator_ != nullptr);
}

void Rank::leave() {
  ranks_.wait_for_all();
  CHECK(plugin_.close_communicator(communicator_) == kSuccess);
}

unsigned char byte_of(int rank, std::size_t message, std::size_t at) {
  return static_cast<unsigned char>((at * 2654435761u >> 13) + message * 7 + static_cast<std::size_t>(rank) * 31);
}

// Messages of many sizes, up to 32 in flight, each into a larger buffer: right bytes, right sizes, in order.
void Rank::messages() {
  open_ring();
  const std::size_t sizes[] = {1, 0, 3, 4096, 0, 65535, 65536, 65537, 1 << 20, (1 << 20) + 1, 12345, 8 << 20};
  constexpr std::size_t kMessages = 96;
  const int before = (rank_ + world() - 1) % world();
  struct Buffer {
    std::vector<unsigned char> bytes;
    void* request;
    std::size_t message;
  };
  std::deque<Buffer> sending, receiving;
  std::size_t sent = 0, posted = 0, received = 0;
  bool was_full = false;
  const double until = now_s() + kPatienceS;
  while (received < kMessages || !sending.empty()) {
    CHECK(now_s() < until);
    while (sent < kMessages) {
      Buffer buffer{std::vector<unsigned char>(sizes[sent % std::size(sizes)]), nullptr, sent};
      for (std::size_t i = 0; i < buffer.bytes.size(); ++i) buffer.bytes[i] = byte_of(rank_, sent, i);
      CHECK(plugin_.isend(sender_, buffer.bytes.data(), buffer.bytes.size(), &buffer.request) == kSuccess);
      if (buffer.request == nullptr) {
        was_full = true;
        break;
      }
      sending.push_back(std::move(buffer));
      ++sent;
    }
    while (posted < kMessages && receiving.size() < 7) {
      Buffer buffer{std::vector<unsigned char>(sizes[posted % std::size(sizes)] + 100), nullptr, posted};
      CHECK(plugin_.irecv(receiver_, buffer.bytes.data(), buffer.bytes.size(), &buffer.request) == kSuccess);
      CHECK(buffer.request != nullptr);
      receiving.push_back(std::move(buffer));
      ++posted;
    }
    int is_done = 0, bytes = -1;
    if (!sending.empty()) {
      CHECK(plugin_.test(sending.front().request, &is_done, &bytes) == kSuccess);
      if (is_done != 0) sending.pop_front();
    }
    if (receiving.empty()) continue;
    const Buffer& first = receiving.front();
    CHECK(plugin_.test(first.request, &is_done, &bytes) == kSuccess);
    if (is_done == 0) continue;
    CHECK(static_cast<std::size_t>(bytes) == sizes[first.message % std::size(sizes)]);
    for (std::size_t i = 0; i < static_cast<std::size_t>(bytes); ++i) {
      CHECK(first.bytes[i] == byte_of(before, first.message, i));
    }
    receiving.pop_front();
    ++received;
  }
  CHECK(was_full);
  close_ring();
}

// A ring all-reduce of slices: each rank sends the part that it has summed last while the next one comes.
void Rank::all_reduce_in_ring(std::vector<float>& values) {
  const auto ranks = static_cast<std::size_t>(world());
  const std::size_t part = (values.size() + ranks - 1) / ranks, slice = kSlice / sizeof(float);
  std::vector<float> incoming(part);
  const auto begin = [&](int index) { return std::min(values.size(), static_cast<std::size_t>(index) * part); };
  for (int step = 0; step < 2 * (world() - 1); ++step) {
    const bool sums = step < world() - 1;
    const int out = (rank_ + 2 * world() - step) % world(), in = (out + world() - 1) % world();
    const std::size_t out_count = begin(out + 1) - begin(out), in_count = begin(in + 1) - begin(in);
    float* const to = sums ? incoming.data() : values.data() + begin(in);
    std::deque<void*> sends, receives;
    std::size_t sent = 0, posted = 0, received = 0;
    while (received < in_count || sent < out_count || !sends.empty()) {
      void* request = nullptr;
      const std::size_t send_now = std::min(slice, out_count - sent), receive_now = std::min(slice, in_count - posted);
      if (send_now > 0 && sends.size() < 8) {
        CHECK(plugin_.isend(sender_, values.data() + begin(out) + sent, send_now * sizeof(float), &request) ==
              kSuccess);
        if (request != nullptr) sends.push_back(request), sent += send_now;
      }
      if (receive_now > 0 && receives.size() < 8) {
        CHECK(plugin_.irecv(receiver_, to + posted, receive_now * sizeof(float), &request) == kSuccess);
        if (request != nullptr) receives.push_back(request), posted += receive_now;
      }
      int is_done = 0, bytes = 0;
      if (!sends.empty()) {
        CHECK(plugin_.test(sends.front(), &is_done, &bytes) == kSuccess);
        if (is_done != 0) sends.pop_front();
      }
      if (receives.empty()) continue;
      CHECK(plugin_.test(receives.front(), &is_done, &bytes) == kSuccess);
      if (is_done == 0) {
        sched_yield();
        continue;
      }
      receives.pop_front();
      const std::size_t count = static_cast<std::size_t>(bytes) / sizeof(float);
      for (std::size_t i = received; sums && i < received + count; ++i) values[begin(in) + i] += incoming[i];
      received += count;
    }
  }
}

void Rank::all_reduce_in_network(std::vector<float>& values) {
  std::deque<void*> requests;
  const std::size_t slice = kSlice / sizeof(float);
  for (std::size_t at = 0; at < values.size() || !requests.empty();) {
    void* request = nullptr;
    if (at < values.size() && requests.size() < 8) {
      const std::size_t count = std::min(slice, values.size() - at);
      float* const data = values.data() + at;
      CHECK(plugin_.iallreduce(communicator_, data, data, count, kFloat32, kSum, &request) == kSuccess);
      CHECK(request != nullptr);
      requests.push_back(request);
      at += count;
      continue;
    }
    CHECK(finish(plugin_.test_collective, requests.front()) == kSuccess);
    requests.pop_front();
  }
}

void Rank::ring() {
  open_ring();
  for (const std::size_t count : {1, 1000, 3 << 20}) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(static_cast<int>(i % 101) + rank_);
    all_reduce_in_ring(values);
    for (std::size_t i = 0; i < count; ++i) {
      CHECK(values[i] == static_cast<float>(static_cast<int>(i % 101) * world() + world() * (world() - 1) / 2));
    }
  }
  close_ring();
}

float as_float(int value) {
  return static_cast<float>(value);
}
std::int32_t as_int(int value) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(value) * 0x1000'0001u);  // large sums wrap
}
std::uint16_t as_half(int value) {
  const unsigned magnitude = static_cast<unsigned>(std::abs(value)), sign = value < 0 ? 0x8000 : 0;
  if (magnitude == 0) return 0;
  const int exponent = 31 - __builtin_clz(magnitude);
  return static_cast<std::uint16_t>(sign | static_cast<unsigned>(exponent + 15) << 10 |
                                    (magnitude << (10 - exponent) & 0x3ff));
}
std::uint16_t as_bfloat(int value) {
  std::uint32_t bits = 0;
  const float exact = as_float(value);
  std::memcpy(&bits, &exact, sizeof bits);
  return static_cast<std::uint16_t>(bits >> 16);
}

// Eight requests at once, sums that are exact in every type.
template <class Element>
void Rank::check_sum(DataType type, std::size_t count, Element (*of)(int)) {
  const auto value = [](int rank, std::size_t at) {
    return static_cast<int>((at * 7 + static_cast<std::size_t>(rank) * 3) % 9);
  };
  constexpr std::size_t kAtOnce = 8;
  const std::size_t parts = std::min(kAtOnce, count), part = count / parts;
  std::vector<Element> in(count), out(count);
  for (std::size_t i = 0; i < count; ++i) in[i] = of(value(rank_, i));
  std::vector<void*> requests(parts, nullptr);
  for (std::size_t i = 0; i < parts; ++i) {
    const std::size_t size = i + 1 < parts ? part : count - part * i;
    CHECK(plugin_.iallreduce(communicator_, in.data() + part * i, out.data() + part * i, size, type, kSum,
                             &requests[i]) == kSuccess);
    CHECK(requests[i] != nullptr);
  }
  for (std::size_t i = 0; i < parts; ++i) {
    int bytes = -1;
    CHECK(finish(plugin_.test_collective, requests[i], &bytes) == kSuccess);
    CHECK(static_cast<std::size_t>(bytes) == (i + 1 < parts ? part : count - part * i) * sizeof(Element));
  }
  for (std::size_t i = 0; i < count; ++i) {
    int sum = 0;
    for (int rank = 0; rank < world(); ++rank) sum += value(rank, i);
    CHECK(out[i] == of(sum) && in[i] == of(value(rank_, i)));
  }
}

// Numbers whose sum is rounded: all ranks get the same bits.
void Rank::check_same_bits(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = 1.0f / static_cast<float>(i * 13 + static_cast<std::size_t>(rank_) + 1);
  all_reduce_in_network(values);
  std::uint64_t digest = 0;
  for (const float value : values) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    digest = (digest ^ bits) * 0x100000001b3;
  }
  ranks_.shared().digests[rank_] = digest;
  ranks_.wait_for_all();
  CHECK(digest == ranks_.shared().digests[0]);
}

void Rank::sums() {
  join();
  const char* const most = std::getenv("DRIVE_BYTES_MAX");
  const std::size_t bytes_max = most == nullptr ? std::size_t{1} << 20 : std::strtoull(most, nullptr, 10);
  for (const std::size_t bytes : {std::size_t{4}, std::size_t{4000}, std::size_t{32768}, bytes_max}) {
    check_sum<float>(kFloat32, bytes / 4, as_float);
    check_sum<std::uint16_t>(kFloat16, bytes / 2, as_half);
    check_sum<std::uint16_t>(kBfloat16, bytes / 2, as_bfloat);
    check_sum<std::int32_t>(kInt32, bytes / 4, as_int);
  }
  check_sum<std::int32_t>(kUint32, 1000, as_int);
  check_sum<std::uint16_t>(kFloat16, 1, as_half);
  check_same_bits(100'003);
  float one = 1;
  std::vector<void*> requests;
  for (void* request = &one; request != nullptr;) {  // as many as a communicator takes at once
    CHECK(plugin_.iallreduce(communicator_, &one, &one, 1, kFloat32, kSum, &request) == kSuccess);
    if (request != nullptr) requests.push_back(request);
  }
  CHECK(requests.size() == kRequestsMax);
  for (void* request : requests) CHECK(finish(plugin_.test_collective, request) == kSuccess);
  leave();
}

void say_status(const char* what, Status status, double begun) {
  std::printf("%s: status %d after %s\n", what, +status, now_s() - begun < 20 ? "a short time" : "too long");
}

void Rank::killed_in_ring() {
  open_ring();
  std::vector<float> values(1 << 20);
  if (rank_ == 1) raise(SIGKILL);
  void* request = nullptr;
  const double begun = now_s();
  const bool waits_for_it = rank_ == 2 % world();
  if (waits_for_it) CHECK(plugin_.irecv(receiver_, values.data(), 4, &request) == kSuccess);
  if (next() == 1) CHECK(plugin_.isend(sender_, values.data(), values.size() * sizeof(float), &request) == kSuccess);
  if (request == nullptr) return;
  Status status = finish(plugin_.test, request);
  // The kernel may have taken the first message before it knew of the death. A later message fails.
  for (int i = 0; i < 100 && status == kSuccess; ++i) {
    usleep(10'000);
    CHECK(plugin_.isend(sender_, values.data(), values.size() * sizeof(float), &request) == kSuccess);
    status = finish(plugin_.test, request);
  }
  say_status(waits_for_it ? "receiver" : "sender", status, begun);
}

void Rank::killed_in_sums() {
  join();
  std::vector<float> values(1 << 20, 1.0f);
  all_reduce_in_network(values);
  ranks_.wait_for_all();
  if (rank_ == 1) raise(SIGKILL);
  void* request = nullptr;
  const double begun = now_s();
  Status status =
      plugin_.iallreduce(communicator_, values.data(), values.data(), values.size(), kFloat32, kSum, &request);
  if (status == kSuccess) status = finish(plugin_.test_collective, request);
  say_status("survivor", status, begun);
}

// Two ranks of which one has another setting (DRIVE_DIFFER).
void Rank::stranger() {
  CHECK(plugin_.listen(0, ranks_.shared().handles[rank_], &listener_) == kSuccess);
  ranks_.wait_for_all();
  const double begun = now_s();
  Status status = kSuccess;
  while (rank_ == 1 && status == kSuccess && sender_ == nullptr) {
    status = plugin_.connect(0, ranks_.shared().handles[0], &sender_);
  }
  if (rank_ == 1) say_status("stranger", status, begun);
  if (rank_ == 1) ranks_.shared().digests[0] = 1;
  while (rank_ == 0 && *static_cast<volatile std::uint64_t*>(&ranks_.shared().digests[0]) != 1) {
    CHECK(plugin_.accept(listener_, &receiver_) == kSuccess && receiver_ == nullptr);
    CHECK(now_s() - begun < 20);
  }
}

// Rank 0 sends messages through a relay that changes one bit on the way. Rank 1 receives right bytes until it fails.
void Rank::changed() {
  open_ring();
  constexpr std::size_t kBytes = 200'000;
  const double begun = now_s();
  Status status = kSuccess;
  for (std::size_t message = 0; status == kSuccess && message < 20; ++message) {
    std::vector<unsigned char> buffer(kBytes);
    for (std::size_t i = 0; rank_ == 0 && i < kBytes; ++i) buffer[i] = byte_of(0, message, i);
    void* request = nullptr;
    CHECK((rank_ == 0 ? plugin_.isend(sender_, buffer.data(), kBytes, &request)
                      : plugin_.irecv(receiver_, buffer.data(), kBytes, &request)) == kSuccess);
    status = finish(plugin_.test, request);
    for (std::size_t i = 0; status == kSuccess && i < kBytes; ++i) CHECK(buffer[i] == byte_of(0, message, i));
  }
  if (rank_ == 1) say_status("receiver", status, begun);
}

// Seconds of all-reduces of 16 MiB: through the switch and in the ring, in turn.
void Rank::times() {
  open_ring();
  join();
  for (int round = 0; round < 4; ++round) {
    std::vector<float> values(4 << 20, 1.0f);
    ranks_.wait_for_all();
    double begun = now_s();
    all_reduce_in_network(values);
    ranks_.wait_for_all();
    const double in_network_s = now_s() - begun;
    begun = now_s();
    all_reduce_in_ring(values);
    ranks_.wait_for_all();
    if (rank_ == 0) std::printf("in-network %.3f s, ring %.3f s\n", in_network_s, now_s() - begun);
  }
  leave();
  close_ring();
}

// Mbit/s from rank 0 to rank 1, for some seconds.
void Rank::stream() {
  open_ring();
  constexpr std::size_t kInFlight = 16;
  const double seconds = 5;
  std::vector<unsigned char> buffer(kInFlight * kSlice);
  std::deque<void*> requests;
  double begun = now_s(), bytes_done = 0;
  const auto post = [&](std::size_t slot, std::size_t bytes) {
    void* request = nullptr;
    auto* const data = buffer.data() + slot % kInFlight * kSlice;
    CHECK((rank_ == 0 ? plugin_.isend(sender_, data, bytes, &request)
                      : plugin_.irecv(receiver_, data, kSlice, &request)) == kSuccess);
    CHECK(request != nullptr);
    requests.push_back(request);
  };
  bool is_over = false;
  for (std::size_t slot = 0; rank_ < 2 && (!is_over || !requests.empty());) {
    if (!is_over && requests.size() < kInFlight) {
      is_over = rank_ == 0 && now_s() - begun > seconds;
      post(slot++, is_over ? 0 : kSlice);
      continue;
    }
    int bytes = 0;
    CHECK(finish(plugin_.test, requests.front(), &bytes) == kSuccess);
    requests.pop_front();
    bytes_done += bytes;
    if (rank_ == 1 && bytes == 0) break;
  }
  if (rank_ == 1) std::printf("%.0f Mbit/s\n", bytes_done * 8e-6 / (now_s() - begun));
  close_ring();
}

}  // namespace
}  // namespace netfold::nccl::testing

int main(int count, char** words) {
  using namespace netfold::nccl::testing;
  const std::map<std::string, void (Rank::*)()> tasks = {{"devices", &Rank::say_devices},
                                                         {"messages", &Rank::messages},
                                                         {"ring", &Rank::ring},
                                                         {"sums", &Rank::sums},
                                                         {"killed-in-ring", &Rank::killed_in_ring},
                                                         {"killed-in-sums", &Rank::killed_in_sums},
                                                         {"stranger", &Rank::stranger},
                                                         {"changed", &Rank::changed},
                                                         {"times", &Rank::times},
                                                         {"stream", &Rank::stream}};
  if (count < 5 || tasks.count(words[4]) == 0) {
    std::puts("usage: drive PLUGIN VERSION RANKS TASK [NAMESPACE ...]");
    return 2;
  }
  Ranks ranks(std::atoi(words[3]), {words + 5, words + count});
  const auto task = tasks.at(words[4]);
  const int failed = ranks.run([&](int rank) {
    if (const char* const name = std::getenv("DRIVE_DIFFER")) setenv(name, rank == 0 ? "yes" : "no", 1);
    Rank driven(ranks, open_plugin(words[1], words[2]), rank);
    (driven.*task)();
  });
  std::printf("ranks that failed: %d\n", failed);
}
