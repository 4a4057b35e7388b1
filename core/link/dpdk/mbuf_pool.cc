#include "link/dpdk/mbuf_pool.h"

#include <fmt/core.h>
#include <rte_errno.h>

namespace netfold::link {
namespace {

// A thread's private store. Small: a buffer that was just released is taken again while it is still in the cache.
constexpr unsigned kCacheOfAThread = 128;

}  // namespace

Result<std::unique_ptr<MbufPool>> MbufPool::create(const std::string& name, std::size_t buffers,
                                                   std::size_t room_bytes) {
  rte_mempool* const pool =
      rte_pktmbuf_pool_create(name.c_str(), static_cast<unsigned>(buffers), kCacheOfAThread, 0,
                              static_cast<std::uint16_t>(RTE_PKTMBUF_HEADROOM + room_bytes), SOCKET_ID_ANY);
  if (pool == nullptr) {
    return fail(ErrorCode::kSystem,
                fmt::format("no memory for {} frame buffers of {} bytes ({}): ask for fewer, or reserve "
                            "more huge pages",
                            buffers, room_bytes, rte_strerror(rte_errno)));
  }
  return std::unique_ptr<MbufPool>(new MbufPool(pool, room_bytes));
}

MbufPool::~MbufPool() {
  rte_mempool_free(pool_);
}

void MbufPool::release(std::span<Buffer* const> buffers) {
  for (Buffer* const buffer : buffers) rte_pktmbuf_free_seg(mbuf_of(buffer));
}

void MbufPool::retain(Buffer* buffer, std::uint32_t count) {
  rte_mbuf_refcnt_update(mbuf_of(buffer), static_cast<std::int16_t>(count));
}

Frame MbufPool::allocate() {
  rte_mbuf* const mbuf = rte_pktmbuf_alloc(pool_);
  if (mbuf == nullptr) return {};
  return {buffer_of(mbuf), rte_pktmbuf_mtod(mbuf, std::byte*), rte_pktmbuf_tailroom(mbuf), kNoPort, false, false};
}

bool MbufPool::is_sole(const Buffer* buffer) const {
  return rte_mbuf_refcnt_read(mbuf_of(buffer)) == 1;
}

}  // namespace netfold::link
