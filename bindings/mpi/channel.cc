#include "channel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "address.h"
#include "job.h"

namespace netfold::mpi {
namespace {

constexpr double kConnectS = 30;
// How long MPI's own traffic may stand still while we fold: a rank may wait for a message of ours before it comes.
constexpr double kSliceS = 0.0005;

// The message between ranks, as plain bytes.
struct Hello {
  std::uint64_t digest;
  char network[64];
  char error[256];
};
struct Outcome {
  char address[NF_ADDRESS_BYTES];
  char error[256];
};

template <std::size_t N>
void put(char (&to)[N], const std::string& text) {
  to[text.copy(to, N - 1)] = '\0';
}

// With this rank of the program in the place of {rank}: the communicator may number its ranks otherwise.
std::string for_this_rank(std::string text) {
  constexpr std::string_view kRank = "{rank}";
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (const auto at = text.find(kRank); at != std::string::npos) text.replace(at, kRank.size(), std::to_string(rank));
  return text;
}

template <class Said>
std::vector<Said> tell_all(MPI_Comm communicator, const Said& mine, int world) {
  std::vector<Said> all(static_cast<std::size_t>(world));
  PMPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, communicator);
  return all;
}

int forget(MPI_Comm, int, void* channel, void*) {
  delete static_cast<Channel*>(channel);
  return MPI_SUCCESS;
}

int keyval() {
  static const int made = [] {
    int key = MPI_KEYVAL_INVALID;
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &forget, &key, nullptr);
    return key;
  }();
  return made;
}

}  // namespace

Channel* Channel::of(MPI_Comm communicator) {
  void* found = nullptr;
  int is_there = 0;
  if (PMPI_Comm_get_attr(communicator, keyval(), static_cast<void*>(&found), &is_there) != MPI_SUCCESS) return nullptr;
  if (is_there != 0) return static_cast<Channel*>(found);
  auto* const channel = new (std::nothrow) Channel(communicator);
  if (channel == nullptr) return nullptr;
  Job::get().add(channel);
  channel->agree();
  PMPI_Comm_set_attr(communicator, keyval(), channel);
  return channel;
}

void Channel::agree() {
  int is_between = 0;
  PMPI_Comm_test_inter(communicator_, &is_between);
  PMPI_Comm_size(communicator_, &world_);
  PMPI_Comm_rank(communicator_, &rank_);
  if (is_between != 0 || world_ == 1) return;
  const Settings& settings = Job::get().settings();
  Hello mine{};
  mine.digest = digest_of(settings);
  put(mine.network, own_network());
  put(mine.error, settings.error);
  const auto all = tell_all(communicator_, mine, world_);
  is_one_machine_ = true;
  for (int rank = 0; rank < world_; ++rank) {
    const Hello& other = all[static_cast<std::size_t>(rank)];
    is_one_machine_ = is_one_machine_ && std::strcmp(other.network, all[0].network) == 0;
    if (other.error[0] != '\0') {
      error_ = fmt::format("rank {}: {}", rank, other.error);
      state_ = State::kWrong;
      return;
    }
  }
  for (int rank = 1; rank < world_; ++rank) {
    if (all[static_cast<std::size_t>(rank)].digest == all[0].digest) continue;
    if (rank_ == 0) {
      tell(fmt::format("MPI does the all-reduces: NETFOLD_ settings of rank {} differ from those of rank 0", rank));
    }
    return;
  }
  if (settings.is_on) state_ = State::kAgreed;
}

bool Channel::serves(nf_type type, nf_operation operation) const {
  const bool has_all = Job::get().settings().roce.empty();
  return has_all || (operation == NF_SUM && (type == NF_FLOAT32 || type == NF_INT32));
}

bool Channel::takes(std::size_t size_bytes) {
  if (state_ == State::kWrong) return true;  // to be told so
  if (state_ == State::kMpi || size_bytes < Job::get().settings().min_bytes) return false;
  if (state_ == State::kAgreed) connect();
  return state_ == State::kConnected;
}

// If all could: true, and `addresses` by rank. Otherwise rank 0 says why not.
bool Channel::all_could(const std::string& address, const std::string& error, std::string* addresses) {
  Outcome mine{};
  put(mine.address, address);
  put(mine.error, error);
  const auto all = tell_all(communicator_, mine, world_);
  for (int rank = 0; rank < world_; ++rank) {
    const Outcome& other = all[static_cast<std::size_t>(rank)];
    if (other.error[0] == '\0') {
      if (addresses != nullptr) addresses[rank] = other.address;
      continue;
    }
    if (rank_ == 0) tell(fmt::format("MPI does the all-reduces: rank {} could not connect: {}", rank, other.error));
    return false;
  }
  return true;
}

