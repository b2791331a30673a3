#pragma once

// One site: its gateway process (the real RoundMachine with a shell that is all memory), its agents, and the disk that outlives both.
// Gateway and agents die and start apart from one another. Messages between them take a moment and are lost with either.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sync/round_machine.h"
#include "tests/sim/sim_network.h"

namespace sluice::sim {

class World;

// A committed round with its update, as the spool keeps it.
struct SpoolEntry {
  sync::RoundRecord record;
  std::vector<std::int64_t> sums;
};

struct SimDisk {
  sync::RoundRecord journal;                          // last round finished here
  std::optional<sync::RoundRecord> journal_unsynced;  // newer, perhaps lost in a crash
  sync::RoundRecord register_synced;                  // of the site that holds the store
  std::optional<sync::RoundRecord> register_unsynced;
  std::map<RoundId, SpoolEntry> spool;                // rounds finished here
  std::map<std::pair<sync::RoundKey, std::uint32_t>, std::map<ChunkId, std::int64_t>> updates;  // by key and set: not yet committed ones
  RoundId checkpoint_round;
  Digest checkpoint_digest;
};

// The training processes of a site. A chunk is one integer; the state is the digest of the chain of updates.
struct SimAgents {
  enum class Phase { kDead, kComputing, kReady, kContributing, kApplying };
  Phase phase = Phase::kDead;
  std::uint64_t life = 0;    // counts starts
  std::uint64_t task = 0;    // counts changes of what they are at; an answer to an older one is dropped
  RoundId round;
  Digest digest;
  std::vector<std::int64_t> delta;
  std::optional<std::pair<sync::RoundKey, std::vector<std::int64_t>>> contribution;  // not yet decided
};

class SimSite {
 public:
  SimSite(World& world, SiteId id);

  void start_gateway();
  void stop_gateway();
  void start_agents();
  void stop_agents();
  [[nodiscard]] bool is_gateway_up() const { return machine_ != nullptr; }
  [[nodiscard]] bool has_agents() const { return agents_.phase != SimAgents::Phase::kDead; }
  [[nodiscard]] const SimAgents& agents() const { return agents_; }
  [[nodiscard]] const sync::RoundMachine* machine() const { return machine_.get(); }
  [[nodiscard]] const std::vector<std::string>& announcements() const { return announcements_; }
  void corrupt_next_update() { corrupts_next_ = true; }
  void slow_down(int factor);

  // From the network.
  void on_message(Node from, const Message& message);
  void on_up(Node peer);
  void on_down(Node peer, const std::string& reason);

 private:
  using Values = std::vector<std::int64_t>;
  struct Fetch { sync::RoundRecord record; std::vector<SiteId> from; std::size_t next = 0; std::optional<SpoolEntry> own; };
  struct CatchUp {
    RoundId round;
    std::vector<SiteId> from;
    std::size_t turn = 0;
    bool is_replaying = true;
    std::vector<SpoolEntry> updates;
  };

  // ---- sim_site.cc: shell of the machine ----
  void feed(const sync::Event& event);
  void arm_timer();
  void perform(const sync::Action& action);
  template <typename What>
  void in_gateway(Duration delay, What what);
  void send(Node to, Message message);
  void send_to_all(const Message& message);
  void compare_and_set(sync::CompareAndSet action);
  void finish_cas(sync::CompareAndSet action, bool is_heard);  // by value: it forgets cas_
  void route_own(const sync::RoundRecord& record, ChunkId chunk, SiteSet to);
  void combine(const sync::CombineChunk& action);
  void keep(const ContributionFrame& frame);
  void store_update(const UpdateFrame& frame);
  void finish(const sync::FinishRound& action);
  void prune();
  // ---- sim_fetch.cc: updates and state from other sites ----
  [[nodiscard]] std::optional<SpoolEntry> find_update(const sync::RoundRecord& record) const;
  void begin_fetch(const sync::FetchUpdate& action);
  void ask_for_update();
  void on_fetch_round(Node from, const FetchRoundMessage& message);
  void on_fetch_round_reply(const FetchRoundReply& reply);
  void on_fetch_state(Node from);
  void on_fetch_state_reply(const FetchStateReply& reply);
  void ask_to_catch_up();
  // ---- sim_agents.cc ----
  template <typename What>
  void in_agents(Duration delay, What what);
  void attach();
  void compute();
  void become_ready();
  void tell_ready();
  void tell_gone();
  void contribute(const sync::RoundRecord& record, bool is_member);
  void apply(const std::vector<SpoolEntry>& updates);
  void take_back(const sync::RoundKey& key);
  void take_state(RoundId round, Digest digest);
  void tell_state();

  World& world_;
  SiteId id_;
  SimDisk disk_;
  SimAgents agents_;
  std::vector<std::string> announcements_;
  bool corrupts_next_ = false;
  int slowness_ = 1;

  // Of the gateway's present life.
  std::unique_ptr<sync::RoundMachine> machine_;
  std::uint64_t life_ = 0;
  std::uint64_t timer_ = 0;
  bool is_attached_ = false;
  bool is_gone_due_ = false;  // agents have died and the machine has not heard of it
  std::unique_ptr<sync::RegisterStore> store_;
  std::optional<sync::CompareAndSet> cas_;  // being synced
  std::map<std::pair<sync::RoundKey, ChunkId>, std::map<SiteId, std::int64_t>> kept_;
  std::map<std::pair<sync::RoundKey, std::uint32_t>, std::map<ChunkId, std::int64_t>> last_updates_;  // whatever set (a mutant's)
  std::optional<Fetch> fetch_;
  std::optional<CatchUp> catch_up_;
  std::uint64_t catch_up_turn_ = 0;
};

}  // namespace sluice::sim
