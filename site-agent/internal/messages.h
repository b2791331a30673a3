#pragma once

// What the agent and its gateway say, as our own structs, and their conversion from and to the wire (proto/agent.proto, proto/record.h).
// Pure functions and value types, any thread. Protobuf does not leave messages.cc.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/ids.h"
#include "base/result.h"
#include "proto/record.h"
#include "sync/manifest.h"
#include "sync/outer_optimizer.h"
#include "topology/site_probe.h"

namespace sluice::site_agent {

struct Welcome {
  std::string run;
  std::string site;
  std::uint32_t inner_steps = 0;
  sync::OuterConfig outer;
  std::uint64_t solo_steps_max = 0;  // 0: no bound
  Duration solo_pause{};
  std::uint64_t round = 0;
  float residual_share = 1.0F;
  Duration exchange_timeout{};
  float initial_weight = 1.0F;
  Duration probe_window{};  // 0: the ranks do not probe
};
struct Reject { std::uint32_t error_code = 0; std::string detail; };
struct GroupFormed { std::uint64_t generation = 0; };
struct GroupBroken { std::uint64_t generation = 0; std::string reason; };
struct KeyValue { std::uint64_t request_id = 0; bool is_found = false; ByteVector value; };
struct RoundOpened {
  std::uint64_t epoch = 0;
  std::uint64_t round = 0;
  float step = 0.0F;
  float weight = 0.0F;
  std::uint8_t codec = 0;  // compression::Codec
  SiteSet members;
  bool is_member = false;
  float scale_if_all = 0.0F;  // of the commit when all members are counted; 0: not said
};
struct RoundCommitted {
  std::uint64_t epoch = 0;
  std::uint64_t round = 0;
  SiteSet counted;
  float scale = 0.0F;
  bool was_counted = false;
  std::string reason;
};
struct RoundSkipped { std::uint64_t round = 0; std::string reason; };
struct CatchUp { std::uint64_t to_round = 0; bool with_state = false; std::string reason; };
struct StateRequest { std::uint64_t request_id = 0; std::vector<std::uint32_t> chunks; };
struct Announcement { std::string text; bool is_solo = false; };
struct Goodbye { std::string reason; };
struct Heartbeat { std::uint64_t sequence = 0; bool is_reply = false; };

// What a gateway may send. An unknown kind is an error: both sides speak one version.
using GatewayMessage = std::variant<Welcome, Reject, GroupFormed, GroupBroken, KeyValue, RoundOpened, RoundCommitted, RoundSkipped, CatchUp,
                                    StateRequest, Announcement, Goodbye, Heartbeat>;

// Errors: kAgentProtocol.
Result<GatewayMessage> parse_gateway_message(ByteSpan payload);

struct Hello {
  RankId rank;
  std::uint32_t ranks = 1;
  std::uint64_t round = 0;
  std::vector<Digest> chunk_digests;  // of the shard
  std::uint64_t boot_id = 0;
};
struct Ready {
  std::uint64_t round = 0;
  std::uint64_t tokens = 0;
  ByteVector sketch;
  float sketch_weight = 0.0F;
  double loss = 0.0;
  std::uint64_t inner_steps = 0;
};

// How the probe of the site ended for this rank.
struct SiteProbe {
  topology::ProbeReport report;
  std::size_t pairs_planned = 0;  // of the whole site
  Duration elapsed{};
  bool is_cut = false;  // the window was over before all pairs were measured
  std::optional<Error> failure;
};

// Whole records, header included, ready to be written.
ByteVector make_hello(const Hello& hello, const sync::Manifest& manifest);
ByteVector make_key_set(const std::string& key, ByteSpan value);
ByteVector make_key_wait(std::uint64_t request_id, const std::string& key, Duration timeout);
ByteVector make_ready(const Ready& ready);
ByteVector make_round_applied(std::uint64_t round, std::span<const Digest> chunk_digests);
ByteVector make_site_probe(const SiteProbe& probe);
ByteVector make_goodbye(const std::string& reason);
ByteVector make_heartbeat(const Heartbeat& heartbeat);
// `frame` is one encoded frame.
ByteVector make_frame_record(const wire::FrameEnvelope& envelope, ByteSpan frame);

}  // namespace sluice::site_agent
