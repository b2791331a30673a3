// Goal: the relay passes bytes intact, late by the link's delay, no faster than its rate, and holds them in a blackhole.
// Method: real loopback sockets, blocking reads with a time limit, no sleeps; lower bounds of time are exact, upper ones generous.
#include "tests/support/wan_relay.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <asio.hpp>
#include <thread>

namespace sluice::support {
namespace {

using asio::ip::tcp;
using namespace std::chrono_literals;

const SiteId kHere{0};
const SiteId kThere{1};

LinkShape delayed(Duration delay, double bits_per_second = 0.0) { return LinkShape{delay, BitsPerSecond{bits_per_second}, 0, false}; }

// Two sockets, connected through a relay of two sites with the given shape in both directions.
class RelayedPair {
 public:
  explicit RelayedPair(const LinkShape& shape) : acceptor_(io_, tcp::endpoint(asio::ip::address_v4::loopback(), 0)), near(io_), far(io_) {
    relay.set_link(kHere, kThere, shape);
    relay.set_link(kThere, kHere, shape);
    relay.start();
    const auto port = relay.add_route(kHere, kThere, acceptor_.local_endpoint().port());
    near.connect(tcp::endpoint(asio::ip::address_v4::loopback(), port.value_or(0)));
    far = acceptor_.accept();
    near.set_option(tcp::no_delay(true));
    far.set_option(tcp::no_delay(true));
  }

 private:
  asio::io_context io_;
  tcp::acceptor acceptor_;

 public:
  WanRelay relay{2};
  tcp::socket near;
  tcp::socket far;
};

std::vector<std::uint8_t> pattern(std::size_t count) {
  std::vector<std::uint8_t> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>((i * 2654435761U) >> 13);
  return bytes;
}

bool is_readable_within(tcp::socket& socket, int milliseconds) {
  pollfd descriptor{socket.native_handle(), POLLIN, 0};
  return poll(&descriptor, 1, milliseconds) == 1;
}

TEST(WanRelay, BytesPassIntactInBothDirections) {
  RelayedPair pair(delayed(1ms, 800e6));
  const auto sent = pattern(3'000'001);
  std::vector<std::uint8_t> received(sent.size());
  for (auto [from, to] : {std::pair{&pair.near, &pair.far}, std::pair{&pair.far, &pair.near}}) {
    std::thread writer([&, socket = from] { asio::write(*socket, asio::buffer(sent)); });
    asio::read(*to, asio::buffer(received));
    writer.join();
    EXPECT_EQ(received, sent);
  }
  EXPECT_EQ(pair.relay.counters(kHere, kThere).bytes_entered, sent.size());
  EXPECT_EQ(pair.relay.counters(kThere, kHere).bytes_entered, sent.size());
  EXPECT_EQ(pair.relay.counters(kHere, kThere).connections, 1U);
}

TEST(WanRelay, AMessageTakesTheDelayOfItsDirection) {
  RelayedPair pair(delayed(30ms));
  char byte = 'x';
  const auto start = Clock::now();
  asio::write(pair.near, asio::buffer(&byte, 1));
  asio::read(pair.far, asio::buffer(&byte, 1));
  const auto there = Clock::now();
  asio::write(pair.far, asio::buffer(&byte, 1));
  asio::read(pair.near, asio::buffer(&byte, 1));
  const auto back = Clock::now();
  EXPECT_GE(there - start, 30ms);
  EXPECT_GE(back - there, 30ms);
  EXPECT_LT(back - start, 1s);
}

TEST(WanRelay, AStreamIsHeldToTheRate) {
  RelayedPair pair(delayed(0ms, 160e6));
  const auto sent = pattern(4'000'000);  // 200 ms on the line
  std::vector<std::uint8_t> received(sent.size());
  const auto start = Clock::now();
  std::thread writer([&] { asio::write(pair.near, asio::buffer(sent)); });
  asio::read(pair.far, asio::buffer(received));
  const auto took = Clock::now() - start;
  writer.join();
  EXPECT_GE(took, 199ms);
  EXPECT_LT(took, 2s);
}

TEST(WanRelay, EgressRateIsSharedByAllLinksOfASite) {
  RelayedPair pair(delayed(0ms));
  pair.relay.set_egress_rate(kHere, BitsPerSecond{80e6});
  const auto sent = pattern(1'000'000);
  std::vector<std::uint8_t> received(sent.size());
  const auto start = Clock::now();
  std::thread writer([&] { asio::write(pair.near, asio::buffer(sent)); });
  asio::read(pair.far, asio::buffer(received));
  writer.join();
  // What the first read took may have entered before the limit was known; most of it had not.
  EXPECT_GE(Clock::now() - start, 60ms);
}

TEST(WanRelay, ABlackholeHoldsBytesAndLosesNone) {
  RelayedPair pair(delayed(1ms));
  LinkShape blackhole = delayed(1ms);
  blackhole.is_blackhole = true;
  pair.relay.set_link(kHere, kThere, blackhole);
  const auto sent = pattern(1000);
  asio::write(pair.near, asio::buffer(sent));
  EXPECT_FALSE(is_readable_within(pair.far, 50));
  pair.relay.set_link(kHere, kThere, delayed(1ms));
  std::vector<std::uint8_t> received(sent.size());
  asio::read(pair.far, asio::buffer(received));
  EXPECT_EQ(received, sent);
}

TEST(WanRelay, ClosingOneDirectionLeavesTheOtherOpen) {
  RelayedPair pair(delayed(2ms));
  pair.near.shutdown(tcp::socket::shutdown_send);
  char byte = 'x';
  asio::error_code error;
  asio::read(pair.far, asio::buffer(&byte, 1), error);
  EXPECT_EQ(error, asio::error::eof);
  asio::write(pair.far, asio::buffer(&byte, 1));
  EXPECT_EQ(asio::read(pair.near, asio::buffer(&byte, 1)), 1U);
  pair.far.close();
  asio::read(pair.near, asio::buffer(&byte, 1), error);
  EXPECT_EQ(error, asio::error::eof);
}

TEST(WanRelay, ABrokenReceiverBreaksTheSender) {
  RelayedPair pair(delayed(2ms));
  pair.far.set_option(asio::socket_base::linger(true, 0));
  pair.far.close();
  char byte = 'x';
  asio::error_code error;
  asio::read(pair.near, asio::buffer(&byte, 1), error);
  EXPECT_TRUE(error);
}

TEST(WanRelay, ATargetThatRefusesClosesTheDialler) {
  asio::io_context io;
  tcp::acceptor unused(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  const auto closed_port = unused.local_endpoint().port();
  unused.close();
  WanRelay relay(2);
  relay.start();
  const auto port = relay.add_route(kHere, kThere, closed_port);
  ASSERT_TRUE(port);
  tcp::socket socket(io);
  socket.connect(tcp::endpoint(asio::ip::address_v4::loopback(), *port));
  char byte = 0;
  asio::error_code error;
  asio::read(socket, asio::buffer(&byte, 1), error);
  EXPECT_TRUE(error);
}

TEST(WanRelay, StopEndsOpenConnections) {
  RelayedPair pair(delayed(1ms));
  pair.relay.stop();
  pair.relay.stop();
  char byte = 0;
  asio::error_code error;
  asio::read(pair.near, asio::buffer(&byte, 1), error);
  EXPECT_TRUE(error);
}

}  // namespace
}  // namespace sluice::support
