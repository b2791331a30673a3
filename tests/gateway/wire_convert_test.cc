// Goal: records and proposals survive the wire, and every field that a peer can make wrong is refused by name. Method: round trips, then
// one damaged field at a time.
#include "gateway/wire_convert.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "compression/sketch.h"

namespace sluice::gateway {
namespace {

sync::RoundRecord sample_record() {
  sync::RoundRecord record;
  record.version = 7;
  record.epoch = EpochId(3);
  record.round = RoundId(12);
  record.phase = sync::Phase::kCommitted;
  record.attempt = 2;
  record.members = SiteSet{0b111};
  record.counted = SiteSet{0b101};
  record.weights = {{SiteId(0), 100}, {SiteId(1), 50}, {SiteId(2), 25}};
  record.step = 1.5e-4F;
  record.codec = 2;
  record.plan_kind = topology::PlanKind::kDirect;
  record.owners = {SiteId(0), SiteId(2)};
  record.update_digest = Digest{1, 2};
  record.base_digest = Digest{3, 4};
  record.committed_round = RoundId(12);
  record.manifest_hash = 99;
  record.chunks = 5;
  record.reason = "all confirmed";
  return record;
}

TEST(WireConvert, RecordSurvivesTheJournal) {
  const auto record = sample_record();
  const auto parsed = parse_record(serialize_record(record), 3);
  ASSERT_TRUE(parsed) << parsed.error().to_string();
  EXPECT_EQ(*parsed, record);
}

TEST(WireConvert, WaysOverThirdSitesSurviveTheJournal) {
  auto record = sample_record();
  record.plan_kind = topology::PlanKind::kSharded;
  record.plan.detours = {{SiteId(0), SiteId(1), SiteId(2), 0.25}};
  const auto parsed = parse_record(serialize_record(record), 3);
  ASSERT_TRUE(parsed) << parsed.error().to_string();
  EXPECT_EQ(*parsed, record);
}

TEST(WireConvert, ARecordWithoutAKindOfPlanIsSharded) {
  wire::RoundRecord message;
  write_record(sample_record(), message);
  message.clear_plan_kind();
  const auto parsed = read_record(message, 3);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->plan_kind, topology::PlanKind::kSharded);
}

TEST(WireConvert, BytesThatAreNoRecordAreRefused) {
  const ByteVector garbage(40, 0xff);
  const auto parsed = parse_record(garbage, 3);
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code, ErrorCode::kWireBadMessage);
}

