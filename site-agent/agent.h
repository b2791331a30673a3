#pragma once

// Agent: what a training process uses to take part in a run. The C ABI (sluice_agent.h) and the Python package are thin layers over it.
//
// Threads: create, add_tensor, start, is_next_boundary, step, exchange, save_state, load_state and the destructor are called by one
// thread at a time, the "training thread"; statistics(), last_error() and announcement() by any. One thread of its own talks to the
// gateway.
// Ownership: tensor memory belongs to the caller, stays valid and in place until the agent is destroyed, and is touched only inside
// start, step, exchange. It fails softly: a step that could not exchange reports kSolo or kSkipped and training goes on.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "compression/frame.h"

namespace sluice::site_agent {

struct AgentOptions {
  std::string gateway;  // "unix:/path" or "tls:host:port"
  std::string certificate_file;  // tls: PEM
  std::string key_file;
  std::string authority_file;
  std::string listen;   // interface or address for the traffic between ranks; empty: 127.0.0.1 for unix:, this host's name for tls:
  RankId rank;
  std::uint32_t ranks = 1;
  Duration start_timeout = std::chrono::seconds(30);
  Duration group_timeout = std::chrono::minutes(10);  // for a rank that is alive but late; one that dies ends the wait at once
};

enum class StepOutcome : std::uint8_t { kInner = 0, kCommitted = 1, kLeftOut = 2, kCaughtUp = 3, kSkipped = 4, kSolo = 5 };
// "committed"; for logs and JSON.
std::string_view step_outcome_name(StepOutcome outcome);

struct StepResult {
  StepOutcome outcome = StepOutcome::kInner;
  bool tensors_written = false;
  std::uint32_t sites_counted = 0;
  std::uint64_t round = 0;        // last round that the parameters include
  Duration exchange_time{};
};

struct AgentStatistics {
  bool is_connected = false;
  bool is_solo = false;
  std::uint32_t inner_steps = 0;  // between boundaries; 0 until the gateway has said so
  std::uint64_t round = 0;
  std::uint64_t steps = 0;
  std::uint64_t steps_since_round = 0;
  std::uint64_t rounds_committed = 0;
  std::uint64_t rounds_left_out = 0;
  std::uint64_t rounds_skipped = 0;
  std::uint64_t catch_ups = 0;
  std::uint64_t solo_boundaries = 0;
  std::uint64_t deltas_withheld = 0;
  std::uint64_t reconnects = 0;
  std::uint64_t values = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  Duration exchange_time{};
  Duration encode_time{};
  Duration decode_time{};
  Duration wait_time{};
  Duration group_time{};
};

struct Announced {
  std::string text;
  std::uint64_t count = 0;  // announcements so far
};

class Agent {
 public:
  // Errors: kInvalidArgument.
  static Result<std::unique_ptr<Agent>> create(AgentOptions options);
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  // Before start. Errors: kInvalidArgument (name, type other than kFloat32, null data), kAgentOrder.
  Status add_tensor(std::string name, compression::ElementType type, std::vector<std::uint64_t> shape, void* data);
  // Takes the tensors as the state of round 0 unless load_state was called, connects, and waits at most start_timeout for the gateway,
  // the site's other ranks and a first catch-up. Succeeds also when nothing was reached: it keeps trying. Errors: kInvalidArgument,
  // kAgentOrder.
  Status start();
  // Whether the next step() is a boundary; it then is for certain.
  bool is_next_boundary();
  // After every optimizer step; `loss` NaN when unknown. Errors: kAgentOrder; otherwise the outcome says what happened.
  Result<StepResult> step(std::uint64_t tokens, double loss);
  // A boundary now; all ranks of the site call it at the same point.
  Result<StepResult> exchange();

  [[nodiscard]] AgentStatistics statistics() const;
  [[nodiscard]] std::string last_error() const;
  [[nodiscard]] Announced announcement() const;

  // Global parameters, momentum, residual and round of this rank's shard. Errors: kAgentStateFile, kAgentOrder.
  Status save_state(const std::string& path);
  Status load_state(const std::string& path);

 private:
  class Impl;
  explicit Agent(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::site_agent
