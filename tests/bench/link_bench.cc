// What a link between two gateways carries on loopback: seconds for bulk frames at several numbers of connections, and the time that a
// control message and a small frame take from one gateway's loop to the other's (half of a ping-pong). Both gateways in this process, with
// their own io threads and TLS on; the loops, which do next to nothing here, are turned by one thread. Median of five runs.
//     ./run bench link

#include <algorithm>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include <asio/executor_work_guard.hpp>

#include "base/log.h"
#include "gateway/peer_links.h"
#include "tests/support/link_pair.h"

namespace sluice {
namespace {

constexpr int kRuns = 5;

// One gateway's links on its own thread.
struct Node {
  asio::io_context loop{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{loop.get_executor()};
  std::unique_ptr<gateway::PeerLinks> links;
  std::size_t frames = 0;
  bool is_up = false;
  std::function<void()> on_message;

  void start(gateway::PeerLinksConfig config, std::shared_ptr<const gateway::TlsContext> tls) {
    gateway::PeerLinks::Callbacks callbacks;
    callbacks.on_up = [this](SiteId, bool) { is_up = true; };
    callbacks.on_control = [this](SiteId, const wire::PeerMessage&) {
      if (on_message) on_message();
    };
    callbacks.on_frame = [this](SiteId, gateway::FrameRecord) {
      ++frames;
      if (on_message) on_message();
    };
    links = std::make_unique<gateway::PeerLinks>(loop, config, std::move(tls), callbacks);
    const Status started = links->start();
    SLUICE_ASSERT(started.has_value(), "{}", started.error().to_string());
  }
};

template <typename Condition>
void spin_until(Condition condition) {
  while (!condition()) std::this_thread::yield();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Bench {
  test::TestCertificates certificates;
  Node sender;
  Node receiver;
  unsigned streams;

  Bench(unsigned stream_count, unsigned io_threads) : streams(stream_count) {
    auto accepting = test::link_config(1, 2);
    auto dialling = test::link_config(0, 2);
    for (auto* config : {&accepting, &dialling}) {
      config->streams = streams;
      config->io_threads = io_threads;
    }
    receiver.start(accepting, certificates.site("s1"));
    dialling.peers[0].port = receiver.links->listening_port();
    sender.start(dialling, certificates.site("s0"));
  }
  void turn() {
    sender.loop.poll();
    receiver.loop.poll();
  }
  void wait_up() {
    spin_until([&] {
      turn();
      return sender.is_up && receiver.is_up && sender.links->stats(SiteId(1)).bulk_streams == streams;
    });
  }
};

void measure_bulk(unsigned streams, unsigned io_threads, std::size_t frame_bytes) {
  Bench bench(streams, io_threads);
  bench.wait_up();
  const gateway::FrameRecord frame = test::test_frame(1, frame_bytes);
  const std::size_t count = 400'000'000 / frame_bytes;
  std::vector<double> rates;
  for (int run = 0; run < kRuns; ++run) {
    const TimePoint begin = Clock::now();
    bench.receiver.frames = 0;
    std::size_t sent = 0;
    while (bench.receiver.frames < count) {
      while (sent < count && bench.sender.links->send_frame(SiteId(1), frame)) ++sent;
      bench.sender.loop.run_one_for(std::chrono::microseconds(200));
      bench.turn();
    }
    rates.push_back(static_cast<double>(count * frame_bytes) / std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::printf("bulk     %u connections, %u io threads, frames of %7zu bytes: %6.3f GB/s\n", streams, io_threads, frame_bytes,
              median(rates) / 1e9);
}

// Half of the round trip of 2000 ping-pongs. The loops are turned without sleeping: the wake-up of a sleeping loop comes on top, the two
// wake-ups of io threads are in.
void measure_latency(bool with_frames) {
  Bench bench(2, 1);
  bench.wait_up();
  wire::PeerMessage message;
  message.mutable_fetch_round()->set_round(1);
  const gateway::FrameRecord frame = test::test_frame(1, 256);
  std::size_t received = 0;
  const auto send = [&](Node& from, SiteId to) {
    if (with_frames) {
      (void)from.links->send_frame(to, frame);
    } else {
      (void)from.links->send_control(to, message);
    }
  };
  bench.sender.on_message = [&] { ++received; };
  bench.receiver.on_message = [&] { send(bench.receiver, SiteId(0)); };
  std::vector<double> halves;
  for (int index = 0; index < 2000; ++index) {
    const TimePoint begin = Clock::now();
    const std::size_t before = received;
    send(bench.sender, SiteId(1));
    spin_until([&] {
      bench.turn();
      return received > before;
    });
    halves.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / 2);
  }
  std::sort(halves.begin(), halves.end());
  std::printf("latency  %s: p50 %5.1f us, p99 %6.1f us one way\n", with_frames ? "frame of 256 bytes" : "control message   ",
              halves[halves.size() / 2], halves[halves.size() * 99 / 100]);
}

void run_all() {
  for (const std::size_t frame_bytes : {50'000U, 400'000U}) {
    for (const unsigned streams : {1U, 2U, 4U}) measure_bulk(streams, streams == 1 ? 1 : 2, frame_bytes);
  }
  measure_latency(false);
  measure_latency(true);
}

}  // namespace
}  // namespace sluice

int main() {
  sluice::configure_log(sluice::LogFormat::kText, sluice::LogLevel::kError);
  sluice::run_all();
  return 0;
}
