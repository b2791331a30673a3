#pragma once

// Links between the sites as gateways see them: each pair has an ordered control channel and two ordered bulk streams per direction, over
// which frames are striped. Nothing orders one channel against another.
// A blocked direction delays what is sent; blocked longer than the heartbeat timeout, the link goes down and everything under way is lost.
// Both ends learn of it at their own time. When nothing is in the way any more it comes up again.

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "sync/round_machine.h"
#include "tests/sim/sim_queue.h"
#include "tests/sim/sim_random.h"

namespace sluice::sim {

using Node = std::size_t;  // 0 .. sites - 1; with an outside store, `sites` is the store

struct StoreCasMessage { std::uint64_t expected_version = 0; sync::RoundRecord next; };
struct StoreRecordMessage { sync::RoundRecord record; };
struct FetchRoundMessage { RoundId round; };
struct FetchRoundReply { bool available = false; sync::RoundRecord record; std::vector<std::int64_t> sums; RoundId round; };
struct FetchStateMessage {};
struct FetchStateReply { bool available = false; RoundId round; Digest digest; };
struct ContributionFrame { sync::RoundKey key; SiteId site; ChunkId chunk; std::int64_t value = 0; };
struct UpdateFrame { sync::RoundKey key; SiteSet counted; ChunkId chunk; std::int64_t value = 0; };

// Control messages that are events of the machine travel as these.
using Message = std::variant<sync::ProposalReceived, sync::WithdrawReceived, sync::StateReportReceived, sync::OwnerStatusReceived,
                             sync::ConfirmReceived, StoreCasMessage, StoreRecordMessage, FetchRoundMessage, FetchRoundReply,
                             FetchStateMessage, FetchStateReply, ContributionFrame, UpdateFrame>;

struct NetworkTimes {
  Duration delay_min = std::chrono::milliseconds(1);
  Duration delay_max = std::chrono::milliseconds(20);
  Duration bulk_delay_max = std::chrono::milliseconds(20);
  Duration heartbeat_timeout = std::chrono::milliseconds(150);
  Duration reconnect_max = std::chrono::milliseconds(200);
};

class Network {
 public:
  struct Listener {
    std::function<void(Node to, Node from, const Message&)> on_message;
    std::function<void(Node node, Node peer)> on_up;
    std::function<void(Node node, Node peer, const std::string& reason)> on_down;
  };

  Network(EventQueue& queue, Random& random, std::size_t nodes, NetworkTimes times, Listener listener);

  // Nothing happens when `from` believes the link to be down; what is sent into a link that is down unknown to it is lost.
  void send(Node from, Node to, Message message);
  [[nodiscard]] bool is_up(Node node, Node peer) const { return end(node, peer).is_up; }

  void start(Node node);              // the process lives: connects to all
  void stop(Node node);               // the process is gone: nothing of it is delivered any more
  void block(Node from, Node to);     // one direction
  void unblock(Node from, Node to);
  void cut(Node a, Node b);           // connection reset; comes up again by itself
  void slow_down(Node node, int factor);  // delays of everything from and to it

 private:
  static constexpr int kChannels = 3;  // control, then the bulk streams

  struct Channel {
    std::deque<Message> under_way;
    std::size_t stalled = 0;  // deliveries that came while blocked
    TimePoint last{};         // keeps the order
  };
  struct End {                // of one direction: node -> peer
    bool is_up = false;       // what `node` believes
    TimePoint up_at{};
    bool is_blocked = false;
    std::uint64_t blocks = 0;  // counts changes of is_blocked
    std::array<Channel, kChannels> channels;
  };
  struct Link {
    bool is_up = false;
    bool is_connecting = false;
    std::uint64_t incarnation = 0;
  };

  End& end(Node node, Node peer) { return ends_[node * nodes_ + peer]; }
  [[nodiscard]] const End& end(Node node, Node peer) const { return ends_[node * nodes_ + peer]; }
  Link& link(Node a, Node b) { return a < b ? links_[a * nodes_ + b] : links_[b * nodes_ + a]; }
  void connect_later(Node a, Node b);
  void connect(Node a, Node b);
  void take_down(Node a, Node b, const std::string& reason);
  void notice_down(Node node, Node peer, const std::string& reason);
  void deliver(Node from, Node to, int channel, std::uint64_t incarnation);
  [[nodiscard]] Duration delay(Node from, Node to, int channel);

  EventQueue& queue_;
  Random& random_;
  std::size_t nodes_;
  NetworkTimes times_;
  Listener listener_;
  std::vector<End> ends_;
  std::vector<Link> links_;
  std::vector<bool> is_alive_;
  std::vector<int> slowness_;
};

}  // namespace sluice::sim
