// A worker's session with an agent that does nothing: it must not keep the worker waiting.
#include "group/via_agent/agent_session.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <vector>

namespace netfold::group {
namespace {

struct StoppedAgent {
  std::unique_ptr<AgentSession> session;
  LocalSocket other_end;
};

StoppedAgent stopped_agent() {
  std::array<int, 2> ends{};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  const auto memory = make_shared_memory(sizeof(Channel), true);
  auto mapping = Mapping::of(*memory, 0, sizeof(Channel), true);
  new (mapping->data()) Channel{};
  auto log = UndoLog::make();
  AgentChannel channel{std::move(*mapping), log->for_worker().value(), std::make_unique<Wakeup>(),
                       std::make_unique<Wakeup>()};
  auto conversation = std::make_shared<AgentConversation>("test", LocalSocket(Descriptor(ends[0])), 0);
  return {std::make_unique<AgentSession>(AgentSessionOptions{0, 1, kSecond}, std::move(channel), conversation),
          LocalSocket(Descriptor(ends[1]))};
}

TEST(AgentSession, AFullQueueKeepsNobodyWaiting) {
  StoppedAgent agent = stopped_agent();
  std::vector<float> tensor(4, 1.0f);
  const CollectiveRequest request{tensor.data(), tensor.data(), tensor.size()};
  constexpr Ticket kRequests = 3000;  // the queue has 1024 places
  for (Ticket ticket = 1; ticket <= kRequests; ++ticket) {
    ASSERT_TRUE(agent.session->prepare(request));
    agent.session->submit(ticket, request, nullptr);
    ASSERT_TRUE(agent.session->move());
  }
  ASSERT_TRUE(agent.session->pump(kSecond));
  EXPECT_FALSE(agent.session->is_idle());
  const auto late = agent.session->pump(4 * kSecond);
  ASSERT_FALSE(late) << "an agent that gives no sign of life is given up";
  EXPECT_EQ(late.error().code, ErrorCode::kTimeout);
  EXPECT_EQ(agent.session->abort(late.error(), 4 * kSecond).size(), kRequests);
  EXPECT_EQ(tensor, std::vector<float>(4, 1.0f));
}

}  // namespace
}  // namespace netfold::group