TEST(WireConvert, EachBadFieldOfARecordIsRefusedByName) {
  struct Case {
    const char* field;
    std::function<void(wire::RoundRecord&)> damage;
  };
  const std::vector<Case> cases = {
      {"phase", [](wire::RoundRecord& message) { message.set_phase(9); }},
      {"members", [](wire::RoundRecord& message) { message.set_members(0b1000); }},
      {"counted", [](wire::RoundRecord& message) { message.set_counted(0xffffffffU); }},
      {"weights.site", [](wire::RoundRecord& message) { message.mutable_weights(0)->set_site(3); }},
      {"weights",
       [](wire::RoundRecord& message) {
         for (int each = 0; each < 20; ++each) message.add_weights();
       }},
      {"step", [](wire::RoundRecord& message) { message.set_step(std::numeric_limits<float>::quiet_NaN()); }},
      {"step", [](wire::RoundRecord& message) { message.set_step(-1.0F); }},
      {"codec", [](wire::RoundRecord& message) { message.set_codec(256); }},
      {"owners", [](wire::RoundRecord& message) { message.add_owners(70'000); }},
      {"owners",
       [](wire::RoundRecord& message) {
         message.clear_owners();
         message.set_phase(1);
       }},
      {"plan_kind", [](wire::RoundRecord& message) { message.set_plan_kind(3); }},
      {"update_digest", [](wire::RoundRecord& message) { message.set_update_digest("short"); }},
      {"base_digest", [](wire::RoundRecord& message) { message.set_base_digest(std::string(17, 'x')); }},
  };
  for (const Case& each : cases) {
    wire::RoundRecord message;
    write_record(sample_record(), message);
    each.damage(message);
    const auto parsed = read_record(message, 3);
    ASSERT_FALSE(parsed) << each.field;
    EXPECT_EQ(parsed.error().code, ErrorCode::kWireBadMessage) << each.field;
    EXPECT_NE(parsed.error().detail.find(each.field), std::string::npos) << parsed.error().detail;
  }
}

TEST(WireConvert, LongReasonIsCut) {
  wire::RoundRecord message;
  write_record(sample_record(), message);
  message.set_reason(std::string(100'000, 'x'));
  const auto parsed = read_record(message, 3);
  ASSERT_TRUE(parsed);
  EXPECT_LE(parsed->reason.size(), 512U);
}

TEST(WireConvert, ProposalSpeaksForItsSenderOnly) {
  sync::Proposal proposal;
  proposal.epoch = EpochId(1);
  proposal.round = RoundId(2);
  proposal.site = SiteId(2);
  proposal.tokens = 1000;
  proposal.sketch_weight = 0.25;
  const std::vector<float> values(512, 0.5F);
  compression::Sketch sketch;
  sketch.add(values, 1.0F, {}, 1);
  proposal.sketch = std::make_shared<const compression::Sketch>(sketch);
  proposal.base_digest = Digest{5, 6};
  proposal.values = 4096;
  sync::LinkReport link;
  link.to = SiteId(2);
  link.low_rate = 9e7;
  link.median_rate = 1e8;
  link.rtt_min = std::chrono::milliseconds(80);
  link.method = 2;
  proposal.report.links.push_back(link);
  proposal.report.compute = std::chrono::seconds(3);
  proposal.report.measured_round = RoundId(1);
  proposal.report.update_bits = 4.2;
  wire::Proposal message;
  write_proposal(proposal, message);
  const auto parsed = read_proposal(message, SiteId(1), 3);
  ASSERT_TRUE(parsed) << parsed.error().to_string();
  EXPECT_EQ(parsed->site, SiteId(1));
  ASSERT_TRUE(parsed->sketch);
  EXPECT_EQ(*parsed->sketch, sketch);
  EXPECT_EQ(parsed->base_digest, proposal.base_digest);
  EXPECT_EQ(parsed->values, 4096U);
  ASSERT_EQ(parsed->report.links.size(), 1U);
  EXPECT_EQ(parsed->report.links[0].to, SiteId(2));
  EXPECT_EQ(parsed->report.links[0].low_rate, 9e7);
  EXPECT_EQ(parsed->report.links[0].rtt_min, Duration(std::chrono::milliseconds(80)));
  EXPECT_EQ(parsed->report.compute, Duration(std::chrono::seconds(3)));
  EXPECT_EQ(parsed->report.measured_round, RoundId(1));
  EXPECT_EQ(parsed->report.update_bits, 4.2);
}

TEST(WireConvert, ImpossibleLinkReportsAndPlansAreRefused) {
  wire::Proposal message;
  write_proposal(sync::Proposal{}, message);
  message.add_links()->set_peer(3);
  EXPECT_FALSE(read_proposal(message, SiteId(0), 3)) << "a site beyond the run";
  message.mutable_links(0)->set_peer(1);
  message.mutable_links(0)->set_low_rate(-1.0);
  EXPECT_FALSE(read_proposal(message, SiteId(0), 3));
  message.mutable_links(0)->set_low_rate(std::numeric_limits<double>::quiet_NaN());
  EXPECT_FALSE(read_proposal(message, SiteId(0), 3));
  wire::RoundRecord record;
  write_record(sync::RoundRecord{}, record);
  EXPECT_TRUE(read_record(record, 3));
  record.mutable_plan()->add_links()->set_to(7);
  EXPECT_FALSE(read_record(record, 3));
  record.mutable_plan()->clear_links();
  record.mutable_plan()->set_reason(99);
  EXPECT_FALSE(read_record(record, 3));
  record.mutable_plan()->clear_reason();
  wire::DetourPlan* detour = record.mutable_plan()->add_detours();
  EXPECT_FALSE(read_record(record, 3)) << "from a site to itself";
  detour->set_to(1);
  detour->set_over(2);
  detour->set_share(0.5);
  EXPECT_TRUE(read_record(record, 3));
  detour->set_share(1.5);
  EXPECT_FALSE(read_record(record, 3));
  detour->set_share(0.5);
  detour->set_over(1);
  EXPECT_FALSE(read_record(record, 3));
}

TEST(WireConvert, ProposalWithADamagedSketchIsRefused) {
  wire::Proposal message;
  write_proposal(sync::Proposal{}, message);
  message.set_sketch("not a sketch");
  EXPECT_FALSE(read_proposal(message, SiteId(0), 3));
  // None at all is allowed: the other sites' sketches then decide the step.
  message.set_sketch("");
  EXPECT_TRUE(read_proposal(message, SiteId(0), 3));
}

TEST(WireConvert, DigestReadsBackAndPrintsHighHalfFirst) {
  const Digest digest{0x1122334455667788ULL, 0x99aabbccddeeff00ULL};
  EXPECT_EQ(*read_digest(write_digest(digest), "x"), digest);
  EXPECT_EQ(digest_hex(digest), "99aabbccddeeff001122334455667788");
}

}  // namespace
}  // namespace sluice::gateway
