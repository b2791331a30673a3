#include "site-agent/internal/messages.h"

#include "base/assert.h"
#include "proto/agent.pb.h"

namespace sluice::site_agent {
namespace {

// A configured time beyond a day is a mistake in the configuration or a hostile gateway; it must not overflow our clock.
constexpr std::uint64_t kDurationUsMax = std::uint64_t{86'400} * 1'000'000;

Duration from_us(std::uint64_t microseconds) {
  return std::chrono::microseconds(static_cast<std::int64_t>(std::min(microseconds, kDurationUsMax)));
}

std::uint64_t to_us(Duration duration) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(std::chrono::duration_cast<std::chrono::microseconds>(duration).count(), 0));
}

ByteVector make_record(const wire::AgentMessage& message) {
  const std::size_t size = message.ByteSizeLong();
  SLUICE_ASSERT(size <= wire::kControlBytesMax, "a control message has {} bytes", size);
  ByteVector record(wire::kRecordHeaderBytes + size);
  wire::write_record_header({static_cast<std::uint32_t>(size), wire::RecordType::kControl}, record.data());
  message.SerializeWithCachedSizesToArray(record.data() + wire::kRecordHeaderBytes);
  return record;
}

std::string to_wire(const Digest& digest) { return {reinterpret_cast<const char*>(&digest), sizeof digest}; }

Result<GatewayMessage> convert(const wire::AgentWelcome& from) {
  if (from.protocol() != wire::kProtocolVersion) {
    return fail(ErrorCode::kAgentProtocol, "read welcome", fmt::format("protocol {} was not offered", from.protocol()));
  }
  if (from.outer_rule() > static_cast<std::uint32_t>(sync::OuterRule::kNesterov)) {
    return fail(ErrorCode::kAgentProtocol, "read welcome", fmt::format("outer rule {} is unknown", from.outer_rule()));
  }
  Welcome to;
  to.run = from.run();
  to.site = from.site();
  to.inner_steps = std::max(from.inner_steps(), 1U);
  to.outer.rule = static_cast<sync::OuterRule>(from.outer_rule());
  to.outer.learning_rate = from.outer_learning_rate();
  to.outer.momentum = from.outer_momentum();
  to.solo_steps_max = from.solo_steps_max();
  to.solo_pause = from_us(from.solo_pause_us());
  to.round = from.round();
  if (!(from.residual_share() >= 0.0F && from.residual_share() <= 1.0F)) {
    return fail(ErrorCode::kAgentProtocol, "read welcome", fmt::format("residual share {}", from.residual_share()));
  }
  to.residual_share = from.residual_share();
  to.exchange_timeout = from_us(from.exchange_timeout_us());
  to.initial_weight = from.initial_weight();
  to.probe_window = from_us(from.probe_window_us());
  return GatewayMessage(std::move(to));
}

RoundOpened convert(const wire::RoundOpened& from) {
  RoundOpened to;
  to.epoch = from.epoch();
  to.round = from.round();
  to.step = from.step();
  to.weight = from.weight();
  to.codec = static_cast<std::uint8_t>(std::min(from.codec(), 255U));
  to.members = SiteSet{from.members()};
  to.is_member = from.is_member();
  to.scale_if_all = from.scale_if_all();
  return to;
}

RoundCommitted convert(const wire::RoundCommitted& from) {
  RoundCommitted to;
  to.epoch = from.epoch();
  to.round = from.round();
  to.counted = SiteSet{from.counted()};
  to.scale = from.scale();
  to.was_counted = from.was_counted();
  to.reason = from.reason();
  return to;
}

GatewayMessage convert(const wire::KeyValue& from) {
  return KeyValue{from.request_id(), from.found(), ByteVector(from.value().begin(), from.value().end())};
}

GatewayMessage convert(const wire::StateRequest& from) {
  return StateRequest{from.request_id(), {from.chunks().begin(), from.chunks().end()}};
}

Result<GatewayMessage> convert(const wire::AgentMessage& message) {
  switch (message.kind_case()) {
    case wire::AgentMessage::kWelcome: return convert(message.welcome());
    case wire::AgentMessage::kReject: return GatewayMessage(Reject{message.reject().error_code(), message.reject().detail()});
    case wire::AgentMessage::kGroupFormed: return GatewayMessage(GroupFormed{message.group_formed().generation()});
    case wire::AgentMessage::kGroupBroken:
      return GatewayMessage(GroupBroken{message.group_broken().generation(), message.group_broken().reason()});
    case wire::AgentMessage::kKeyValue: return convert(message.key_value());
    case wire::AgentMessage::kRoundOpened: return GatewayMessage(convert(message.round_opened()));
    case wire::AgentMessage::kRoundCommitted: return GatewayMessage(convert(message.round_committed()));
    case wire::AgentMessage::kRoundSkipped:
      return GatewayMessage(RoundSkipped{message.round_skipped().round(), message.round_skipped().reason()});
    case wire::AgentMessage::kCatchUp:
      return GatewayMessage(CatchUp{message.catch_up().to_round(), message.catch_up().with_state(), message.catch_up().reason()});
    case wire::AgentMessage::kStateRequest: return convert(message.state_request());
    case wire::AgentMessage::kAnnouncement:
      return GatewayMessage(Announcement{message.announcement().text(), message.announcement().solo()});
    case wire::AgentMessage::kGoodbye: return GatewayMessage(Goodbye{message.goodbye().reason()});
    case wire::AgentMessage::kHeartbeat: return GatewayMessage(Heartbeat{message.heartbeat().sequence(), message.heartbeat().is_reply()});
    default: break;
  }
  return fail(ErrorCode::kAgentProtocol, "read message", fmt::format("kind {} is not for an agent", static_cast<int>(message.kind_case())));
}

}  // namespace

