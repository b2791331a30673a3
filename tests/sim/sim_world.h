#pragma once

// N sites, their links, the store and the faults, in virtual time. The same configuration gives the same run, event for event.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sync/round_machine.h"
#include "tests/sim/sim_checker.h"
#include "tests/sim/sim_config.h"
#include "tests/sim/sim_network.h"
#include "tests/sim/sim_queue.h"
#include "tests/sim/sim_random.h"
#include "tests/sim/sim_site.h"

namespace sluice::sim {

class World {
 public:
  explicit World(SimConfig config);

  // Random faults for config.faulty_time, then a healed world for two round times; checks everything. Nothing = no violation.
  std::optional<std::string> run();

  // For scenarios. Times are counted from the start.
  void start();                     // every site, agents included
  void run_for(Duration duration);  // stops early at a violation
  bool run_until(const std::function<bool()>& condition, Duration limit);
  void heal();  // everything up, nothing blocked, nobody slow

  [[nodiscard]] const SimConfig& config() const { return config_; }
  [[nodiscard]] sync::RoundConfig round_config(SiteId self) const;
  EventQueue& queue() { return queue_; }
  Random& random() { return random_; }
  Network& network() { return *network_; }
  Checker& checker() { return checker_; }
  SimSite& site(std::size_t index) { return *sites_[index]; }
  [[nodiscard]] std::size_t site_count() const { return config_.sites; }
  [[nodiscard]] std::optional<SiteId> store_site() const;
  [[nodiscard]] Node store_node() const { return config_.sites; }
  [[nodiscard]] const sync::RoundRecord& register_value() const { return register_value_; }
  void draw_plan(sync::RoundRecord& opened) const;
  void set_register(const sync::RoundRecord& before, const sync::RoundRecord& after);
  void set_register_at_start(const sync::RoundRecord& record);
  [[nodiscard]] std::uint64_t trace_hash() const { return trace_hash_; }
  [[nodiscard]] std::uint64_t machine_events() const { return machine_events_; }
  // Sites whose agents hold the last committed round.
  [[nodiscard]] std::size_t sites_in_step() const;

  // Called by the sites for everything that goes into and comes out of their machines.
  void note_event(SiteId site, const sync::Event& event);
  void note_action(SiteId site, const sync::Action& action);
  void note(std::string_view text);

 private:
  void mix(std::uint64_t value);
  void on_store_message(Node from, const Message& message);
  void schedule_faults();
  void strike_later(double rate, const std::function<void()>& strike);
  void crash_gateway(std::size_t index);
  void crash_agents(std::size_t index);
  void partition();
  void run_one_death();

  SimConfig config_;
  EventQueue queue_;
  Random random_;
  Checker checker_;
  std::unique_ptr<Network> network_;
  std::vector<std::unique_ptr<SimSite>> sites_;
  std::unique_ptr<sync::RegisterStore> outside_store_;
  sync::RoundRecord register_value_;
  TimePoint faults_end_{};
  std::uint64_t trace_hash_ = 0;
  std::uint64_t machine_events_ = 0;
};

// One seed from start to end.
struct RunResult {
  std::uint64_t seed = 0;
  std::optional<std::string> violation;
  std::uint64_t trace_hash = 0;
  std::uint64_t machine_events = 0;
  std::uint64_t commits = 0;
  std::uint64_t aborts = 0;
  std::uint64_t partial_commits = 0;
  std::uint64_t direct_commits = 0;
};
RunResult run_config(const SimConfig& config);
RunResult run_seed(std::uint64_t seed, ShellMutant mutant = ShellMutant::kNone, std::ostream* trace = nullptr);

}  // namespace sluice::sim
