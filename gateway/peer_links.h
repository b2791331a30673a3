#pragma once

// The WAN links of one gateway: to each other site one control connection and k bulk connections, TLS 1.3, both sides authenticated.
// The site with the lower SiteId dials, the other accepts; whoever lost a connection dials again by itself, with growing delays.
//
// Threads: construct, start, stop and every other method on the thread that runs `loop` (asserted); all callbacks come on it, never from
// inside a method. Sockets and TLS are on threads of its own. Nothing is called back after stop() or the destructor.
// A link is up when its control connection and at least one bulk connection are; down when the control connection is lost, the last bulk
// connection is lost, or nothing has been heard for `heartbeat_misses` intervals.
//
// Frames: each is taken by whatever bulk connection has room, so frames of one peer may overtake each other, and nothing is said about
// order between frames and control messages. A frame is acknowledged when the peer has it in memory. When a connection breaks, what was
// not acknowledged goes back to the head of the queue and out again: a frame may arrive twice, never zero times, as long as the peer's
// process lives. Frames outlive a link that goes down and comes back to the same process. When the peer's process is another one
// (on_up with is_new_process), the queue has been emptied: the new process has nothing of what was sent before.
// Control messages arrive in order and at most once; those not yet sent when the link goes down are lost.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <asio/io_context.hpp>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/units.h"
#include "gateway/frame_record.h"
#include "gateway/limits.h"
#include "gateway/tls_context.h"
#include "proto/peer.pb.h"
#include "topology/wan_estimator.h"

namespace sluice::gateway {

struct PeerEndpoint {
  SiteId site;
  std::string name;
  std::string host;  // name or address; used only where this site dials
  std::uint16_t port = 0;
};

struct PeerLinksConfig {
  std::string run;
  std::string domain;  // SPIFFE trust domain
  SiteId self;
  std::string self_name;
  std::string listen_host = "0.0.0.0";
  std::uint16_t listen_port = 0;                        // 0 = any free one, see listening_port()
  std::vector<PeerEndpoint> peers;                      // every other site of the run
  unsigned streams = 4;                                 // bulk connections of each link that this site dials, 1..kStreamsMax
  std::chrono::milliseconds heartbeat_interval{1'000};  // the larger of the two sides' counts
  unsigned heartbeat_misses = 3;
  std::uint64_t shared_digest = 0;  // of the settings that all sites share; a site with another one is refused
  std::string shared_settings;      // their text: shown to a site that differs, so that both can say where
  std::function<std::string(std::string_view theirs)> explain_settings;  // one line: how a peer's text differs from ours; may be empty
  std::uint64_t boot_id = 0;                                             // random for each start of the process, not 0
  std::uint32_t handshakes_per_second = 50;
  std::uint32_t connections_unauthenticated = 64;
  std::size_t frame_queue_bytes = kFrameQueueBytes;  // for each peer
  BitsPerSecond rate_limit;                          // of frames, all peers together; 0 = none
  std::string congestion;       // TCP congestion control of the bulk connections; empty = the system's; ignored if not there
  int socket_buffer_bytes = 0;  // of the bulk connections; 0 = the system's own sizing
  unsigned io_threads = 2;      // for bulk connections; one more does control connections and handshakes
};

// Figures of one link since start(). Bytes are what went through the TCP sockets, with TLS.
struct LinkStats {
  bool is_up = false;
  unsigned bulk_streams = 0;  // now
  std::uint64_t sent_bytes = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t sent_round_bytes = 0;      // of frames of rounds, acknowledged by the peer
  std::uint64_t received_round_bytes = 0;  // likewise
  std::uint64_t frames_sent = 0;           // acknowledged by the peer
  std::uint64_t frames_received = 0;
  std::uint64_t frames_resent = 0;
  std::uint64_t links_up = 0;  // times the link came up
  std::uint64_t connect_failures = 0;
  std::optional<std::chrono::microseconds> rtt_min;  // of the last heartbeats
  std::optional<std::chrono::microseconds> rtt_p50;
  std::optional<TimePoint> up_since;
  std::string last_error;
};

class PeerLinks {
 public:
  struct Callbacks {
    std::function<void(SiteId, bool is_new_process)> on_up;
    std::function<void(SiteId, std::string reason)> on_down;
    std::function<void(SiteId, const wire::PeerMessage&)> on_control;  // all but hello, goodbye, heartbeat, frame_ack and goodput
    std::function<void(SiteId, FrameRecord)> on_frame;                 // the frame's own content is not checked yet
    // The queue of the peer has fallen below half of frame_queue_bytes after a send_frame was refused.
    std::function<void(SiteId)> on_drained;
    // A connection that this side refused. `reason`: untrusted, expired, san, protocol, not_tls, run_mismatch, settings_mismatch, flood,
    // timeout. Of a flood every refusal is counted here and one a second logged.
    std::function<void(std::string_view reason, std::string detail)> on_refused;
  };

  PeerLinks(asio::io_context& loop, PeerLinksConfig config, std::shared_ptr<const TlsContext> tls, Callbacks callbacks);
  ~PeerLinks();

  // Listens and starts to dial. Fails with kListen when the address cannot be bound. REQUIRES: called once.
  Status start();
  // Says goodbye to the peers, closes everything, joins the threads: about kFarewellTimeout at most. No on_down.
  void stop();
  [[nodiscard]] std::uint16_t listening_port() const;

  // For new connections from now on; those there are stay until their peer's certificate expires.
  void set_tls(std::shared_ptr<const TlsContext> tls);

  // False when the link is not up: the message is dropped.
  bool send_control(SiteId peer, const wire::PeerMessage& message);
  // Takes the frame, whether the link is up or not; false when the peer's queue is full: try again after on_drained.
  bool send_frame(SiteId peer, FrameRecord frame);
  // Forgets waiting frames that `is_stale` names; those already on a connection are sent anyway. Returns how many.
  std::size_t discard_frames(SiteId peer, const std::function<bool(const wire::FrameEnvelope&)>& is_stale);
  // Frames taken and not yet acknowledged.
  [[nodiscard]] std::size_t queued_bytes(SiteId peer) const;

  [[nodiscard]] bool is_up(SiteId peer) const;
  // Sums over all connections that there are and were; counters of live ones lag by at most a few milliseconds.
  [[nodiscard]] LinkStats stats(SiteId peer) const;

  // What this site knows of its link to the peer. It outlives connections.
  [[nodiscard]] topology::LinkEstimate estimate(SiteId peer) const;
  // What the link carries from now on is an active probe, or is none any more.
  void set_probing(SiteId peer, bool is_probing);

  // For tests and drills: breaks the bulk connection with this index (1..k) as a reset from the network would.
  void break_stream(SiteId peer, unsigned stream_index);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace sluice::gateway
