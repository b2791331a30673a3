// Goal: real sockets in the sites see the emulated WAN: bytes arrive whole through loss and full queues, not before their time, not through
// a blackhole; and nothing of it is left when its process is killed. Method: TCP and UDP between two namespaces, bounds that no load on the
// machine can break; a child process that is killed. Without root or /dev/net/tun every test is skipped with the reason.
#include "tests/support/wan_emulator.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <numeric>
#include <thread>

#include "tests/support/child_process.h"

namespace sluice::support {
namespace {

using namespace std::chrono_literals;

const SiteId kA(0);
const SiteId kB(1);

class Socket {
 public:
  // In the namespace of `site`, bound to its address and any port.
  Socket(const WanEmulator& wan, SiteId site, int type) {
    wan.site(site).run([&] {
      fd_ = ::socket(AF_INET, type | SOCK_CLOEXEC, 0);
      address_.sin_family = AF_INET;
      ::inet_pton(AF_INET, WanEmulator::address(site).c_str(), &address_.sin_addr);
      socklen_t length = sizeof address_;
      is_bound_ = ::bind(fd_, as_address(), length) == 0 && ::getsockname(fd_, as_address(), &length) == 0;
    });
  }
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() { ::close(fd_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] bool is_bound() const { return is_bound_; }
  [[nodiscard]] sockaddr* as_address() { return reinterpret_cast<sockaddr*>(&address_); }
  [[nodiscard]] bool is_readable(std::chrono::milliseconds timeout) const {
    pollfd waiting{fd_, POLLIN, 0};
    return ::poll(&waiting, 1, static_cast<int>(timeout.count())) == 1;
  }

 private:
  int fd_ = -1;
  bool is_bound_ = false;
  sockaddr_in address_{};
};

class WanEmulatorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto reason = WanEmulator::why_unavailable()) GTEST_SKIP() << "no network namespaces here: " << *reason;
    auto started = WanEmulator::start({});
    ASSERT_TRUE(started) << started.error().to_string();
    wan_ = std::move(*started);
  }

  // Sends `bytes` from site A to site B over one TCP connection; true when they arrive as they were sent.
  bool transfer(std::size_t bytes) {
    Socket listener(*wan_, kB, SOCK_STREAM);
    Socket sender(*wan_, kA, SOCK_STREAM);
    if (!listener.is_bound() || ::listen(listener.fd(), 1) != 0) return false;
    ByteVector sent(bytes);
    for (std::size_t index = 0; index < bytes; ++index) sent[index] = static_cast<std::uint8_t>(index * 2654435761U >> 13U);
    std::thread writer([&] {
      if (::connect(sender.fd(), listener.as_address(), sizeof(sockaddr_in)) != 0) return;
      for (std::size_t at = 0; at < bytes;) {
        const ssize_t written = ::send(sender.fd(), sent.data() + at, bytes - at, MSG_NOSIGNAL);
        if (written <= 0) return;
        at += static_cast<std::size_t>(written);
      }
      ::shutdown(sender.fd(), SHUT_WR);
    });
    ByteVector received;
    if (listener.is_readable(30s)) {
      Socket accepted(::accept(listener.fd(), nullptr, nullptr));
      std::uint8_t part[65536];
      while (accepted.is_readable(30s)) {
        const ssize_t count = ::recv(accepted.fd(), part, sizeof part, 0);
        if (count <= 0) break;
        received.insert(received.end(), part, part + count);
      }
    }
    writer.join();
    return received == sent;
  }

  std::unique_ptr<WanEmulator> wan_;
};

TEST_F(WanEmulatorTest, TcpArrivesWholeThroughLossAndAShortQueue) {
  PathShape shape;
  shape.delay = 5ms;
  shape.rate = BitsPerSecond{100e6};
  shape.queue_bytes = 60'000;
  shape.loss = 0.02;
  wan_->set_both(kA, kB, shape);
  EXPECT_TRUE(transfer(3'000'000));
  const PathCounters there = wan_->counters(kA, kB);
  EXPECT_GT(there.lost, 0U);
  EXPECT_GT(there.delivered_bytes, 3'000'000U);
  EXPECT_GT(wan_->counters(kB, kA).delivered, 0U);
}

