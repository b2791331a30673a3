#pragma once

// Tells the other side of a connection why it is closed, and closes it, within kFarewellTimeout. On the thread of `context`.

#include <memory>
#include <utility>

#include "gateway/internal/record_stream.h"

namespace sluice::gateway::internal {

class Farewell final : public RecordStream {
 public:
  static void say(asio::io_context& context, std::unique_ptr<Channel> channel, const google::protobuf::MessageLite& message) {
    const auto stream = std::make_shared<Farewell>(context, std::move(channel));
    stream->open();
    stream->send(control_record(message));
    stream->finish(Error{ErrorCode::kLinkClosed, "close connection", "refused"});
  }

  Farewell(asio::io_context& context, std::unique_ptr<Channel> channel) : RecordStream(context, std::move(channel), false, nullptr) {}

 private:
  void on_record(ParsedRecord&&) override {}
  void on_closed(const Error&) override {}
};

}  // namespace sluice::gateway::internal
