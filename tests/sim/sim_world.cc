#include "tests/sim/sim_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "compression/frame.h"
#include "tests/sim/sim_text.h"

namespace sluice::sim {

using std::chrono::milliseconds;

World::World(SimConfig config) : config_(config), random_(config.seed), checker_(config.quorum) {
  Network::Listener listener;
  listener.on_message = [this](Node to, Node from, const Message& message) {
    if (to == store_node()) return on_store_message(from, message);
    sites_[to]->on_message(from, message);
  };
  listener.on_up = [this](Node node, Node peer) {
    if (node == store_node()) return network_->send(node, peer, StoreRecordMessage{outside_store_->current()});
    sites_[node]->on_up(peer);
  };
  listener.on_down = [this](Node node, Node peer, const std::string& reason) {
    if (node != store_node()) sites_[node]->on_down(peer, reason);
  };
  network_ = std::make_unique<Network>(queue_, random_, config_.sites + (config_.has_outside_store ? 1 : 0), config_.network, listener);
  for (std::size_t index = 0; index < config_.sites; ++index) {
    sites_.push_back(std::make_unique<SimSite>(*this, SiteId(static_cast<std::uint16_t>(index))));
  }
}

std::optional<SiteId> World::store_site() const {
  if (config_.has_outside_store) return std::nullopt;
  return SiteId(0);
}

sync::RoundConfig World::round_config(SiteId self) const {
  sync::RoundConfig round;
  round.self = self;
  round.sites = SiteSet{(1U << config_.sites) - 1U};
  round.quorum = config_.mutant == ShellMutant::kQuorumOfOne ? std::uint16_t{1} : config_.quorum;
  round.store_site = store_site();
  round.open_grace = config_.open_grace;
  round.deadline = config_.deadline;
  round.commit_deadline = config_.commit_deadline;
  round.rate.codec = static_cast<std::uint8_t>(compression::Codec::kGridDense);
  return round;
}

// The links are not measured here; which kind of plan a round has is drawn instead, alike whoever opens it.
void World::draw_plan(sync::RoundRecord& opened) const {
  if (opened.phase != sync::Phase::kOpen) return;
  Random random(config_.seed * 0x9E3779B97F4A7C15ULL + opened.epoch.value * 1'000'003 + opened.round.value);
  opened.plan_kind = random.chance(config_.direct_share) ? topology::PlanKind::kDirect : topology::PlanKind::kSharded;
}

void World::start() {
  if (config_.has_outside_store) {
    outside_store_ = std::make_unique<sync::RegisterStore>(sync::RoundRecord{});
    register_value_ = outside_store_->current();
    network_->start(store_node());
  }
  for (std::size_t index = 0; index < config_.sites; ++index) {
    queue_.after(random_.between(Duration(0), milliseconds(50)), [this, index] { sites_[index]->start_gateway(); });
    queue_.after(random_.between(Duration(0), milliseconds(100)), [this, index] { sites_[index]->start_agents(); });
  }
}

void World::run_for(Duration duration) {
  run_until([] { return false; }, duration);
}

bool World::run_until(const std::function<bool()>& condition, Duration limit) {
  const TimePoint end = queue_.now() + limit;
  bool reached = false;
  queue_.at(end, [] {});
  while (!queue_.empty() && queue_.next_time() <= end && !checker_.violation()) {
    queue_.run_one();
    reached = condition();
    if (reached || queue_.now() >= end) break;
  }
  return reached;
}

void World::on_store_message(Node from, const Message& message) {
  const auto* cas = std::get_if<StoreCasMessage>(&message);
  if (cas == nullptr) return;
  const sync::RoundRecord before = outside_store_->current();
  const auto outcome = outside_store_->compare_and_set(cas->expected_version, cas->next);
  if (!outcome.accepted) return network_->send(store_node(), from, StoreRecordMessage{before});
  set_register(before, outside_store_->current());
  for (std::size_t index = 0; index < config_.sites; ++index)
    network_->send(store_node(), index, StoreRecordMessage{outside_store_->current()});
}

void World::set_register(const sync::RoundRecord& before, const sync::RoundRecord& after) {
  register_value_ = after;
  note(text_of(after));
  checker_.saw_register(before, after);
}

void World::set_register_at_start(const sync::RoundRecord& record) {
  register_value_ = record;
  note("store starts: " + text_of(record));
  checker_.saw_store_start(record);
}

// ---- trace ----

void World::mix(std::uint64_t value) { trace_hash_ = (trace_hash_ ^ value) * 0x9E3779B97F4A7C15ULL + (trace_hash_ >> 29); }

void World::note(std::string_view text) {
  if (config_.trace == nullptr) return;
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(queue_.now().time_since_epoch()).count();
  *config_.trace << fmt::format("{:>10.3f} ms  {}\n", static_cast<double>(micros) / 1000.0, text);
}

void World::note_event(SiteId site, const sync::Event& event) {
  ++machine_events_;
  mix(static_cast<std::uint64_t>(queue_.now().time_since_epoch().count()));
  mix(site.value * 64ULL + event.index());
  if (config_.trace != nullptr) note(fmt::format("site {} <- {}", site, text_of(event)));
}

void World::note_action(SiteId site, const sync::Action& action) {
  mix(site.value * 64ULL + 32 + action.index());
  if (config_.trace != nullptr) note(fmt::format("site {} -> {}", site, text_of(action)));
}

// ---- faults ----

void World::strike_later(double rate, const std::function<void()>& strike) {
  if (rate <= 0.0) return;
  const auto mean = Duration(static_cast<Duration::rep>(1e9 / rate));
  queue_.after(random_.between(Duration(0), 2 * mean), [this, rate, strike] {
    if (queue_.now() >= faults_end_) return;
    strike();
    strike_later(rate, strike);
  });
}

void World::crash_gateway(std::size_t index) {
  if (!sites_[index]->is_gateway_up()) return;
  note(fmt::format("FAULT: gateway of site {} dies", index));
  sites_[index]->stop_gateway();
  queue_.after(random_.between(milliseconds(1), milliseconds(900)), [this, index] { sites_[index]->start_gateway(); });
}

void World::crash_agents(std::size_t index) {
  if (!sites_[index]->has_agents()) return;
  note(fmt::format("FAULT: agents of site {} die", index));
  sites_[index]->stop_agents();
  queue_.after(random_.between(milliseconds(1), milliseconds(900)), [this, index] { sites_[index]->start_agents(); });
}

// Some pairs, in one or both directions, for a while: a site alone, two halves, or any directed pair.
void World::partition() {
  const std::size_t nodes = config_.sites + (config_.has_outside_store ? 1 : 0);
  const std::uint64_t kind = random_.below(3);
  const std::uint64_t first = random_.below(nodes);
  const std::uint64_t second = (first + 1 + random_.below(nodes - 1)) % nodes;
  const std::uint64_t half = random_.next();
  const Duration duration = random_.between(milliseconds(20), milliseconds(1500));
  note(fmt::format("FAULT: partition of kind {} at {} and {}, {} ms", kind, first, second, duration / milliseconds(1)));
  for (Node from = 0; from < nodes; ++from) {
    for (Node to = 0; to < nodes; ++to) {
      const bool is_hit = kind == 0   ? from == first && to == second
                          : kind == 1 ? from == first || to == first
                                      : ((half >> from) & 1U) != ((half >> to) & 1U);
      if (from == to || !is_hit) continue;
      network_->block(from, to);
      queue_.after(duration, [this, from, to] { network_->unblock(from, to); });
    }
  }
}

void World::schedule_faults() {
  const FaultRates& rates = config_.faults;
  faults_end_ = queue_.now() + config_.faulty_time;
  const auto any = [this] { return static_cast<std::size_t>(random_.below(config_.sites)); };
  strike_later(rates.gateway_crash, [this, any] { crash_gateway(any()); });
  strike_later(rates.agents_crash, [this, any] { crash_agents(any()); });
  strike_later(rates.site_crash, [this, any] {
    const std::size_t index = any();
    crash_gateway(index);
    crash_agents(index);
  });
  strike_later(rates.cut, [this] {
    const std::size_t nodes = config_.sites + (config_.has_outside_store ? 1 : 0);
    const Node first = random_.below(nodes);
    const Node second = (first + 1 + random_.below(nodes - 1)) % nodes;
    note(fmt::format("FAULT: link {}-{} cut", first, second));
    network_->cut(first, second);
  });
  strike_later(rates.partition, [this] { partition(); });
  strike_later(rates.slow, [this, any] {
    const std::size_t index = any();
    const int factor = static_cast<int>(random_.between(2, 30));
    note(fmt::format("FAULT: site {} {} times slower", index, factor));
    network_->slow_down(index, factor);
    sites_[index]->slow_down(factor);
    queue_.after(random_.between(milliseconds(100), milliseconds(1500)), [this, index] {
      network_->slow_down(index, 1);
      sites_[index]->slow_down(1);
    });
  });
  strike_later(rates.corrupt, [this, any] { sites_[any()]->corrupt_next_update(); });
}

void World::heal() {
  const std::size_t nodes = config_.sites + (config_.has_outside_store ? 1 : 0);
  for (Node from = 0; from < nodes; ++from) {
    for (Node to = 0; to < nodes; ++to) {
      if (from != to) network_->unblock(from, to);
    }
  }
  for (std::size_t index = 0; index < config_.sites; ++index) {
    network_->slow_down(index, 1);
    sites_[index]->slow_down(1);
    if (!sites_[index]->is_gateway_up()) sites_[index]->start_gateway();
    if (!sites_[index]->has_agents()) sites_[index]->start_agents();
  }
}

// ---- a whole run ----

std::size_t World::sites_in_step() const {
  return static_cast<std::size_t>(std::count_if(sites_.begin(), sites_.end(), [this](const std::unique_ptr<SimSite>& site) {
    return site->has_agents() && site->agents().round == register_value_.committed_round;
  }));
}

// A dead site costs the others at most one deadline and one more attempt, and no round.
void World::run_one_death() {
  run_for(milliseconds(900) + random_.between(milliseconds(0), milliseconds(1500)));
  run_until([&] { return register_value_.is_running(); }, round_time(config_));
  // All begin to compute within some delays of one another: with this grace nobody is late.
  const bool is_grace_enough = config_.compute_max - config_.compute_min + 16 * config_.network.delay_max < config_.open_grace;
  if (is_grace_enough && register_value_.is_running() && std::cmp_less(register_value_.members.size(), config_.sites)) {
    return checker_.fail(fmt::format("I6: a healthy site was not waited for: {}", text_of(register_value_)));
  }
  run_for(random_.between(milliseconds(0), milliseconds(60)));
  const std::size_t victim = random_.between(config_.has_outside_store ? 0 : 1, config_.sites - 1);
  note(fmt::format("FAULT: site {} dies and stays away", victim));
  const RoundId before = register_value_.committed_round;
  const std::uint64_t aborts = checker_.aborts();
  SiteSet survivors = register_value_.members;
  survivors.erase(SiteId(static_cast<std::uint16_t>(victim)));
  // A round of exactly a quorum, one of which dies, cannot be saved; the next one can.
  const bool is_lost = register_value_.is_running() && survivors.size() < config_.quorum;
  sites_[victim]->stop_gateway();
  sites_[victim]->stop_agents();
  const Duration limit =
      (is_lost ? 2 : 1) *
      (config_.compute_max + config_.open_grace + config_.deadline + 2 * config_.commit_deadline + config_.network.heartbeat_timeout +
       milliseconds(500) * static_cast<int>(config_.sites) * (config_.has_outside_store ? 1 : 0) + 16 * config_.network.delay_max);
  const bool is_going_on = run_until([&] { return register_value_.committed_round > before; }, limit);
  if (checker_.violation()) return;
  if (!is_going_on) checker_.fail(fmt::format("I6: a dead site stopped the others: {}", text_of(register_value_)));
  if (!is_lost && checker_.aborts() != aborts) checker_.fail(fmt::format("I6: a dead site cost a round: {}", text_of(register_value_)));
}

std::optional<std::string> World::run() {
  start();
  if (config_.is_one_death) {
    run_one_death();
    if (checker_.violation()) return checker_.violation();
  } else {
    schedule_faults();
    run_for(config_.faulty_time + milliseconds(1000));  // crashed processes come back within the second
  }
  heal();
  // The links come up again, one catch-up may start; from then on two round times.
  run_for(config_.network.heartbeat_timeout + config_.network.reconnect_max + milliseconds(600));
  const RoundId before = register_value_.committed_round;
  const bool in_step =
      run_until([&] { return register_value_.committed_round > before && sites_in_step() == config_.sites; }, 2 * round_time(config_));
  checker_.check_outcomes();
  if (!in_step && !checker_.violation()) {
    std::string where;
    for (const auto& site : sites_) {
      where += fmt::format("; agents at {}: {}", site->agents().round, site->machine() ? site->machine()->describe() : "no gateway");
    }
    checker_.fail(fmt::format("I6: two round times after the last fault not all sites are in step: committed {}, was {}{}",
                              register_value_.committed_round, before, where));
  }
  if (checker_.violation()) note("VIOLATION " + *checker_.violation());
  return checker_.violation();
}

RunResult run_config(const SimConfig& config) {
  World world(config);
  RunResult result;
  result.seed = config.seed;
  result.violation = world.run();
  result.trace_hash = world.trace_hash();
  result.machine_events = world.machine_events();
  result.commits = world.checker().last_committed().value;
  result.aborts = world.checker().aborts();
  result.partial_commits = world.checker().partial_commits();
  result.direct_commits = world.checker().direct_commits();
  return result;
}

RunResult run_seed(std::uint64_t seed, ShellMutant mutant, std::ostream* trace) {
  SimConfig config = draw_config(seed);
  config.mutant = mutant;
  config.trace = trace;
  return run_config(config);
}

}  // namespace sluice::sim
