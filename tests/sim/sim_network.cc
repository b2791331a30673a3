#include "tests/sim/sim_network.h"

#include <algorithm>
#include <utility>

namespace sluice::sim {
namespace {

int channel_of(const Message& message) {
  if (const auto* frame = std::get_if<ContributionFrame>(&message)) return 1 + static_cast<int>(frame->chunk.value % 2);
  if (const auto* frame = std::get_if<UpdateFrame>(&message)) return 1 + static_cast<int>(frame->chunk.value % 2);
  return 0;
}

}  // namespace

Network::Network(EventQueue& queue, Random& random, std::size_t nodes, NetworkTimes times, Listener listener)
    : queue_(queue),
      random_(random),
      nodes_(nodes),
      times_(times),
      listener_(std::move(listener)),
      ends_(nodes * nodes),
      links_(nodes * nodes),
      is_alive_(nodes, false),
      slowness_(nodes, 1) {}

Duration Network::delay(Node from, Node to, int channel) {
  return random_.between(times_.delay_min, channel == 0 ? times_.delay_max : times_.bulk_delay_max) *
         std::max(slowness_[from], slowness_[to]);
}

void Network::send(Node from, Node to, Message message) {
  if (!end(from, to).is_up || !link(from, to).is_up) return;
  const int channel = channel_of(message);
  Channel& way = end(from, to).channels[static_cast<std::size_t>(channel)];
  way.under_way.push_back(std::move(message));
  way.last = std::max({way.last + Duration(1), queue_.now() + delay(from, to, channel), end(to, from).up_at + Duration(1)});
  queue_.at(way.last, [this, from, to, channel, incarnation = link(from, to).incarnation] { deliver(from, to, channel, incarnation); });
}

void Network::deliver(Node from, Node to, int channel, std::uint64_t incarnation) {
  if (link(from, to).incarnation != incarnation) return;
  Channel& way = end(from, to).channels[static_cast<std::size_t>(channel)];
  if (end(from, to).is_blocked) {
    ++way.stalled;
    return;
  }
  const Message message = std::move(way.under_way.front());
  way.under_way.pop_front();
  if (is_alive_[to]) listener_.on_message(to, from, message);
}

void Network::start(Node node) {
  is_alive_[node] = true;
  for (Node peer = 0; peer < nodes_; ++peer) {
    if (peer != node && is_alive_[peer]) connect_later(node, peer);
  }
}

void Network::stop(Node node) {
  is_alive_[node] = false;
  for (Node peer = 0; peer < nodes_; ++peer) {
    if (peer == node) continue;
    end(node, peer).is_up = false;
    take_down(node, peer, "the connection was reset");
  }
}

void Network::block(Node from, Node to) {
  End& way = end(from, to);
  if (way.is_blocked) return;
  way.is_blocked = true;
  queue_.after(times_.heartbeat_timeout, [this, from, to, blocks = ++way.blocks] {
    if (end(from, to).blocks == blocks) take_down(from, to, "no heartbeat");
  });
}

void Network::unblock(Node from, Node to) {
  End& way = end(from, to);
  if (!way.is_blocked) return;
  way.is_blocked = false;
  ++way.blocks;
  for (int channel = 0; channel < kChannels; ++channel) {
    Channel& stopped = way.channels[static_cast<std::size_t>(channel)];
    for (; stopped.stalled > 0; --stopped.stalled) {
      queue_.after(Duration(0),
                   [this, from, to, channel, incarnation = link(from, to).incarnation] { deliver(from, to, channel, incarnation); });
    }
  }
  connect_later(from, to);
}

void Network::cut(Node a, Node b) { take_down(a, b, "the connection was reset"); }

void Network::slow_down(Node node, int factor) { slowness_[node] = factor; }

void Network::take_down(Node a, Node b, const std::string& reason) {
  Link& broken = link(a, b);
  if (!broken.is_up) return;
  broken.is_up = false;
  ++broken.incarnation;
  for (End* way : {&end(a, b), &end(b, a)}) {
    for (Channel& channel : way->channels) channel = Channel{};
  }
  notice_down(a, b, reason);
  notice_down(b, a, reason);
  connect_later(a, b);
}

void Network::notice_down(Node node, Node peer, const std::string& reason) {
  if (!end(node, peer).is_up) return;
  queue_.after(random_.between(Duration(0), times_.heartbeat_timeout),
               [this, node, peer, reason, incarnation = link(node, peer).incarnation] {
                 if (link(node, peer).incarnation != incarnation || !end(node, peer).is_up) return;
                 end(node, peer).is_up = false;
                 if (is_alive_[node]) listener_.on_down(node, peer, reason);
               });
}

// Later than every notice that the former connection is gone.
void Network::connect_later(Node a, Node b) {
  if (link(a, b).is_up || link(a, b).is_connecting) return;
  link(a, b).is_connecting = true;
  queue_.after(times_.heartbeat_timeout + Duration(1) + random_.between(Duration(0), times_.reconnect_max),
               [this, a, b] { connect(a, b); });
}

void Network::connect(Node a, Node b) {
  Link& made = link(a, b);
  made.is_connecting = false;
  if (made.is_up || !is_alive_[a] || !is_alive_[b] || end(a, b).is_blocked || end(b, a).is_blocked) return;
  made.is_up = true;
  ++made.incarnation;
  for (const auto& [node, peer] : {std::pair<Node, Node>{a, b}, std::pair<Node, Node>{b, a}}) {
    const Duration handshake = random_.between(Duration(0), times_.delay_max);
    end(node, peer).up_at = queue_.now() + handshake;
    queue_.after(handshake, [this, n = node, p = peer, incarnation = made.incarnation] {
      if (link(n, p).incarnation != incarnation || !link(n, p).is_up || !is_alive_[n]) return;
      end(n, p).is_up = true;
      listener_.on_up(n, p);
    });
  }
}

}  // namespace sluice::sim
