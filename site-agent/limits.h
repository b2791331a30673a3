#pragma once

// Bounds of the site agent, with unit and reason.

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace sluice::site_agent {

// Processes of one site: each pair has a connection, and agreements are exchanged directly.
inline constexpr std::uint32_t kRanksMax = 1024;

// Encoded frames waiting to be written before the training thread waits for the socket.
inline constexpr std::size_t kOutboundBytesMax = std::size_t{64} << 20;
// Received frames waiting for the training thread before the agent stops reading from the gateway.
inline constexpr std::size_t kInboundBytesMax = std::size_t{256} << 20;
// State chunks are served one by one while less than this waits to be written.
inline constexpr std::size_t kStateServeBytesMax = std::size_t{8} << 20;
// Requested chunks remembered at a time; a gateway asks again for what it did not get.
inline constexpr std::size_t kStateRequestsMax = std::size_t{1} << 20;

// Connecting again: the first pause, doubled up to the longest. A refusal will not mend itself in milliseconds.
inline constexpr std::chrono::milliseconds kReconnectPauseMin{50};
inline constexpr std::chrono::milliseconds kReconnectPauseMax{2000};
inline constexpr std::chrono::milliseconds kRefusedPause{2000};
// Connecting, the TLS handshake and the answer to the hello together.
inline constexpr std::chrono::seconds kHandshakeTimeout{10};
// A gateway that says nothing for three intervals is gone, whatever TCP thinks.
inline constexpr std::chrono::seconds kHeartbeatInterval{2};
inline constexpr int kHeartbeatsMissedMax = 3;
// Saying goodbye must not hold up the end of the training script.
inline constexpr std::chrono::milliseconds kGoodbyeTimeout{500};
// A boundary at which the ranks have to form their group again waits this long for the others; the next boundary tries again.
inline constexpr std::chrono::seconds kRegroupTimeout{10};
// A group that broke without a rank having left is asked for again after this long: news of a rank that died comes within milliseconds.
inline constexpr std::chrono::seconds kRegroupGrace{1};
// Whatever the gateway asks for.
inline constexpr std::chrono::seconds kProbeWindowMax{10};
// Rounds of pairs in a probe of the site: a few milliseconds each on links that are fast.
inline constexpr std::size_t kProbeRoundsMax = 2000;
// Of the window, what one pair may take. The least is for sites whose pairs are many.
inline constexpr std::chrono::milliseconds kProbePairTimeMin{10};
inline constexpr std::chrono::milliseconds kProbePairTimeMax{1000};
// A pair needs some fifty: echoes, ramps and transfers of two directions.
inline constexpr int kProbeCommandsMax = 200;
// Probes of a site that broke its group before the ranks train without one.
inline constexpr int kProbeFailuresMax = 2;
// Longest that a step waits for a round when the gateway has stated nothing sensible.
inline constexpr std::chrono::seconds kExchangeTimeoutDefault{120};

}  // namespace sluice::site_agent