// Only this communicator's processes know it: a stranger that finds a rank's port cannot take its place. Of
// NETFOLD_SECRET and what rank 0 draws, which whoever reads MPI's own messages learns. Empty if there is neither.
std::string Channel::shared_secret() const {
  std::array<char, 33> secret{};
  std::array<unsigned char, 16> drawn{};
  if (rank_ == 0 && getrandom(drawn.data(), drawn.size(), 0) == static_cast<ssize_t>(drawn.size())) {
    fmt::format_to_n(secret.data(), secret.size() - 1, "{:02x}", fmt::join(drawn, ""));
  }
  PMPI_Bcast(secret.data(), static_cast<int>(secret.size()), MPI_CHAR, 0, communicator_);
  return Job::get().settings().secret + secret.data();
}

bool Channel::has_all_of_program() const {
  int all = 0;
  PMPI_Comm_size(MPI_COMM_WORLD, &all);
  return world_ == all;
}

// The ports that fold are those of all ranks of the program, so communicators of fewer ranks fold among themselves.
// Each communicator of all has a job of its own. Ranks make and free communicators in the same order, so they number
// jobs alike.
std::string Channel::roce_endpoint() {
  const std::string& endpoint = Job::get().settings().roce;
  if (endpoint.empty() || !has_all_of_program()) return "";
  roce_job_ = Job::get().take_roce_job();
  return for_this_rank(endpoint);
}

// The first communicator of all ranks has the NICs until it is freed. The other ones fold in software.
std::string Channel::nic_place() {
  const std::string& place = Job::get().settings().nic;
  if (place.empty() || !has_all_of_program()) return "";
  drives_nic_ = Job::get().take_nic();
  return drives_nic_ ? for_this_rank(place) : "";
}

void Channel::connect() {
  const Settings& settings = Job::get().settings();
  const std::string host = is_one_machine_ ? "127.0.0.1" : !settings.bind.empty() ? settings.bind : own_address();
  const std::string listen = host + ":0";
  nf_error error{};
  nf_group_options options = NF_GROUP_OPTIONS_INIT;
  options.rank = rank_;
  options.world = world_;
  options.listen = listen.c_str();
  const std::string secret = shared_secret();
  options.secret = secret.c_str();
  options.require_auth = settings.requires_auth ? 1 : 0;
  if (!is_one_machine_ && !settings.interfaces.empty()) options.interfaces = settings.interfaces.c_str();
  options.tcp_streams = settings.tcp_streams;
  options.dscp = settings.dscp;
  options.timeout_s = settings.timeout_s;
  options.placement = NF_CALLERS_THREAD;
  const std::string roce = roce_endpoint();
  if (!roce.empty()) {
    options.roce = roce.c_str();
    options.roce_group = roce_job_;
  }
  const std::string nic = nic_place();
  if (!nic.empty()) options.nic = nic.c_str();
  nf_group_open(&options, &group_, &error);
  std::vector<std::string> addresses(static_cast<std::size_t>(world_));
  state_ = State::kMpi;
  if (all_could(nf_group_address(group_), error.text, addresses.data())) {
    std::vector<const char*> texts;
    for (const std::string& address : addresses) texts.push_back(address.c_str());
    nf_group_connect(group_, texts.data(), kConnectS, &error);
    if (all_could("", error.text, nullptr)) state_ = State::kConnected;
  }
  if (state_ == State::kMpi) close();
}

int Channel::all_reduce(const void* in, void* out, std::size_t count, nf_type type, nf_operation operation) {
  if (state_ == State::kWrong) return raise(error_);
  const Settings& settings = Job::get().settings();
  nf_fold_options options = NF_FOLD_OPTIONS_INIT;
  options.format = settings.format;
  options.operation = operation;
  options.algorithm = settings.algorithm.empty() ? nullptr : settings.algorithm.c_str();
  nf_error error{};
  nf_ticket ticket = 0;
  nf_status status = nf_submit(group_, in, out, count, type, &options, &ticket, &error);
  if (status == NF_OK) {
    while ((status = nf_wait(group_, ticket, kSliceS, &error)) == NF_PENDING) Job::get().let_mpi_proceed();
  }
  return status == NF_OK ? MPI_SUCCESS : raise(error.text);
}

int Channel::raise(const std::string& text) const {
  tell(fmt::format("rank {}: {}", rank_, text));
  int code = MPI_ERR_OTHER;
  if (PMPI_Add_error_code(MPI_ERR_OTHER, &code) == MPI_SUCCESS) {
    const std::string said = ("netfold: " + text).substr(0, MPI_MAX_ERROR_STRING - 1);
    PMPI_Add_error_string(code, said.c_str());
  }
  PMPI_Comm_call_errhandler(communicator_, code);
  return code;
}

void Channel::close() {
  Job::get().remove(this);
  if (roce_job_ >= 0) Job::get().give_back_roce_job(std::exchange(roce_job_, -1));
  nf_group_close(group_, nullptr);
  if (std::exchange(drives_nic_, false)) Job::get().give_back_nic();
  group_ = nullptr;
  state_ = State::kMpi;
}

}  // namespace netfold::mpi
