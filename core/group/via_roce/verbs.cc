// The set-up of two connections, then messages: a write with immediate data each, which the NIC cuts into packets,
// sends again and acknowledges by itself.
#include <infiniband/verbs.h>
#include <poll.h>

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <deque>
#include <vector>

#include <nlohmann/json.hpp>

#include "group/via_roce/verbs_channel.h"

namespace netfold::group {
namespace {

namespace roce = wire::roce;

constexpr std::uint8_t kPort = 1;
constexpr int kCompletions = 64;
constexpr int kReceivesPosted = 2 * static_cast<int>(roce::kWindowMessages);
// Silence is mostly another worker that computes: the NIC waits 4.096 us * 2^18 = 1.07 s before it sends again by
// itself, and finds single losses by sequence errors long before. Seven tries are the most that hardware has.
constexpr std::uint8_t kTimeout = 18, kRetries = 7;

template <class T, int (*kFree)(T*)>
struct Freed {
  void operator()(T* object) const { kFree(object); }
};
template <class T, int (*kFree)(T*)>
using Handle = std::unique_ptr<T, Freed<T, kFree>>;

struct LocalAddress {
  std::uint8_t index;
  roce::Gid gid;
};

// The NIC's address table has RoCE v1 and v2 side by side; of v2's, those of IPv4 are wanted.
Result<LocalAddress> find_address(ibv_context* context, const std::string& name, roce::Version version) {
  const auto wanted = version == roce::Version::kV1 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
  for (std::uint32_t index = 0; index < 255; ++index) {
    ibv_gid_entry entry{};
    if (ibv_query_gid_ex(context, kPort, index, &entry, 0) != 0) continue;
    if (entry.gid_type != wanted) continue;
    LocalAddress address{static_cast<std::uint8_t>(index), {}};
    std::memcpy(address.gid.data(), entry.gid.raw, address.gid.size());
    if (version == roce::Version::kV1 || roce::ipv4_of(address.gid)) return address;
  }
  if (version == roce::Version::kV2) {
    return fail(ErrorCode::kSystem, fmt::format("the RDMA device {} has no RoCE v2 address of IPv4: give its network "
                                                "interface one (ip address add), or go through a packet socket",
                                                name));
  }
  return fail(ErrorCode::kSystem, fmt::format("the RDMA device {} has no RoCE v1 address: enable it (for mlx5: "
                                              "cma_roce_mode -d {} -m 1), or go through a packet socket",
                                              name, name));
}

class Verbs final : public MessageChannel {
 public:
  static Result<std::unique_ptr<MessageChannel>> open(ibv_device* device, roce::Version version);

  Result<bool> pump(Nanoseconds now) override;
  std::span<std::byte> room(std::uint32_t number) override {
    return std::span(sending_).subspan(number % roce::kWindowMessages * kMessageBytes, kMessageBytes);
  }
  void post(std::uint32_t number, std::size_t size_bytes, bool is_short, Nanoseconds now) override;
  std::uint64_t acknowledged() const override { return acknowledged_; }
  std::optional<Arrived> take() override;
  Nanoseconds deadline() const override { return kNever; }
  int descriptor() const override { return events_->fd; }
  nlohmann::json counters() const override {
    return {{"posted_messages", posted_}, {"acknowledged_messages", acknowledged_}, {"received_messages", received_}};
  }
  QpPairInfo card() const override { return card_; }
  Result<void> connect(const QpPairInfo& right, const QpPairInfo& left) override;

 private:
  Result<void> set_up(ibv_device* device, roce::Version version);
  Handle<ibv_qp, ibv_destroy_qp> make_queue_pair();
  Result<void> bring_up(ibv_qp* queue_pair, const QpInfo& peer, std::uint32_t own_psn);
  bool post_receive();
  Result<void> handle(const ibv_wc& completion);

