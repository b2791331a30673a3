// Goal: the situations that operators will meet, one at a time: a fault-free round takes no timer, slow, silent, leaving, dying,
// diverging and returning sites, a store that is lost. Method: worlds of the simulator without chance faults; what happens is staged, the
// outcome is looked at, and the simulator's invariants hold throughout. Two machines are also driven by hand where an exact order matters.
#include "sync/round_machine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "compression/frame.h"
#include "compression/sketch.h"
#include "tests/sim/sim_world.h"

namespace sluice::sync {
namespace {

using sim::SimConfig;
using sim::World;
using std::chrono::milliseconds;
using std::chrono::seconds;

SimConfig calm(std::size_t sites) {
  SimConfig config;
  config.seed = 7;
  config.sites = sites;
  config.quorum = static_cast<std::uint16_t>(sites / 2 + 1);
  config.open_grace = seconds(30);
  config.deadline = seconds(2);
  config.commit_deadline = seconds(1);
  return config;
}

bool has_announced(World& world, std::size_t site, const std::string& part) {
  const auto& said = world.site(site).announcements();
  return std::any_of(said.begin(), said.end(), [&](const std::string& text) { return text.find(part) != std::string::npos; });
}

bool reaches_round(World& world, std::uint64_t round, Duration limit) {
  return world.run_until(
      [&] { return world.register_value().committed_round.value >= round && world.sites_in_step() == world.site_count(); }, limit);
}

// Site 2 dies in a running round, which the others commit all the same.
void commit_without_site_2(World& world) {
  world.start();
  ASSERT_TRUE(reaches_round(world, 2, seconds(20)));
  ASSERT_TRUE(world.run_until([&] { return world.register_value().phase == Phase::kOpen; }, seconds(5)));
  const RoundId running = world.register_value().round;
  world.site(2).stop_gateway();
  world.site(2).stop_agents();
  EXPECT_TRUE(world.run_until([&] { return world.register_value().committed_round >= running; }, seconds(3)));  // deadline 2 s + 1 s
  EXPECT_EQ(world.checker().aborts(), 0U);
}

TEST(RoundMachine, FaultFreeRoundsNeverWaitForATimer) {
  for (const bool outside : {false, true}) {
    SimConfig config = calm(3);
    config.has_outside_store = outside;
    config.deadline = seconds(600);
    config.commit_deadline = seconds(600);
    config.open_grace = seconds(600);
    World world(config);
    world.start();
    // Round trips and inner steps only: well below any of the timers.
    EXPECT_TRUE(reaches_round(world, 10, seconds(20))) << world.site(0).machine()->describe();
    EXPECT_EQ(world.checker().aborts(), 0U);
    EXPECT_EQ(world.checker().partial_commits(), 0U);
    EXPECT_EQ(world.checker().violation(), std::nullopt);
  }
}

TEST(RoundMachine, ASiteThatComputesLongIsWaitedFor) {
  World world(calm(3));
  world.start();
  ASSERT_TRUE(reaches_round(world, 2, seconds(20)));
  world.site(2).slow_down(20);
  ASSERT_TRUE(reaches_round(world, 4, seconds(30)));
  EXPECT_EQ(world.register_value().members.size(), 3);
  EXPECT_EQ(world.checker().partial_commits(), 0U);
}

TEST(RoundMachine, AfterTheGraceTheOthersOpenWithoutTheSlowOne) {
  SimConfig config = calm(3);
  config.open_grace = milliseconds(100);
  World world(config);
  world.start();
  ASSERT_TRUE(reaches_round(world, 1, seconds(20)));
  world.site(2).slow_down(60);
  ASSERT_TRUE(world.run_until([&] { return world.register_value().is_running() && world.register_value().members == SiteSet{0b011}; },
                              seconds(20)));
  // It takes the update all the same.
  EXPECT_TRUE(world.run_until([&] { return world.site(2).agents().round.value >= 3; }, seconds(20)));
  EXPECT_EQ(world.checker().violation(), std::nullopt);
}

TEST(RoundMachine, ASiteWithoutAgentsIsNotWaitedFor) {
  World world(calm(3));
  world.start();
  ASSERT_TRUE(reaches_round(world, 2, seconds(20)));
  world.site(1).stop_agents();
  const std::uint64_t before = world.register_value().committed_round.value;
  EXPECT_TRUE(world.run_until([&] { return world.register_value().committed_round.value >= before + 3; }, seconds(8)));
  EXPECT_EQ(world.register_value().members, SiteSet{0b101});
  world.site(1).start_agents();
  EXPECT_TRUE(world.run_until([&] { return world.register_value().counted == SiteSet{0b111}; }, seconds(20)));
  EXPECT_EQ(world.checker().violation(), std::nullopt);
}

TEST(RoundMachine, AMemberThatDiesInARunningRoundCostsOneDeadlineAndNoRound) {
  World world(calm(3));
  ASSERT_NO_FATAL_FAILURE(commit_without_site_2(world));
  EXPECT_EQ(world.register_value().counted, SiteSet{0b011});
  world.site(2).start_gateway();
  world.site(2).start_agents();
  EXPECT_TRUE(world.run_until([&] { return world.register_value().counted == SiteSet{0b111} && world.sites_in_step() == 3; }, seconds(20)));
  EXPECT_TRUE(has_announced(world, 2, "catching up"));
  EXPECT_EQ(world.checker().violation(), std::nullopt);
}

TEST(RoundMachine, AnOwnerThatDiesAfterTheCloseIsReplaced) {
  World world(calm(4));
  world.start();
  ASSERT_TRUE(reaches_round(world, 2, seconds(20)));
  ASSERT_TRUE(world.run_until([&] { return world.register_value().phase == Phase::kClosed; }, seconds(5)));
  const RoundId running = world.register_value().round;
  world.site(3).stop_gateway();
  world.site(3).stop_agents();
  EXPECT_TRUE(world.run_until([&] { return world.register_value().committed_round >= running; }, seconds(4)));
  EXPECT_EQ(world.checker().aborts(), 0U);
  EXPECT_EQ(world.checker().violation(), std::nullopt);
}

TEST(RoundMachine, TwoSitesThatCannotReachEachOtherStillTakePartThroughTheLeader) {
  World world(calm(3));
  world.start();
  ASSERT_TRUE(reaches_round(world, 1, seconds(20)));
  world.network().block(1, 2);
  world.network().block(2, 1);
  const std::uint64_t before = world.register_value().committed_round.value;
  EXPECT_TRUE(world.run_until([&] { return world.register_value().committed_round.value >= before + 3; }, seconds(30)));
  EXPECT_EQ(world.register_value().counted, SiteSet{0b111});
  EXPECT_EQ(world.checker().violation(), std::nullopt);
}

TEST(RoundMachine, BelowTheQuorumNothingIsCommittedAndEverybodySaysSo) {
  World world(calm(3));
  world.start();
  ASSERT_TRUE(reaches_round(world, 2, seconds(20)));
  for (const std::size_t site : {1U, 2U}) {
    world.site(site).stop_gateway();
    world.site(site).stop_agents();
  }
  world.run_for(seconds(1));
  const RoundId before = world.register_value().committed_round;
  world.run_for(seconds(10));
  EXPECT_EQ(world.register_value().committed_round, before);
  EXPECT_TRUE(has_announced(world, 0, "alone: 1 of 3 sites can be reached, a round needs 2"));
  world.heal();
  EXPECT_TRUE(reaches_round(world, before.value + 2, seconds(20)));
  EXPECT_TRUE(has_announced(world, 0, "together: 3 of 3 sites can be reached"));
}

TEST(RoundMachine, ASiteThatIsLostOrComesBackIsSaidWhileTheOthersGoOn) {
  World world(calm(3));
  world.start();
  ASSERT_TRUE(reaches_round(world, 2, seconds(20)));
  EXPECT_TRUE(has_announced(world, 0, "together: 3 of 3 sites can be reached"));
  world.site(2).stop_gateway();
  world.site(2).stop_agents();
  EXPECT_TRUE(
      world.run_until([&] { return has_announced(world, 0, "together: 2 of 3 sites can be reached, a round needs 2"); }, seconds(30)));
  EXPECT_EQ(world.checker().violation(), std::nullopt);
}

// The gateways of sites whose training has ended stay up: whoever trains on is not to wait a deadline at each boundary.
TEST(RoundMachine, SitesWhoseProcessesAreGoneAreNoQuorumAndThatIsSaid) {
  World world(calm(3));
  world.start();
  ASSERT_TRUE(reaches_round(world, 2, seconds(20)));
  for (const std::size_t site : {1U, 2U}) world.site(site).stop_agents();
  EXPECT_TRUE(world.run_until(
      [&] { return has_announced(world, 0, "alone: 1 of 3 sites can be reached and train (no training processes"); }, seconds(60)));
  const RoundId before = world.register_value().committed_round;
  world.heal();
  EXPECT_TRUE(reaches_round(world, before.value + 2, seconds(20)));
  EXPECT_TRUE(has_announced(world, 0, "together: "));
  EXPECT_EQ(world.checker().violation(), std::nullopt);
}

TEST(RoundMachine, AStoreThatComesBackBeginsAnEpochAndTheRunGoesOn) {
  World world(calm(3));
  world.start();
  ASSERT_TRUE(reaches_round(world, 2, seconds(20)));
  ASSERT_TRUE(world.run_until([&] { return world.site(1).machine()->record().phase == Phase::kOpen; }, seconds(5)));
  const RoundKey running = world.register_value().key();
  world.site(0).stop_gateway();
  world.run_for(seconds(3));
  EXPECT_TRUE(has_announced(world, 1, "alone: the coordination store cannot be reached"));
  world.site(0).start_gateway();
  EXPECT_GT(world.register_value().epoch, running.epoch);
  EXPECT_EQ(world.register_value().phase, Phase::kAborted);
  EXPECT_TRUE(reaches_round(world, running.round.value + 1, seconds(20)));
  EXPECT_TRUE(has_announced(world, 1, "is not counted"));
  EXPECT_EQ(world.checker().violation(), std::nullopt);
}

TEST(RoundMachine, AnUpdateThatDiffersAtOneSiteIsNeverCommitted) {
  World world(calm(3));
  world.start();
  ASSERT_TRUE(reaches_round(world, 2, seconds(20)));
  world.site(1).corrupt_next_update();
  ASSERT_TRUE(reaches_round(world, 5, seconds(30)));
  EXPECT_TRUE(has_announced(world, 0, "sites hold different updates"));
  EXPECT_EQ(world.checker().violation(), std::nullopt);
}

TEST(RoundMachine, SitesThatStartFromOtherStatesTakeTheLeaders) {
  SimConfig config = calm(4);
  config.is_first_state_shared = false;
  World world(config);
  world.start();
  EXPECT_TRUE(reaches_round(world, 2, seconds(30)));
  EXPECT_TRUE(has_announced(world, 3, "differs from that of site 0"));
  EXPECT_EQ(world.checker().violation(), std::nullopt);
}

// ---- direct rounds: every member sums for itself ----

SimConfig direct(std::size_t sites) {
  SimConfig config = calm(sites);
  config.direct_share = 1.0;
  return config;
}

TEST(RoundMachine, DirectRoundsWithoutFaultsNeverWaitForATimerEither) {
  SimConfig config = direct(4);
  config.deadline = config.commit_deadline = config.open_grace = seconds(600);
  World world(config);
  world.start();
  EXPECT_TRUE(reaches_round(world, 10, seconds(20))) << world.site(0).machine()->describe();
  EXPECT_GE(world.checker().direct_commits(), 10U);
  EXPECT_EQ(world.checker().violation(), std::nullopt);
}

TEST(RoundMachine, AMemberThatDiesInADirectRoundCostsOneDeadlineAndNoRound) {
  World world(direct(3));
  ASSERT_NO_FATAL_FAILURE(commit_without_site_2(world));
  EXPECT_TRUE(is_direct(world.register_value())) << "nobody needs what the dead one would have summed";
  world.site(2).start_gateway();
  world.site(2).start_agents();
  EXPECT_TRUE(world.run_until([&] { return world.register_value().counted == SiteSet{0b111} && world.sites_in_step() == 3; }, seconds(20)));
  EXPECT_EQ(world.checker().violation(), std::nullopt);
}

TEST(RoundMachine, ADirectRoundOfSitesThatCannotReachEachOtherIsSummedByTheOneThatHasAll) {
  World world(direct(3));
  world.start();
  ASSERT_TRUE(reaches_round(world, 1, seconds(20)));
  world.network().block(1, 2);
  world.network().block(2, 1);
  const std::uint64_t before = world.register_value().committed_round.value;
  EXPECT_TRUE(world.run_until([&] { return world.register_value().committed_round.value >= before + 3; }, seconds(30)));
  EXPECT_EQ(world.register_value().counted, SiteSet{0b111});
  EXPECT_FALSE(is_direct(world.register_value()));
  EXPECT_TRUE(has_announced(world, 0, "not every site could sum for itself, site 0 combines for all"));
  EXPECT_EQ(world.checker().violation(), std::nullopt);
}

// No sums are sent: a site that is no member has to ask for the update.
TEST(RoundMachine, ASiteThatIsNoMemberFetchesTheUpdateOfADirectRound) {
  SimConfig config = direct(3);
  config.open_grace = milliseconds(100);
  World world(config);
  world.start();
  ASSERT_TRUE(reaches_round(world, 1, seconds(20)));
  world.site(2).slow_down(60);
  ASSERT_TRUE(world.run_until([&] { return world.register_value().is_running() && world.register_value().members == SiteSet{0b011}; },
                              seconds(20)));
  EXPECT_TRUE(world.run_until([&] { return world.site(2).agents().round.value >= 3; }, seconds(20)));
  EXPECT_EQ(world.checker().violation(), std::nullopt);
}

// ---- by hand ----

TimePoint at(int ms) { return TimePoint{} + milliseconds(ms); }

struct Hand {
  explicit Hand(std::uint16_t self, std::uint8_t codec = static_cast<std::uint8_t>(compression::Codec::kGridDense)) {
    config.self = SiteId(self);
    config.sites = SiteSet{0b11};
    config.store_site = SiteId(0);
    config.open_grace = seconds(1);
    config.deadline = seconds(1);
    config.commit_deadline = seconds(1);
    config.rate.codec = codec;
    config.rate.warmup_rounds = 1;
    machine = std::make_unique<RoundMachine>(config, RoundRecord{});
  }
  std::vector<Action> feed(const Event& event, int ms = 0) {
    machine->on(event, at(ms));
    return machine->take_actions();
  }
  RoundConfig config;
  std::unique_ptr<RoundMachine> machine;
};

template <typename Kind>
const Kind* find(const std::vector<Action>& actions) {
  for (const Action& action : actions) {
    if (const auto* found = std::get_if<Kind>(&action)) return found;
  }
  return nullptr;
}

Proposal proposal_of(std::uint16_t site, std::shared_ptr<const compression::Sketch> sketch = nullptr) {
  Proposal proposal;
  proposal.epoch = EpochId(kEpochsPerStart);
  proposal.round = RoundId(1);
  proposal.site = SiteId(site);
  proposal.tokens = 10;
  proposal.chunks = 2;
  proposal.base_digest = Digest{1, 1};
  proposal.sketch = std::move(sketch);
  proposal.sketch_weight = 1.0;
  return proposal;
}

// The leader with both proposals there: the record that it wants to open.
RoundRecord opened_by(Hand& leader, const RegisterStore& store, const std::shared_ptr<const compression::Sketch>& sketch = nullptr) {
  leader.feed(RecordSeen{store.current()});
  leader.feed(PeerUp{SiteId(1)});
  leader.feed(LocalState{RoundId(0), Digest{1, 1}});
  leader.feed(StateReportReceived{SiteId(1), RoundId(0), Digest{1, 1}});
  EXPECT_EQ(find<CompareAndSet>(leader.feed(LocalReady{proposal_of(0, sketch)})), nullptr);
  const auto actions = leader.feed(ProposalReceived{proposal_of(1, sketch)});
  const auto* cas = find<CompareAndSet>(actions);
  EXPECT_NE(cas, nullptr);
  return cas != nullptr ? cas->next : RoundRecord{};
}

TEST(RoundMachine, TheStepComesFromTheSketchesAndTheReasonSaysSo) {
  std::vector<float> delta(4096);
  for (std::size_t index = 0; index < delta.size(); ++index) delta[index] = static_cast<float>(index % 97) * 1e-3F - 0.048F;
  auto sketch = std::make_shared<compression::Sketch>();
  sketch->add(delta, 1.0F, {}, 1);
  Hand leader(0);
  const RegisterStore store{RoundRecord{}};
  const RoundRecord warm_up = opened_by(leader, store, sketch);
  // Half of the weight each: the sketched values are halved before they are coded.
  const std::vector<compression::SiteSketch> sketches{{sketch.get(), 0.5}, {sketch.get(), 0.5}};
  EXPECT_EQ(warm_up.step, compression::choose_step(sketches, 8.0));
  EXPECT_NE(warm_up.reason.find("warm-up 8.00 bits: step "), std::string::npos);
  EXPECT_NE(warm_up.reason.find("from 2 sketches"), std::string::npos);
  Hand plain(0, static_cast<std::uint8_t>(compression::Codec::kRaw32));
  EXPECT_EQ(opened_by(plain, store, sketch).step, 0.0F);
}

TEST(RoundMachine, FramesThatComeBeforeTheRecordAreNotLost) {
  RegisterStore store{RoundRecord{}};
  Hand leader(0);
  ASSERT_TRUE(store.compare_and_set(store.current().version, opened_by(leader, store)).accepted);
  Hand late(1);
  late.feed(RecordSeen{RegisterStore{RoundRecord{}}.current()});
  const RoundKey key = store.current().key();
  late.feed(ContributionStored{key.epoch, key.round, SiteId(0), ChunkId(1)});
  late.feed(ContributionStored{key.epoch, key.round, SiteId(1), ChunkId(1)});
  const auto actions = late.feed(RecordSeen{store.current()});
  const auto* combine = find<CombineChunk>(actions);
  ASSERT_NE(combine, nullptr);
  EXPECT_EQ(combine->chunk, ChunkId(1));
  EXPECT_EQ(combine->counted, SiteSet{0b11});
}

TEST(RoundMachine, FramesAndMessagesOfOtherRoundsOrSitesChangeNothing) {
  RegisterStore store{RoundRecord{}};
  Hand leader(0);
  ASSERT_TRUE(store.compare_and_set(store.current().version, opened_by(leader, store)).accepted);
  leader.feed(RecordSeen{store.current()});
  const RoundKey key = store.current().key();
  const std::vector<Event> strange = {
      ContributionStored{EpochId(1), key.round, SiteId(1), ChunkId(0)},
      ContributionStored{key.epoch, key.round, SiteId(9), ChunkId(0)},
      ContributionStored{key.epoch, key.round, SiteId(99), ChunkId(0)},
      ContributionStored{key.epoch, key.round, SiteId(1), ChunkId(77)},
      UpdateStored{key.epoch, key.round, SiteSet{0b100}, ChunkId(0), {}},
      UpdateStored{key.epoch, key.round, SiteSet{}, ChunkId(0), {}},
      UpdateStored{key.epoch, key.round, SiteSet{1}, ChunkId(77), {}},
      PeerUp{SiteId(40)},
      PeerDown{SiteId(0), "self"},
      StateReportReceived{SiteId(33), RoundId(1), {}},
      WithdrawReceived{SiteId(33), key.epoch, key.round},
      OwnerStatusReceived{SiteId(33), key.epoch, key.round, 0, SiteSet{3}},
      ConfirmReceived{SiteId(33), key.epoch, key.round, 1, SiteSet{3}, {}},
      UpdateLost{RoundId(3), "?"},
      OwnerStatusReceived{SiteId(1), EpochId(1), key.round, 0, SiteSet{3}},
      ConfirmReceived{SiteId(1), key.epoch, key.round, 9, SiteSet{3}, {}},
  };
  for (const Event& event : strange) EXPECT_TRUE(leader.feed(event).empty()) << "event " << event.index();
  RoundRecord impossible = store.current();
  impossible.version += 1;
  impossible.chunks = 0;
  EXPECT_NE(find<Announce>(leader.feed(RecordSeen{impossible})), nullptr);
  EXPECT_EQ(leader.machine->record(), store.current());
}

TEST(RoundMachine, AStoreThatLostItsJournalIsReportedAndNotFollowed) {
  Hand site(1);
  RoundRecord known;
  known.epoch = EpochId(5 * kEpochsPerStart);
  known.version = 12;
  RoundMachine machine(site.config, known);
  machine.on(RecordSeen{RegisterStore{RoundRecord{}}.current()}, at(0));
  const auto actions = machine.take_actions();
  const auto* said = find<Announce>(actions);
  ASSERT_NE(said, nullptr);
  EXPECT_NE(said->text.find("journal was lost or replaced"), std::string::npos);
  EXPECT_EQ(machine.record().epoch, known.epoch);
}

}  // namespace
}  // namespace sluice::sync
