// Counted buffers that are DPDK's mbufs. Headers of DPDK are C: included here and in the files beside, nowhere else.
#pragma once

#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <memory>
#include <string>

#include "base/result.h"
#include "link/frame_port.h"

namespace netfold::link {

inline rte_mbuf* mbuf_of(const Buffer* buffer) {
  return reinterpret_cast<rte_mbuf*>(const_cast<Buffer*>(buffer));
}
inline Buffer* buffer_of(rte_mbuf* mbuf) {
  return reinterpret_cast<Buffer*>(mbuf);
}

class MbufPool final : public BufferPool {
 public:
  static Result<std::unique_ptr<MbufPool>> create(const std::string& name, std::size_t buffers, std::size_t room_bytes);
  ~MbufPool() override;

  using BufferPool::release;
  void release(std::span<Buffer* const> buffers) override;
  void retain(Buffer* buffer, std::uint32_t count) override;
  Frame allocate() override;
  bool is_sole(const Buffer* buffer) const override;
  std::size_t room_bytes() const override { return room_bytes_; }
  std::size_t in_use() const override { return rte_mempool_in_use_count(pool_); }

  rte_mempool* raw() const { return pool_; }

 private:
  MbufPool(rte_mempool* pool, std::size_t room_bytes) : pool_(pool), room_bytes_(room_bytes) {}

  rte_mempool* pool_;
  std::size_t room_bytes_;
};

// A frame of this port, received as `mbuf`, which has one segment.
inline Frame frame_of(rte_mbuf* mbuf, PortNumber port) {
  constexpr std::uint64_t kGood = RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_GOOD;
  return {buffer_of(mbuf),
          rte_pktmbuf_mtod(mbuf, std::byte*),
          mbuf->data_len,
          port,
          (mbuf->ol_flags & (RTE_MBUF_F_RX_IP_CKSUM_MASK | RTE_MBUF_F_RX_L4_CKSUM_MASK)) == kGood,
          rte_mbuf_refcnt_read(mbuf) != 1};
}

}  // namespace netfold::link
