// A worker's session with an agent that does nothing, or stands still: it must not keep the worker waiting, nor write
// into memory that is the worker's again.
#include "group/via_agent/agent_session.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <vector>

namespace netfold::group {
namespace {

struct StoppedAgent {
  std::unique_ptr<AgentSession> session;
  LocalSocket other_end;
  Channel* channel;
  std::shared_ptr<AgentConversation> conversation;
  std::unique_ptr<UndoLog> log;
};

StoppedAgent stopped_agent() {
  std::array<int, 2> ends{};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  const auto memory = link::make_shared_memory(sizeof(Channel), true);
  auto mapping = link::Mapping::of(*memory, 0, sizeof(Channel), true);
  new (mapping->data()) Channel{};
  auto log = UndoLog::make();
  AgentChannel channel{std::move(*mapping), log->for_worker().value(), std::make_unique<Wakeup>(),
                       std::make_unique<Wakeup>()};
  auto conversation = std::make_shared<AgentConversation>("test", LocalSocket(Descriptor(ends[0])), 0);
  Channel* const shared = &channel.channel();
  return {std::make_unique<AgentSession>(AgentSessionOptions{0, 1, kSecond}, std::move(channel), conversation),
          LocalSocket(Descriptor(ends[1])), shared, conversation, std::make_unique<UndoLog>(std::move(*log))};
}

CollectiveRequest sum_in_place(std::vector<float>& tensor) {
  return {tensor.data(), tensor.data(), tensor.size()};
}

TEST(AgentSession, AFullQueueKeepsNobodyWaiting) {
  StoppedAgent agent = stopped_agent();
  std::vector<float> tensor(4, 1.0f);
  const CollectiveRequest request = sum_in_place(tensor);
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

// The agent has looked whether the worker gave up, and writes when it has.
TEST(AgentSession, WhatIsBeingWrittenIsPutBackAfterwards) {
  StoppedAgent agent = stopped_agent();
  std::vector<float> tensor(4, 1.0f);
  agent.session->submit(7, sum_in_place(tensor), nullptr);
  agent.channel->agent_writes = 1;
  std::thread writer([&] {
    UndoLog::Slot* const slot = agent.log->take().value();
    slot->is_for(reinterpret_cast<std::uintptr_t>(tensor.data()), tensor.size() * sizeof(float));
    std::memcpy(slot->data(), tensor.data(), tensor.size() * sizeof(float));
    while (agent.channel->worker_gave_up == 0) std::this_thread::yield();
    slot->mark(7);
    std::fill(tensor.begin(), tensor.end(), 3.0f);
    agent.channel->agent_writes = 0;
  });
  EXPECT_EQ(agent.session->abort({ErrorCode::kTimeout, "too late"}, kSecond), std::vector<Ticket>{7});
  writer.join();
  EXPECT_EQ(tensor, std::vector<float>(4, 1.0f));
}

TEST(AgentSession, AnAgentThatStandsStillWhileItWritesIsKilled) {
  StoppedAgent agent = stopped_agent();
  const int end = dup(agent.other_end.descriptor());  // the agent's; children keep it, unlike a Descriptor
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    pause();
    _exit(0);
  }
  close(end);
  agent.other_end = LocalSocket(Descriptor());
  agent.conversation->set_process(child);
  agent.channel->agent_writes = 1;
  std::vector<float> tensor(4, 1.0f);
  agent.session->submit(7, sum_in_place(tensor), nullptr);
  EXPECT_EQ(agent.session->abort({ErrorCode::kTimeout, "too late"}, kSecond).size(), 1u);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

}  // namespace
}  // namespace netfold::group
