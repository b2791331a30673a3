#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "site-agent/agent.h"
#include "site-agent/sluice_agent.h"

// The C ABI: converts arguments and results, keeps the text of errors for the caller, and lets nothing throw across the border.

using namespace std::chrono_literals;
using sluice::site_agent::Agent;

struct sluice_agent {
  std::unique_ptr<Agent> agent;
  mutable std::mutex mutex;  // guards abi_error
  std::string abi_error;     // of the last call that failed outright
};

namespace {

thread_local std::string create_error;
thread_local std::string handed_out_error;
thread_local std::string handed_out_announcement;

std::string text_or_empty(const char* text) { return text == nullptr ? std::string() : std::string(text); }

std::uint64_t to_us(sluice::Duration duration) {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(duration).count());
}

sluice::Duration from_us(std::uint64_t microseconds, sluice::Duration fallback) {
  constexpr std::uint64_t kDayUs = std::uint64_t{86'400} * 1'000'000;
  if (microseconds == 0) return fallback;
  return std::chrono::microseconds(static_cast<std::int64_t>(std::min(microseconds, kDayUs)));
}

int failed(sluice_agent& handle, const sluice::Error& error) {
  const std::lock_guard lock(handle.mutex);
  handle.abi_error = error.to_string();
  return static_cast<int>(error.code);
}

int done(sluice_agent& handle, const sluice::Status& status) { return status ? SLUICE_OK : failed(handle, status.error()); }

// Writes as much of the struct as the caller's version of it has.
template <typename Struct>
void hand_out(Struct value, Struct* to) {
  const std::uint32_t size = std::min<std::uint32_t>(to->struct_bytes, sizeof(Struct));
  value.struct_bytes = to->struct_bytes;
  std::memcpy(to, &value, size);
}

void hand_out_result(const sluice::site_agent::StepResult& result, sluice_agent_step_result* to) {
  if (to == nullptr) return;
  sluice_agent_step_result value{};
  value.outcome = static_cast<std::uint32_t>(result.outcome);
  value.tensors_written = result.tensors_written ? 1 : 0;
  value.sites_counted = result.sites_counted;
  value.round = result.round;
  value.exchange_us = to_us(result.exchange_time);
  hand_out(value, to);
}

int finish_step(sluice_agent& handle, const sluice::Result<sluice::site_agent::StepResult>& result, sluice_agent_step_result* to) {
  if (!result) return failed(handle, result.error());
  hand_out_result(*result, to);
  return SLUICE_OK;
}

}  // namespace

extern "C" {

uint32_t sluice_agent_abi_version(void) { return SLUICE_AGENT_ABI_VERSION; }

sluice_agent* sluice_agent_create(const sluice_agent_options* options) {
  if (options == nullptr || options->struct_bytes < sizeof(sluice_agent_options)) {
    create_error = "create agent: the options are missing or of an older version";
    return nullptr;
  }
  sluice::site_agent::AgentOptions converted;
  converted.gateway = text_or_empty(options->gateway);
  converted.certificate_file = text_or_empty(options->certificate_file);
  converted.key_file = text_or_empty(options->key_file);
  converted.authority_file = text_or_empty(options->authority_file);
  converted.listen = text_or_empty(options->listen);
  converted.rank = sluice::RankId(options->rank);
  converted.ranks = options->ranks;
  converted.start_timeout = from_us(options->start_timeout_us, converted.start_timeout);
  converted.group_timeout = from_us(options->group_timeout_us, converted.group_timeout);
  auto agent = Agent::create(std::move(converted));
  if (!agent) {
    create_error = agent.error().to_string();
    return nullptr;
  }
  auto* handle = new sluice_agent;
  handle->agent = std::move(*agent);
  return handle;
}

int sluice_agent_add_tensor(sluice_agent* agent, const char* name, uint32_t type, const uint64_t* shape, uint32_t dimensions, void* data) {
  std::vector<std::uint64_t> sizes;
  if (shape != nullptr) sizes.assign(shape, shape + dimensions);
  const auto element = static_cast<sluice::compression::ElementType>(std::min(type, 255U));
  return done(*agent, agent->agent->add_tensor(text_or_empty(name), element, std::move(sizes), data));
}

int sluice_agent_start(sluice_agent* agent) { return done(*agent, agent->agent->start()); }

int sluice_agent_next_is_boundary(sluice_agent* agent) { return agent->agent->is_next_boundary() ? 1 : 0; }

int sluice_agent_step(sluice_agent* agent, uint64_t tokens, double loss, sluice_agent_step_result* result) {
  return finish_step(*agent, agent->agent->step(tokens, loss), result);
}

int sluice_agent_exchange(sluice_agent* agent, sluice_agent_step_result* result) {
  return finish_step(*agent, agent->agent->exchange(), result);
}

int sluice_agent_stats(sluice_agent* agent, sluice_agent_statistics* statistics) {
  const sluice::site_agent::AgentStatistics from = agent->agent->statistics();
  sluice_agent_statistics value{};
  value.is_connected = from.is_connected ? 1 : 0;
  value.is_solo = from.is_solo ? 1 : 0;
  value.inner_steps = from.inner_steps;
  value.round = from.round;
  value.steps = from.steps;
  value.steps_since_round = from.steps_since_round;
  value.rounds_committed = from.rounds_committed;
  value.rounds_left_out = from.rounds_left_out;
  value.rounds_skipped = from.rounds_skipped;
  value.catch_ups = from.catch_ups;
  value.solo_boundaries = from.solo_boundaries;
  value.deltas_withheld = from.deltas_withheld;
  value.reconnects = from.reconnects;
  value.values = from.values;
  value.bytes_sent = from.bytes_sent;
  value.bytes_received = from.bytes_received;
  value.exchange_us = to_us(from.exchange_time);
  value.encode_us = to_us(from.encode_time);
  value.decode_us = to_us(from.decode_time);
  value.wait_us = to_us(from.wait_time);
  value.group_us = to_us(from.group_time);
  hand_out(value, statistics);
  return SLUICE_OK;
}

const char* sluice_agent_last_error(sluice_agent* agent) {
  if (agent == nullptr) return create_error.c_str();
  {
    const std::lock_guard lock(agent->mutex);
    handed_out_error = agent->abi_error;
  }
  if (handed_out_error.empty()) handed_out_error = agent->agent->last_error();
  return handed_out_error.c_str();
}

const char* sluice_agent_announcement(sluice_agent* agent, uint64_t* count) {
  const sluice::site_agent::Announced announced = agent->agent->announcement();
  if (count != nullptr) *count = announced.count;
  handed_out_announcement = announced.text;
  return handed_out_announcement.c_str();
}

int sluice_agent_save_state(sluice_agent* agent, const char* path) { return done(*agent, agent->agent->save_state(text_or_empty(path))); }

int sluice_agent_load_state(sluice_agent* agent, const char* path) { return done(*agent, agent->agent->load_state(text_or_empty(path))); }

void sluice_agent_destroy(sluice_agent* agent) { delete agent; }

}  // extern "C"
