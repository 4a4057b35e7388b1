// The workers of a job share the switch's link, and their windows must find what it carries: without loss of their own
// making, and beside loss that is not.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "protocol/star.h"
#include "support/random_seed.h"

namespace netfold::tests {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 18;  // elements of 4 bytes
constexpr Nanoseconds kIncastLimit = 120 * kSecond;

struct Sent {
  std::uint64_t first = 0, again = 0;
};

Sent sent_by(const Star& star, const StarOptions& options) {
  Sent sum;
  for (std::uint16_t job = 0; job < options.jobs; ++job) {
    for (std::uint16_t rank = 0; rank < options.world; ++rank) {
      const auto stats = star.stats(job, rank).window;
      sum.first += stats.sent_chunks;
      sum.again += stats.resent_chunks;
    }
  }
  return sum;
}

// How many times longer than the narrowest link needs an all-reduce of all jobs takes.
double times_the_bound(Star& star, const StarOptions& options, std::size_t count) {
  const Nanoseconds start = star.now();
  for (std::uint16_t job = 0; job < options.jobs; ++job) star.submit(job, count);
  EXPECT_TRUE(star.run_until_done(kIncastLimit));
  Nanoseconds end = start;
  for (std::uint16_t job = 0; job < options.jobs; ++job) end = std::max(end, star.done_at(job));
  return to_seconds(end - start) / to_seconds(star.bound(count));
}

std::string name_of(const StarOptions& options) {
  return fmt::format("NETFOLD_SEED={} world {} switch {} Mbit/s queue {} KiB loss {}", options.seed, options.world,
                     options.switch_mbit_s, options.queue_bytes >> 10, options.loss);
}

TEST(Incast, TakesWhatTheNarrowestLinkAllows) {
  for (const std::uint16_t world : {2, 8, 16}) {
    for (const double rate : {50.0, 200.0, 800.0, 4000.0}) {
      for (const std::size_t queue : {64u << 10, 1024u << 10}) {
        const StarOptions options{.world = world, .switch_mbit_s = rate, .queue_bytes = queue, .seed = random_seed()};
        SCOPED_TRACE(name_of(options));
        Star star(options);
        for (const std::size_t mib : {1, 2, 2}) EXPECT_LT(times_the_bound(star, options, mib * kMiB), 1.1);
        const Sent sent = sent_by(star, options);
        EXPECT_LT(sent.again, sent.first / 50) << "2% sent again, of " << sent.first;
      }
    }
  }
}

TEST(Incast, LossThatIsNotCongestionSlowsNothingDown) {
  for (const double rate : {200.0, 4000.0}) {
    const StarOptions options{
        .world = 4, .switch_mbit_s = rate, .queue_bytes = 1 << 20, .loss = 0.0025, .seed = random_seed()};
    SCOPED_TRACE(name_of(options));  // four links: 1% of what goes there and back
    Star star(options);
    double sum = 0;  // where the end of a tensor is lost, time-outs of 10 ms show in one that takes 85 ms
    for (int repeat = 0; repeat < 24; ++repeat) sum += times_the_bound(star, options, 2 * kMiB);
    EXPECT_LT(sum / 24, rate > 1000 ? 1.3 : 1.15);
  }
}

TEST(Incast, TwoJobsShareTheLink) {
  const StarOptions options{
      .jobs = 2, .world = 4, .switch_mbit_s = 200, .queue_bytes = 128 << 10, .seed = random_seed()};
  SCOPED_TRACE(name_of(options));
  Star star(options);
  double job_s[2] = {0, 0};
  for (int repeat = 0; repeat < 6; ++repeat) {
    const Nanoseconds start = star.now();
    EXPECT_LT(times_the_bound(star, options, 4 * kMiB), 1.1);
    for (const std::uint16_t job : {0, 1}) job_s[job] += to_seconds(star.done_at(job) - start);
  }
  EXPECT_NEAR(job_s[0] / job_s[1], 1, 0.2);
}

// The first job fills a queue, and its window has room for no other one.
TEST(Incast, AJobThatComesLaterSoonHasItsShare) {
  const StarOptions options{
      .jobs = 2, .world = 8, .switch_mbit_s = 200, .queue_bytes = 512 << 10, .seed = random_seed()};
  SCOPED_TRACE(name_of(options));
  Star star(options);
  star.submit(0, 40 * kMiB);
  star.run_for(4 * kSecond);
  star.submit(1, 40 * kMiB);
  star.run_for(2 * kSecond);
  const auto chunks = [&](std::uint16_t job) { return static_cast<double>(star.stats(job, 0).window.sent_chunks); };
  const double before[] = {chunks(0), chunks(1)};
  star.run_for(2 * kSecond);
  EXPECT_NEAR((chunks(0) - before[0]) / (chunks(1) - before[1]), 1, 0.2);
  const double link_chunks = 2 * 200e6 / 8 / (options.world * 1514.0);
  EXPECT_GT(chunks(0) + chunks(1) - before[0] - before[1], 0.95 * link_chunks) << "the link stays busy";
}

// Mbit/s of the switch's link, of a rank's chunks for each job and of TCP, from the 8th to the 20th second.
struct Rates {
  std::vector<double> jobs;
  double tcp = 0;
};

Rates rates_beside_tcp(Star& star, const StarOptions& options, Star::Way way) {
  constexpr double kSeconds = 12;
  for (std::uint16_t job = 0; job < options.jobs; ++job) star.submit(job, 80 * kMiB / options.jobs);  // for 26 s
  star.run_for(2 * kSecond);
  star.add_tcp(way);
  star.run_for(6 * kSecond);
  const auto chunks = [&](std::uint16_t job) { return static_cast<double>(star.stats(job, 0).window.sent_chunks); };
  const auto tcp_before = static_cast<double>(star.tcp_bytes());
  std::vector<double> before;
  for (std::uint16_t job = 0; job < options.jobs; ++job) before.push_back(chunks(job));
  star.run_for(from_seconds(kSeconds));
  Rates rates;
  for (std::uint16_t job = 0; job < options.jobs; ++job) {
    rates.jobs.push_back((chunks(job) - before[job]) * options.world * 1514 * 8e-6 / kSeconds);
  }
  rates.tcp = (static_cast<double>(star.tcp_bytes()) - tcp_before) * 8e-6 / kSeconds;
  return rates;
}

TEST(Incast, JobsAndTcpShareTheLink) {
  for (const auto way : {Star::Way::kUp, Star::Way::kDown}) {
    for (const std::uint16_t jobs : {1, 2}) {
      const StarOptions options{.jobs = jobs, .world = 8, .queue_bytes = 512 << 10, .seed = random_seed()};
      SCOPED_TRACE(name_of(options));
      Star star(options);
      const Rates rates = rates_beside_tcp(star, options, way);
      const double fair = options.switch_mbit_s / (jobs + 1);
      std::string all = fmt::format("TCP {:.0f}, jobs", rates.tcp);
      for (const double rate : rates.jobs) all += fmt::format(" {:.0f}", rate);
      SCOPED_TRACE(all);
      EXPECT_NEAR(rates.tcp / fair, 1, 0.2);
      for (const double rate : rates.jobs) EXPECT_NEAR(rate / fair, 1, 0.2);
      const Sent sent = sent_by(star, options);
      EXPECT_LT(sent.again, sent.first / 50) << "2% sent again, of " << sent.first;
    }
  }
}

// A job with a slow link of its own has less than its share for that reason. A grant would be lost there.
TEST(Incast, AGrantDoesNotFillASlowLinkOfARank) {
  const StarOptions options{.world = 8, .queue_bytes = 512 << 10, .seed = random_seed()};
  SCOPED_TRACE(name_of(options));
  Star star(options);
  constexpr double kRankMbit = 4;
  star.set_rank_rate(3, kRankMbit);
  const Rates rates = rates_beside_tcp(star, options, Star::Way::kUp);
  const double allowed = kRankMbit * options.world;
  const Sent sent = sent_by(star, options);
  EXPECT_GT(rates.jobs[0], 0.9 * allowed);
  EXPECT_LT(sent.again, sent.first / 50) << "2% sent again, of " << sent.first;
}

TEST(Incast, FollowsALinkThatChanges) {
  const StarOptions options{.world = 8, .switch_mbit_s = 1600, .queue_bytes = 256 << 10, .seed = random_seed()};
  SCOPED_TRACE(name_of(options));
  Star star(options);
  for (const double rate : {1600.0, 400.0, 1600.0, 100.0, 1600.0}) {
    star.set_switch_rate(rate);
    const Nanoseconds changed = star.now();
    while (star.now() < changed + kSecond) {
      EXPECT_LT(times_the_bound(star, options, 2 * kMiB), 2) << "after the change to " << rate;
    }
    EXPECT_LT(times_the_bound(star, options, 2 * kMiB), 1.5) << "a second later, at " << rate;
  }
}

}  // namespace
}  // namespace netfold::tests
