#pragma once

// What a gateway says first, and whether it accepts what the other one says. Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "gateway/peer_links.h"
#include "proto/peer.pb.h"

namespace sluice::gateway::internal {

wire::PeerMessage make_hello(const PeerLinksConfig& config, unsigned stream_index);
wire::PeerMessage make_goodbye(ErrorCode code, std::string detail);

struct GreetingRefusal {
  std::string label;  // of PeerLinks::Callbacks::on_refused
  ErrorCode code = ErrorCode::kLinkProtocol;
  std::string detail;   // for the log of this side
  std::string goodbye;  // for the other side: the detail, or this side's shared settings
};

// `peer` is the name that the certificate of the other side has proven.
std::optional<GreetingRefusal> check_hello(const wire::Hello& hello, const PeerLinksConfig& config, std::string_view peer);

// What a goodbye in place of a hello means: the label when both sides count it as a refusal (settings or run differ), else an empty one.
GreetingRefusal explain_goodbye(const wire::Goodbye& goodbye, const PeerLinksConfig& config, std::string_view peer);

}  // namespace sluice::gateway::internal
