#include "tests/site-agent/fake_gateway.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>

namespace sluice::test {
namespace {

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("fake gateway: " + what);
}

void set_timeout(int socket) {
  const timeval limit{20, 0};
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

bool read_exactly(int socket, std::uint8_t* to, std::size_t size) {
  return size == 0 || recv(socket, to, size, MSG_WAITALL) == static_cast<ssize_t>(size);
}

void write_exactly(int socket, ByteSpan bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (written < 0 && errno == EPIPE) return;  // the agent has gone; the next read says so
    require(written > 0, "the agent does not read");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

}  // namespace

FakeConnection::~FakeConnection() { close(socket_); }

ByteVector FakeConnection::read_record(wire::RecordType& type) {
  std::uint8_t header_bytes[wire::kRecordHeaderBytes];
  require(read_exactly(socket_, header_bytes, sizeof header_bytes), "no record came");
  const auto header = wire::read_record_header(header_bytes);
  require(header.has_value(), "a malformed record header");
  ByteVector payload(header->payload_bytes);
  require(read_exactly(socket_, payload.data(), payload.size()), "a record ended early");
  type = header->type;
  return payload;
}

wire::AgentMessage FakeConnection::read() {
  wire::RecordType type{};
  const ByteVector payload = read_record(type);
  require(type == wire::RecordType::kControl, "a frame where a message was expected");
  wire::AgentMessage message;
  require(message.ParseFromArray(payload.data(), static_cast<int>(payload.size())), "no message");
  return message;
}

FakeFrame FakeConnection::read_frame() {
  wire::RecordType type{};
  const ByteVector payload = read_record(type);
  require(type == wire::RecordType::kFrame, "a message where a frame was expected");
  const auto envelope = wire::read_frame_envelope(payload.data());
  require(envelope.has_value(), "a malformed envelope");
  return FakeFrame{*envelope, ByteVector(payload.begin() + wire::kFrameEnvelopeBytes, payload.end())};
}

bool FakeConnection::reads_end() {
  std::uint8_t byte = 0;
  ssize_t got = 1;
  while (got > 0) got = recv(socket_, &byte, 1, 0);
  return got == 0 || errno == ECONNRESET;
}

std::optional<FakeConnection::Record> FakeConnection::try_read() {
  std::uint8_t header_bytes[wire::kRecordHeaderBytes];
  if (!read_exactly(socket_, header_bytes, sizeof header_bytes)) return std::nullopt;
  const auto header = wire::read_record_header(header_bytes);
  ByteVector payload(header->payload_bytes);
  if (!read_exactly(socket_, payload.data(), payload.size())) return std::nullopt;
  Record record;
  if (header->type == wire::RecordType::kControl) {
    require(record.message.ParseFromArray(payload.data(), static_cast<int>(payload.size())), "no message");
  } else {
    record.frame = FakeFrame{*wire::read_frame_envelope(payload.data()),
                             ByteVector(payload.begin() + wire::kFrameEnvelopeBytes, payload.end())};
  }
  return record;
}

void FakeConnection::end() { shutdown(socket_, SHUT_RDWR); }

void FakeConnection::send(const wire::AgentMessage& message) {
  ByteVector record(wire::kRecordHeaderBytes + message.ByteSizeLong());
  wire::write_record_header({static_cast<std::uint32_t>(message.ByteSizeLong()), wire::RecordType::kControl}, record.data());
  message.SerializeWithCachedSizesToArray(record.data() + wire::kRecordHeaderBytes);
  write_exactly(socket_, record);
}

void FakeConnection::send_frame(const wire::FrameEnvelope& envelope, ByteSpan frame) {
  ByteVector record(wire::kRecordHeaderBytes + wire::kFrameEnvelopeBytes);
  wire::write_record_header({static_cast<std::uint32_t>(wire::kFrameEnvelopeBytes + frame.size()), wire::RecordType::kFrame},
                            record.data());
  wire::write_frame_envelope(envelope, record.data() + wire::kRecordHeaderBytes);
  record.insert(record.end(), frame.begin(), frame.end());
  write_exactly(socket_, record);
}

FakeGateway::FakeGateway() {
  char name[] = "/tmp/sluice-agent-XXXXXX";
  require(mkdtemp(name) != nullptr, "no temporary directory");
  directory_ = name;
  path_ = directory_ + "/agent.sock";
  welcome.set_protocol(1);
  welcome.set_run("test");
  welcome.set_site("here");
  welcome.set_inner_steps(1);
  welcome.set_outer_rule(0);
  welcome.set_outer_learning_rate(1.0F);
  welcome.set_solo_steps_max(0);
  welcome.set_residual_share(1.0F);
  welcome.set_exchange_timeout_us(20'000'000);
  welcome.set_initial_weight(1.0F);
  listen();
}

FakeGateway::~FakeGateway() {
  shut();
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

void FakeGateway::listen() {
  listener_ = socket(AF_UNIX, SOCK_STREAM, 0);
  set_timeout(listener_);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path_.c_str(), path_.size());
  require(bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0, "bind");
  require(::listen(listener_, 16) == 0, "listen");
}

void FakeGateway::shut() {
  if (listener_ < 0) return;
  close(listener_);
  unlink(path_.c_str());
  listener_ = -1;
}

std::unique_ptr<FakeConnection> FakeGateway::accept_silently() {
  const int connected = ::accept(listener_, nullptr, nullptr);
  require(connected >= 0, "no agent came");
  set_timeout(connected);
  auto connection = std::make_unique<FakeConnection>(connected);
  const wire::AgentMessage message = connection->read();
  require(message.has_hello(), "the first message is no hello");
  hello = message.hello();
  return connection;
}

std::unique_ptr<FakeConnection> FakeGateway::accept() {
  auto connection = accept_silently();
  wire::AgentMessage answer;
  *answer.mutable_welcome() = welcome;
  connection->send(answer);
  return connection;
}

wire::AgentMessage opened(std::uint64_t round, std::uint32_t codec, float step, bool is_member, std::uint64_t epoch) {
  wire::AgentMessage message;
  message.mutable_round_opened()->set_epoch(epoch);
  message.mutable_round_opened()->set_round(round);
  message.mutable_round_opened()->set_codec(codec);
  message.mutable_round_opened()->set_step(step);
  message.mutable_round_opened()->set_weight(1.0F);
  message.mutable_round_opened()->set_members(1);
  message.mutable_round_opened()->set_is_member(is_member);
  return message;
}

wire::AgentMessage committed(std::uint64_t round, std::uint32_t counted, float scale, bool was_counted) {
  wire::AgentMessage message;
  message.mutable_round_committed()->set_epoch(1);
  message.mutable_round_committed()->set_round(round);
  message.mutable_round_committed()->set_counted(counted);
  message.mutable_round_committed()->set_scale(scale);
  message.mutable_round_committed()->set_was_counted(was_counted);
  return message;
}

wire::AgentMessage skipped(std::uint64_t round) {
  wire::AgentMessage message;
  message.mutable_round_skipped()->set_round(round);
  message.mutable_round_skipped()->set_reason("test");
  return message;
}

wire::AgentMessage catch_up(std::uint64_t to_round, bool with_state) {
  wire::AgentMessage message;
  message.mutable_catch_up()->set_to_round(to_round);
  message.mutable_catch_up()->set_with_state(with_state);
  return message;
}

wire::AgentMessage announcement(const std::string& text, bool is_solo) {
  wire::AgentMessage message;
  message.mutable_announcement()->set_text(text);
  message.mutable_announcement()->set_solo(is_solo);
  return message;
}

}  // namespace sluice::test