  // In the order of their making: destroyed in the opposite one.
  std::vector<std::byte> sending_ = std::vector<std::byte>(kWindowBytes);
  std::vector<std::byte> receiving_ = std::vector<std::byte>(kWindowBytes);
  Handle<ibv_context, ibv_close_device> context_;
  Handle<ibv_pd, ibv_dealloc_pd> domain_;
  Handle<ibv_comp_channel, ibv_destroy_comp_channel> events_;
  Handle<ibv_cq, ibv_destroy_cq> completions_;
  Handle<ibv_mr, ibv_dereg_mr> sending_region_, receiving_region_;
  Handle<ibv_qp, ibv_destroy_qp> sender_, receiver_;
  LocalAddress address_{};
  QpPairInfo card_;
  QpInfo right_;
  std::deque<Arrived> arrived_;
  std::uint64_t posted_ = 0, acknowledged_ = 0, received_ = 0;
  std::optional<Error> post_error_;
};

Result<std::unique_ptr<MessageChannel>> Verbs::open(ibv_device* device, roce::Version version) {
  auto channel = std::make_unique<Verbs>();
  if (const auto up = channel->set_up(device, version); !up) return tl::unexpected(up.error());
  return channel;
}

Result<void> Verbs::set_up(ibv_device* device, roce::Version version) {
  const std::string name = ibv_get_device_name(device);
  context_.reset(ibv_open_device(device));
  if (!context_) return tl::unexpected(system_error(fmt::format("cannot open the RDMA device {}", name)));
  const auto address = find_address(context_.get(), name, version);
  if (!address) return tl::unexpected(address.error());
  address_ = *address;
  domain_.reset(ibv_alloc_pd(context_.get()));
  events_.reset(ibv_create_comp_channel(context_.get()));
  if (events_) completions_.reset(ibv_create_cq(context_.get(), kCompletions, nullptr, events_.get(), 0));
  if (!domain_ || !completions_) return tl::unexpected(system_error(fmt::format("set-up of {}", name)));
  sending_region_.reset(ibv_reg_mr(domain_.get(), sending_.data(), sending_.size(), IBV_ACCESS_LOCAL_WRITE));
  receiving_region_.reset(ibv_reg_mr(domain_.get(), receiving_.data(), receiving_.size(),
                                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  if (!sending_region_ || !receiving_region_) {
    return tl::unexpected(system_error(fmt::format("cannot register 1 MiB of memory with {} (ulimit -l)", name)));
  }
  sender_ = make_queue_pair();
  receiver_ = make_queue_pair();
  if (!sender_ || !receiver_ || ibv_req_notify_cq(completions_.get(), 0) != 0) {
    return tl::unexpected(system_error(fmt::format("no queue pair of {}", name)));
  }
  QpInfo card;
  card.version = version;
  card.gid = address_.gid;
  card.queue_pair = sender_->qp_num;
  card.address = reinterpret_cast<std::uint64_t>(receiving_.data());
  card.key = receiving_region_->rkey;
  card_.sending = card_.receiving = card;
  card_.receiving.queue_pair = receiver_->qp_num;
  return {};
}

Handle<ibv_qp, ibv_destroy_qp> Verbs::make_queue_pair() {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = completions_.get();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {roce::kWindowMessages, kReceivesPosted, 1, 1, 0};
  attributes.sq_sig_all = 1;
  return Handle<ibv_qp, ibv_destroy_qp>(ibv_create_qp(domain_.get(), &attributes));
}

Result<void> Verbs::connect(const QpPairInfo& right, const QpPairInfo& left) {
  right_ = right.receiving;
  if (const auto up = bring_up(sender_.get(), right.receiving, card_.sending.first_psn); !up) return up;
  if (const auto up = bring_up(receiver_.get(), left.sending, 0); !up) return up;
  for (int i = 0; i < kReceivesPosted; ++i) {
    if (!post_receive()) return tl::unexpected(system_error("cannot post a receive"));
  }
  return {};
}

// The states of a queue pair: INIT, ready to receive, ready to send (InfiniBand specification, 10.3.1).
Result<void> Verbs::bring_up(ibv_qp* queue_pair, const QpInfo& peer, std::uint32_t own_psn) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = kPort;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  int status =
      ibv_modify_qp(queue_pair, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = IBV_MTU_1024;
  attributes.dest_qp_num = peer.queue_pair;
  attributes.rq_psn = peer.first_psn;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = 12;
  attributes.ah_attr.is_global = 1;
  std::memcpy(attributes.ah_attr.grh.dgid.raw, peer.gid.data(), peer.gid.size());
  attributes.ah_attr.grh.sgid_index = address_.index;
  attributes.ah_attr.grh.hop_limit = peer.version == roce::Version::kV1 ? 1 : 64;
  attributes.ah_attr.port_num = kPort;
  if (status == 0) {
    status = ibv_modify_qp(queue_pair, &attributes,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  }
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = kTimeout;
  attributes.retry_cnt = attributes.rnr_retry = kRetries;
  attributes.sq_psn = own_psn;
  attributes.max_rd_atomic = 1;
  if (status == 0) {
    status = ibv_modify_qp(
        queue_pair, &attributes,
        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  }
  if (status == 0) return {};
  errno = status;
  return tl::unexpected(
      system_error(fmt::format("cannot connect to {} queue pair {:#x}", roce::to_string(peer.gid), peer.queue_pair)));
}

bool Verbs::post_receive() {
  ibv_recv_wr request{};  // immediate data takes one, without memory
  ibv_recv_wr* refused = nullptr;
  return ibv_post_recv(receiver_.get(), &request, &refused) == 0;
}

void Verbs::post(std::uint32_t number, std::size_t size_bytes, [[maybe_unused]] bool is_short, Nanoseconds) {
  assert(!is_short);
  ibv_sge memory{reinterpret_cast<std::uint64_t>(room(number).data()), static_cast<std::uint32_t>(size_bytes),
                 sending_region_->lkey};
  ibv_send_wr request{};
  request.wr_id = number;
  request.sg_list = &memory;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.imm_data = __builtin_bswap32(number);
  request.wr.rdma.remote_addr = right_.address + number % roce::kWindowMessages * kMessageBytes;
  request.wr.rdma.rkey = right_.key;
  ibv_send_wr* refused = nullptr;
  if (ibv_post_send(sender_.get(), &request, &refused) != 0) post_error_ = system_error("the NIC takes no write");
  ++posted_;
}

Result<bool> Verbs::pump(Nanoseconds) {
  if (post_error_) return tl::unexpected(*post_error_);
  pollfd ready{events_->fd, POLLIN, 0};
  if (poll(&ready, 1, 0) > 0) {
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(events_.get(), &queue, &context) == 0) ibv_ack_cq_events(queue, 1);
    ibv_req_notify_cq(completions_.get(), 0);
  }
  std::array<ibv_wc, 16> finished;
  for (int count; (count = ibv_poll_cq(completions_.get(), finished.size(), finished.data())) != 0;) {
    if (count < 0) return tl::unexpected(system_error("the NIC's completion queue"));
    for (int i = 0; i < count; ++i) {
      if (const auto handled = handle(finished[static_cast<std::size_t>(i)]); !handled) {
        return tl::unexpected(handled.error());
      }
    }
  }
  return false;
}

Result<void> Verbs::handle(const ibv_wc& completion) {
  if (completion.status != IBV_WC_SUCCESS) {
    return fail(ErrorCode::kPeerFailed,
                fmt::format("a connection failed: {} (a neighbour or the switch went away, or a worker computed for "
                            "longer than the NIC waits)",
                            ibv_wc_status_str(completion.status)));
  }
  if (completion.opcode == IBV_WC_RDMA_WRITE) {
    ++acknowledged_;
    return {};
  }
  const std::uint32_t immediate = __builtin_bswap32(completion.imm_data);
  if ((immediate & roce::kSummedImmediate) == 0) {
    return fail(ErrorCode::kSwitchFailed,
                "what came was not summed: the switch does not fold at the ports of this job's workers, or has lost "
                "its memory");
  }
  const std::uint32_t number = immediate & ~roce::kSummedImmediate;
  const std::size_t offset = number % roce::kWindowMessages * kMessageBytes;
  const std::size_t size_bytes = std::min<std::size_t>(completion.byte_len, kMessageBytes);
  arrived_.push_back({number, std::span<const std::byte>(receiving_).subspan(offset, size_bytes)});
  ++received_;
  if (!post_receive()) return tl::unexpected(system_error("cannot post a receive"));
  return {};
}

std::optional<MessageChannel::Arrived> Verbs::take() {
  if (arrived_.empty()) return std::nullopt;
  const Arrived first = arrived_.front();
  arrived_.pop_front();
  return first;
}

}  // namespace

Result<std::unique_ptr<MessageChannel>> open_verbs_channel(const std::string& name, roce::Version version) {
  int count = 0;
  ibv_device** const devices = ibv_get_device_list(&count);
  if (devices == nullptr || count == 0) {
    if (devices != nullptr) ibv_free_device_list(devices);
    return fail(ErrorCode::kSystem,
                "this machine has no RDMA device (ibv_devices lists none): go through a packet socket instead");
  }
  std::string known;
  auto channel = Result<std::unique_ptr<MessageChannel>>(tl::unexpected(Error{}));
  bool is_found = false;
  for (int i = 0; i < count && !is_found; ++i) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", ibv_get_device_name(devices[i]));
    is_found = name.empty() || name == ibv_get_device_name(devices[i]);
    if (is_found) channel = Verbs::open(devices[i], version);
  }
  ibv_free_device_list(devices);
  if (is_found) return channel;
  return fail(ErrorCode::kInvalidArgument, fmt::format("no RDMA device is called '{}': there are {}", name, known));
}

}  // namespace netfold::group