TEST_F(WanEmulatorTest, NothingArrivesBeforeItsDelay) {
  PathShape there;
  there.delay = 20ms;
  PathShape back;
  back.delay = 30ms;
  wan_->set_path(kA, kB, there);
  wan_->set_path(kB, kA, back);
  Socket client(*wan_, kA, SOCK_DGRAM);
  Socket server(*wan_, kB, SOCK_DGRAM);
  ASSERT_TRUE(client.is_bound() && server.is_bound());
  const char text[] = "ping";
  for (int index = 0; index < 5; ++index) {
    const TimePoint began = Clock::now();
    ASSERT_EQ(::sendto(client.fd(), text, sizeof text, 0, server.as_address(), sizeof(sockaddr_in)), 5);
    char heard[16];
    ASSERT_TRUE(server.is_readable(10s));
    ASSERT_EQ(::recv(server.fd(), heard, sizeof heard, 0), 5);
    EXPECT_GE(Clock::now() - began, 20ms);
    ASSERT_EQ(::sendto(server.fd(), text, sizeof text, 0, client.as_address(), sizeof(sockaddr_in)), 5);
    ASSERT_TRUE(client.is_readable(10s));
    ASSERT_EQ(::recv(client.fd(), heard, sizeof heard, 0), 5);
    EXPECT_GE(Clock::now() - began, 50ms);
  }
}

TEST_F(WanEmulatorTest, RateBoundsWhatArrives) {
  PathShape shape;
  shape.delay = 2ms;
  shape.rate = BitsPerSecond{40e6};
  wan_->set_both(kA, kB, shape);
  const TimePoint began = Clock::now();
  EXPECT_TRUE(transfer(1'000'000));
  // More than 40 Mbit/s would be an error of the emulator; less is what a busy machine does.
  const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
  EXPECT_LE(static_cast<double>(wan_->counters(kA, kB).delivered_bytes) * 8.0 / seconds, 40e6);
}

TEST_F(WanEmulatorTest, BlackholeLetsNothingThroughAndHeals) {
  Socket client(*wan_, kA, SOCK_DGRAM);
  Socket server(*wan_, kB, SOCK_DGRAM);
  const auto send_one = [&] { return ::sendto(client.fd(), "x", 1, 0, server.as_address(), sizeof(sockaddr_in)); };
  wan_->set_blackhole(kA, kB, true);
  ASSERT_EQ(send_one(), 1);
  EXPECT_FALSE(server.is_readable(100ms));
  EXPECT_EQ(wan_->counters(kA, kB).swallowed, 1U);
  wan_->set_blackhole(kA, kB, false);
  ASSERT_EQ(send_one(), 1);
  EXPECT_TRUE(server.is_readable(10s));
}

// Inode numbers of the network namespaces that any process is in.
bool is_namespace_alive(ino_t inode) {
  DIR* processes = ::opendir("/proc");
  bool is_found = false;
  while (const dirent* entry = ::readdir(processes)) {
    struct stat status {};
    const std::string path = std::string("/proc/") + entry->d_name + "/ns/net";
    is_found = is_found || (::stat(path.c_str(), &status) == 0 && status.st_ino == inode);
  }
  ::closedir(processes);
  return is_found;
}

TEST_F(WanEmulatorTest, ChildrenRunInTheirSiteAndTheSiteEndsWithThem) {
  struct stat status {};
  ASSERT_EQ(::fstat(wan_->site(kB).fd(), &status), 0);
  ChildOptions options;
  options.arguments = {"/bin/cat"};
  options.network = wan_->site(kB).fd();
  auto child = ChildProcess::start(options);
  ASSERT_TRUE(child);
  ASSERT_TRUE(child->write("there\n"));
  ASSERT_TRUE(child->read_line(10s));
  EXPECT_TRUE(is_namespace_alive(status.st_ino));
  wan_.reset();
  child->signal(SIGKILL);
  ASSERT_TRUE(child->wait(10s));
  EXPECT_FALSE(is_namespace_alive(status.st_ino));
}

}  // namespace
}  // namespace sluice::support
