// A worker among others that all-reduce over RoCE through a folding switch: a progress thread over a message channel.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "engine/roce/roce_stream.h"
#include "engine/thread_setup.h"
#include "engine/wakeup.h"

namespace netfold::engine {

struct RoceClientOptions {
  RoceJobOptions job;
  std::string device;  // an interface, for frames through the kernel; or an RDMA device with `verbs`
  bool uses_verbs = false;
  std::uint32_t first_psn = 0;
  double timeout_s = 30;
  std::uint32_t window_packets = 128;
  std::string faults;     // link::parse_faults; "": none. Frames of this process alone, not a NIC's
  std::string pcap_path;  // "": no capture
  int core = kAnyCore;
  std::function<void()> on_completion = {};
};

class RoceClient final : public Engine {
 public:
  static Result<std::unique_ptr<RoceClient>> open(RoceClientOptions options);
  ~RoceClient() override;  // close()

  // This worker's card as text; and the cards of all, by rank. connect() comes once, before the first submit.
  std::string card() const;
  Result<void> connect(const std::vector<std::string>& cards);

  std::optional<Completion> wait(Ticket ticket, Nanoseconds timeout) override {
    return completions_.wait(ticket, timeout);
  }
  std::optional<Completion> next_completion(Nanoseconds timeout) override { return completions_.next(timeout); }
  void close(std::optional<Error> error = std::nullopt) override;
  nlohmann::json counters() const override;

 private:
  struct Submission {
    Ticket ticket;
    AllReduce request;
  };

  RoceClient(RoceClientOptions options, std::unique_ptr<MessageChannel> channel);
  Result<Ticket> hand_over(const AllReduce& request, const CollectiveOptions& how, bool is_awaited) override;
  void run();
  void progress(Nanoseconds now);
  void sleep();
  void fail(const Error& error);
  void complete(const std::vector<Ticket>& tickets, const std::optional<Error>& error);

  RoceClientOptions options_;
  std::unique_ptr<MessageChannel> channel_;
  RoceStream stream_;
  Wakeup wakeup_;
  bool link_is_full_ = false;

  mutable std::mutex mutex_;
  std::deque<Submission> submitted_;
  std::optional<Error> failure_;
  bool is_closing_ = false;
  nlohmann::json counters_;

  Completions completions_;
  std::thread thread_;
};

}  // namespace netfold::engine