Result<GatewayMessage> parse_gateway_message(ByteSpan payload) {
  wire::AgentMessage message;
  if (!message.ParseFromArray(payload.data(), static_cast<int>(payload.size()))) {
    return fail(ErrorCode::kAgentProtocol, "read message", fmt::format("{} bytes are no message", payload.size()));
  }
  return convert(message);
}

ByteVector make_hello(const Hello& hello, const sync::Manifest& manifest) {
  wire::AgentMessage message;
  wire::AgentHello& to = *message.mutable_hello();
  to.set_protocol_min(wire::kProtocolVersion);
  to.set_protocol_max(wire::kProtocolVersion);
  to.set_rank(hello.rank.value);
  to.set_ranks(hello.ranks);
  for (const sync::TensorSpec& tensor : manifest.tensors()) {
    wire::TensorInfo& info = *to.add_tensors();
    info.set_name(tensor.name);
    info.set_dtype(static_cast<std::uint32_t>(tensor.type));
    for (const std::uint64_t size : tensor.shape) info.add_shape(size);
  }
  to.set_manifest_hash(manifest.hash());
  to.set_chunks(manifest.chunk_count());
  to.set_round(hello.round);
  to.set_state_digest(to_wire(sync::combine_digests(hello.chunk_digests)));
  for (const Digest& digest : hello.chunk_digests) to.add_chunk_digests(to_wire(digest));
  to.set_software("sluice-agent 0.1");
  to.set_boot_id(hello.boot_id);
  return make_record(message);
}

ByteVector make_key_set(const std::string& key, ByteSpan value) {
  wire::AgentMessage message;
  message.mutable_key_set()->set_key(key);
  message.mutable_key_set()->set_value(value.data(), value.size());
  return make_record(message);
}

ByteVector make_key_wait(std::uint64_t request_id, const std::string& key, Duration timeout) {
  wire::AgentMessage message;
  message.mutable_key_wait()->set_request_id(request_id);
  message.mutable_key_wait()->set_key(key);
  message.mutable_key_wait()->set_timeout_us(to_us(timeout));
  return make_record(message);
}

ByteVector make_ready(const Ready& ready) {
  wire::AgentMessage message;
  wire::AgentReady& to = *message.mutable_ready();
  to.set_round(ready.round);
  to.set_tokens(ready.tokens);
  to.set_sketch(ready.sketch.data(), ready.sketch.size());
  to.set_sketch_weight(ready.sketch_weight);
  to.set_loss(ready.loss);
  to.set_inner_steps(ready.inner_steps);
  return make_record(message);
}

ByteVector make_round_applied(std::uint64_t round, std::span<const Digest> chunk_digests) {
  wire::AgentMessage message;
  message.mutable_round_applied()->set_round(round);
  for (const Digest& digest : chunk_digests) message.mutable_round_applied()->add_chunk_digests(to_wire(digest));
  return make_record(message);
}

ByteVector make_site_probe(const SiteProbe& probe) {
  wire::AgentMessage message;
  wire::SiteProbe& to = *message.mutable_site_probe();
  to.set_machine(probe.report.machine);
  to.set_elapsed_us(to_us(probe.elapsed));
  to.set_pairs_planned(static_cast<std::uint32_t>(probe.pairs_planned));
  to.set_is_cut(probe.is_cut);
  if (probe.failure) to.set_failure(probe.failure->to_string());
  for (const topology::ProbedPair& pair : probe.report.pairs) {
    wire::ProbedPair& entry = *to.add_pairs();
    entry.set_peer(pair.follower.value);
    entry.set_forward_gb_per_second(pair.forward_gb_per_second.value_or(0.0));
    entry.set_backward_gb_per_second(pair.backward_gb_per_second.value_or(0.0));
    entry.set_latency_us(pair.latency_us.value_or(0.0));
    entry.set_steady(pair.is_steady);
  }
  return make_record(message);
}

ByteVector make_goodbye(const std::string& reason) {
  wire::AgentMessage message;
  message.mutable_goodbye()->set_reason(reason);
  return make_record(message);
}

ByteVector make_heartbeat(const Heartbeat& heartbeat) {
  wire::AgentMessage message;
  message.mutable_heartbeat()->set_sequence(heartbeat.sequence);
  message.mutable_heartbeat()->set_is_reply(heartbeat.is_reply);
  return make_record(message);
}

ByteVector make_frame_record(const wire::FrameEnvelope& envelope, ByteSpan frame) {
  const std::size_t size = wire::kFrameEnvelopeBytes + frame.size();
  SLUICE_ASSERT(size <= wire::kFrameRecordBytesMax, "a frame record has {} bytes", size);
  ByteVector record;
  record.reserve(wire::kRecordHeaderBytes + size);
  record.resize(wire::kRecordHeaderBytes + wire::kFrameEnvelopeBytes);
  wire::write_record_header({static_cast<std::uint32_t>(size), wire::RecordType::kFrame}, record.data());
  wire::write_frame_envelope(envelope, record.data() + wire::kRecordHeaderBytes);
  record.insert(record.end(), frame.begin(), frame.end());
  return record;
}

}  // namespace sluice::site_agent
