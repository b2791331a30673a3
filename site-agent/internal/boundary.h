#pragma once

// Boundary: what happens in the step at which a site exchanges: the ranks agree on where they stand, reduce their parameters, contribute,
// wait for the round's outcome, agree again, and take the new parameters. Blocking diloco mode. Training thread only, and only while it
// attends the inbox; every wait has a deadline.
//
// All ranks decide alike because each decision is made from one vector that is reduced (min) over the ranks.

#include <optional>
#include <string>

#include "compression/sketch.h"
#include "site-agent/internal/group_former.h"
#include "site-agent/internal/inbox.h"
#include "site-agent/internal/session.h"
#include "site-agent/internal/tensor_table.h"

namespace sluice::site_agent {

// Training since the parameters were last those of the run.
struct Progress {
  std::uint64_t steps = 0;
  std::uint64_t tokens = 0;
  double loss = 0.0;
};

class Boundary {
 public:
  struct Parts {
    const sync::Manifest* manifest = nullptr;
    TensorTable* tensors = nullptr;
    Session* session = nullptr;
    GatewayLink* link = nullptr;
    Inbox* inbox = nullptr;
    GroupFormer* former = nullptr;  // null with one rank
    AgentStatus* status = nullptr;
    RankId rank;
    std::uint32_t ranks = 1;
    Duration group_timeout{};
    std::string machine;  // name of what the rank runs on
  };
  explicit Boundary(Parts parts);

  // First meeting: waits until the deadline for gateway, group and first catch-up, then gives all ranks the site's parameters.
  void begin(TimePoint deadline);
  // One boundary. On return the tensors hold the run's parameters (progress is reset) or what they held before.
  StepResult run(Progress& progress);

 private:
  // Where all ranks stand, after the reduction.
  struct Agreement {
    bool is_valid = false;  // the ranks could be asked
    bool can_exchange = false;
    bool can_pause = false;  // gateway there, but no quorum
    bool is_same_round = false;
    bool is_any_stale = false;
  };
  Agreement agree(bool is_beginning, std::uint64_t steps, Duration timeout);
  bool agree_all(bool condition);
  bool have_group();
  void regroup_when_lost();
  [[nodiscard]] std::int64_t probe_window_us() const;
  bool probe(Duration window);
  template <typename Visit>
  bool for_each_layer(Visit&& visit);
  bool refresh_tensors();
  bool gather_tensors();

  StepResult exchange(Progress& progress, TimePoint deadline, bool leaves_when_solo);
  bool reduce_parameters();
  bool check_finite();
  void send_ready(const Progress& progress);
  void wait_for_outcome(std::uint64_t round, TimePoint deadline, bool leaves_when_solo);
  void contribute(TimePoint deadline);
  StepResult conclude(Progress& progress, std::uint64_t round_before, std::uint64_t skips_before);

  void take_delta(ChunkId chunk, std::uint64_t offset, std::span<float> out) const;
  [[nodiscard]] compression::Sketch make_sketch(float weight) const;
  [[nodiscard]] float sketch_weight() const;
  [[nodiscard]] TimePoint exchange_deadline() const;
  void handle_waiting();
  bool handle_next(TimePoint deadline);
  StepResult go_solo(const std::string& why);
  void end_solo();
  StepResult make_result(StepOutcome outcome, bool tensors_written) const;

  Parts parts_;
  std::unique_ptr<sync::Collectives> group_;
  std::optional<TimePoint> broken_since_;  // no group, and it was not for lack of one being formed
  bool has_probed_ = false;                // of the site, once and for all
  int probe_failures_ = 0;
  std::vector<float> mean_;            // of the ranks' parameters, for the shard; several ranks only
  std::vector<float> chunk_;           // one chunk of values
  std::optional<EarlyWriter> writer_;  // one rank only
  std::optional<float> last_weight_;
};

}  // namespace sluice::site_agent
