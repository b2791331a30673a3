#pragma once

// Limits of the gateway's connections: what a peer, an agent or a stranger can make it hold or do. Constants, any thread.

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/units.h"

namespace sluice::gateway {

// Deadlines of a connection that has not said who it is yet. A full handshake takes two round trips and about a millisecond of CPU.
inline constexpr std::chrono::milliseconds kFirstByteTimeout{5'000};   // TCP accept to the first byte of the ClientHello
inline constexpr std::chrono::milliseconds kHandshakeTimeout{10'000};  // TLS handshake, first byte to finished
inline constexpr std::chrono::milliseconds kHelloTimeout{5'000};       // handshake finished to Hello
inline constexpr std::chrono::milliseconds kConnectTimeout{3'000};     // TCP connect, for each address of the name: two SYNs
inline constexpr std::chrono::milliseconds kFarewellTimeout{1'000};    // to get a Goodbye out before a connection is closed
inline constexpr std::chrono::milliseconds kAcceptPause{100};          // after EMFILE, ENFILE or ENOMEM: other sockets may close meanwhile

// Delay before a connection that failed is tried again: doubles from the first to the last, each drawn from its upper half.
inline constexpr std::chrono::milliseconds kReconnectDelayMin{50};
inline constexpr std::chrono::milliseconds kReconnectDelayMax{2'000};
// After a refusal that only a person can lift (settings differ, certificate of another site, replaced by another process).
inline constexpr std::chrono::milliseconds kReconnectDelayRefused{5'000};

inline constexpr std::uint64_t kHeartbeatIntervalUsMax = 60'000'000;  // that a peer may claim
inline constexpr unsigned kStreamsMax = 32;                           // bulk connections of one link
inline constexpr unsigned kUnauthenticatedPerAddressMax = 40;         // a peer opens kStreamsMax + 1 at once; a stranger gets no more
inline constexpr int kListenBacklog = 128;
inline constexpr std::size_t kCertificateBytesMax = 32 * kKiB;  // of the chain that a peer presents
inline constexpr int kCertificateDepthMax = 4;

// One connection. Reading and encrypting are cut into turns so that a bulk stream does not delay its neighbours on the thread.
inline constexpr std::size_t kReadChunkBytes = 16 * kKiB;       // one TLS record
inline constexpr std::size_t kReadBufferBytes = 128 * kKiB;     // ciphertext taken from the kernel at once
inline constexpr std::size_t kGreetingBufferBytes = 16 * kKiB;  // the same before Hello
inline constexpr std::size_t kWriteBufferBytes = 128 * kKiB;    // ciphertext built before it is given to the kernel
inline constexpr std::size_t kTurnBytes = 512 * kKiB;           // then the other connections of the thread have their turn
inline constexpr int kNotSentBytes = 256 * 1024;                // TCP_NOTSENT_LOWAT: what waits in the kernel beyond the TCP window
inline constexpr std::size_t kLimitedTurnBytes = 32 * kKiB;     // write turn under a rate limit

// Frames on their way over one bulk stream. The window doubles while it, not the network, is what holds the stream back.
inline constexpr std::size_t kStreamBacklogBytes = 1 * kMiB;     // given to a stream, not yet to the kernel (always one frame)
inline constexpr std::size_t kStreamWindowBytes = 4 * kMiB;      // not acknowledged, at the start
inline constexpr std::size_t kStreamWindowBytesMax = 64 * kMiB;  // a stream of 5 Gbit/s over 100 ms
inline constexpr double kBytesUnderWayPerStream = 2.0 * 1024 * 1024;  // half of the 4 MiB that Linux lets one TCP connection buffer
inline constexpr std::size_t kFrameQueueBytes = 256 * kMiB;      // frames waiting for one peer, default of PeerLinksConfig

inline constexpr std::size_t kControlQueueBytesMax = 16 * kMiB;  // unsent control messages of one connection; more ends it
inline constexpr std::size_t kEarlyControlMessagesMax = 1024;    // received before the link is up
inline constexpr std::size_t kDeliveryBytesMax = 64 * kMiB;  // read from one peer or agent, not yet taken by the loop; then reading pauses

inline constexpr std::size_t kAgentSessionsMax = 1024;
inline constexpr std::size_t kAgentQueueBytesMax = 256 * kMiB;  // unsent bytes of one agent session; more ends it

}  // namespace sluice::gateway
