#pragma once

// AgentGroup: what the gateway knows of its site's training processes: who is connected, whether they train the same model, whether all are
// ready, which state they hold. Also the rendezvous store of their collective group. Pure bookkeeping: it sends nothing and reads no clock.
// Not thread-safe; owned by the gateway's loop.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "base/result.h"
#include "compression/sketch.h"
#include "proto/agent.pb.h"

namespace sluice::gateway {

// Names one connection of an agent; never reused while the gateway runs.
using AgentSessionId = StrongId<struct AgentSessionIdTag, std::uint64_t>;

struct AgentRank {
  AgentSessionId session;
  RankId rank;
  RoundId round;                      // last round applied
  std::vector<Digest> chunk_digests;  // of its shard, at `round`
  std::optional<wire::AgentReady> ready;
  double loss = 0.0;  // last one reported; NaN when none
  std::uint64_t tokens_total = 0;
};

// All ranks are ready for `round`: their shares of one contribution, merged.
struct SiteReady {
  RoundId round;
  std::uint64_t tokens = 0;
  std::uint64_t inner_steps = 0;
  compression::Sketch sketch;
  double sketch_weight = 0.0;
};

class AgentGroup {
 public:
  explicit AgentGroup(std::uint32_t ranks) : ranks_(ranks) {}

  // Takes in a rank, or says why not (kAgentRefused, kManifestMismatch, kWireBadMessage). A newer connection of the same rank replaces the
  // older one, whose session is returned for closing.
  Result<std::optional<AgentSessionId>> join(AgentSessionId session, const wire::AgentHello& hello);
  // Returns the rank that left; nothing when the session had not joined.
  std::optional<RankId> leave(AgentSessionId session);

  [[nodiscard]] bool is_complete() const { return members_.size() == ranks_; }
  [[nodiscard]] std::uint64_t generation() const { return generation_; }
  // Called when the group became complete: names the new collective group.
  std::uint64_t begin_generation();

  // Stores a rank's readiness; the merged one once all ranks are ready for the same round.
  Result<std::optional<SiteReady>> set_ready(AgentSessionId session, const wire::AgentReady& ready);
  void clear_ready();
  // Stores the state that a rank reports after an outer step or a catch-up.
  Status set_applied(AgentSessionId session, const wire::RoundApplied& applied);
  // The state that all ranks hold, when they hold the same round's.
  struct SiteState {
    RoundId round;
    Digest digest;
  };
  [[nodiscard]] std::optional<SiteState> state() const;
  // The state that all ranks reported last, when it is the same round's: as state(), but ranks that have left since count with what they
  // held. For the record of what a round made, not for deciding anything: a run's first rank may end before the last has applied.
  [[nodiscard]] std::optional<SiteState> reported_state() const;
  // Lowest round that any rank holds; nothing when incomplete.
  [[nodiscard]] std::optional<RoundId> round_min() const;

  [[nodiscard]] const AgentRank* find(AgentSessionId session) const;
  [[nodiscard]] std::uint32_t ranks() const { return ranks_; }
  [[nodiscard]] std::uint32_t chunks() const { return chunks_; }
  [[nodiscard]] std::uint64_t manifest_hash() const { return manifest_hash_; }
  [[nodiscard]] std::uint64_t parameters() const { return parameters_; }
  [[nodiscard]] const std::map<RankId, AgentRank>& members() const { return members_; }
  // Session of the rank whose shard holds the chunk; nothing when that rank is away.
  [[nodiscard]] std::optional<AgentSessionId> session_of(ChunkId chunk) const;

  // Rendezvous. wait_key returns the value when it is there already; otherwise the request is kept and answered by set_key.
  struct KeyAnswer {
    AgentSessionId session;
    std::uint64_t request_id = 0;
    std::string value;
  };
  Result<std::vector<KeyAnswer>> set_key(const std::string& key, const std::string& value);
  std::optional<std::string> wait_key(AgentSessionId session, std::uint64_t request_id, const std::string& key);

 private:
  AgentRank* find_mutable(AgentSessionId session);
  // The one state of `ranks`; nothing when one is missing or holds another round.
  [[nodiscard]] std::optional<SiteState> common_state(const std::map<RankId, AgentRank>& ranks) const;

  std::uint32_t ranks_;
  std::uint64_t generation_ = 0;
  std::map<RankId, AgentRank> members_;
  std::map<RankId, AgentRank> departed_;  // as they were when they left, until they are back
  // The model: fixed by the first rank that joins, kept until all ranks have left.
  std::uint64_t manifest_hash_ = 0;
  std::uint32_t chunks_ = 0;
  std::uint64_t parameters_ = 0;
  std::map<std::string, std::string> keys_;
  struct Waiting {
    AgentSessionId session;
    std::uint64_t request_id = 0;
  };
  std::multimap<std::string, Waiting> waiting_;
};

}  // namespace sluice::gateway
