#include "tests/sim/sim_checker.h"

#include <fmt/format.h>

#include <bit>
#include <utility>

#include "base/bytes.h"

namespace sluice::sim {

using sync::Phase;
using sync::RoundKey;
using sync::RoundRecord;

Digest frame_digest(std::int64_t value) {
  ByteVector bytes;
  ByteWriter(bytes).write(value);
  return xxh3_128(bytes);
}

Digest update_digest(const std::vector<std::int64_t>& sums) {
  ByteVector bytes;
  ByteWriter writer(bytes);
  for (const std::int64_t sum : sums) {
    const Digest digest = frame_digest(sum);
    writer.write(digest.low);
    writer.write(digest.high);
  }
  return xxh3_128(bytes);
}

Digest applied(Digest base, const RoundRecord& record, const std::vector<std::int64_t>& sums) {
  ByteVector bytes;
  ByteWriter writer(bytes);
  writer.write(base.low);
  writer.write(base.high);
  writer.write(record.round.value);
  writer.write(std::bit_cast<std::uint32_t>(record.step));
  writer.write(std::bit_cast<std::uint32_t>(sync::scale_of(record)));
  for (const std::int64_t sum : sums) writer.write(sum);
  return xxh3_128(bytes);
}

void Checker::fail(std::string what) {
  if (!violation_) violation_ = std::move(what);
}

void Checker::saw_store_start(const RoundRecord& record) {
  if (record.committed_round != last_committed_) {
    fail(fmt::format("I2: the store started at round {}, {} was committed", record.committed_round, last_committed_));
  }
}

void Checker::saw_register(const RoundRecord& before, const RoundRecord& after) {
  if (after.phase == Phase::kOpen) {
    if (after.key() <= last_opened_) fail(fmt::format("I2: round {} of epoch {} was opened before", after.round, after.epoch));
    last_opened_ = after.key();
  }
  if (after.phase == Phase::kClosed && after.counted.size() < quorum_) fail("I3: closed below the quorum");
  if (after.phase == Phase::kAborted) ++aborts_;
  if (after.phase != Phase::kCommitted) return;
  if (after.round != last_committed_.next() || after.round != before.committed_round.next()) {
    fail(fmt::format("I2: round {} committed after round {}", after.round, last_committed_));
  }
  last_committed_ = after.round;
  committed_.emplace(after.round, after);
  if (after.counted != after.members) ++partial_commits_;
  if (sync::is_direct(after)) ++direct_commits_;
  check_commit(after);
}

// I3: the update is the sum of what exactly the counted sites contributed, and a quorum of them holds it.
void Checker::check_commit(const RoundRecord& record) {
  if (record.counted.size() < quorum_)
    fail(fmt::format("I3: round {} counts {} sites, the quorum is {}", record.round, record.counted.size(), quorum_));
  std::vector<std::int64_t> sums(record.chunks, 0);
  std::uint16_t holders = 0;
  record.counted.for_each([&](SiteId site) {
    const auto found = contributions_.find({record.key(), site});
    if (found == contributions_.end())
      return fail(fmt::format("I3: round {} counts site {}, which contributed nothing", record.round, site));
    for (std::size_t chunk = 0; chunk < sums.size(); ++chunk) sums[chunk] += found->second[chunk];
    const auto confirm = confirms_.find({record.key(), site});
    if (confirm != confirms_.end() && confirm->second.update_digest == record.update_digest && confirm->second.counted == record.counted &&
        confirm->second.attempt == record.attempt) {
      ++holders;
    }
  });
  if (violation_) return;
  if (update_digest(sums) != record.update_digest)
    fail(fmt::format("I3: the update of round {} is not the sum over its sites", record.round));
  if (holders < quorum_)
    fail(fmt::format("I3: round {} committed with {} confirmations, the quorum is {}", record.round, holders, quorum_));
}

void Checker::contributed(SiteId site, const RoundKey& key, const std::vector<std::int64_t>& values) {
  if (!contributions_.emplace(std::pair{key, site}, values).second) {
    fail(fmt::format("I4: site {} contributed twice to round {} of epoch {}", site, key.round, key.epoch));
  }
}

void Checker::confirmed(SiteId site, const sync::SendConfirm& confirm) { confirms_[{{confirm.epoch, confirm.round}, site}] = confirm; }

void Checker::applied_update(SiteId site, RoundId before, const RoundRecord& record, const std::vector<std::int64_t>& sums, Digest after) {
  const auto truth = committed_.find(record.round);
  if (truth == committed_.end()) return fail(fmt::format("I2: site {} applied round {}, which was not committed", site, record.round));
  if (before.next() != record.round) fail(fmt::format("I2: site {} applied round {} on round {}", site, record.round, before));
  if (truth->second.counted != record.counted) fail(fmt::format("I3: site {} applied round {} for another set", site, record.round));
  if (update_digest(sums) != truth->second.update_digest)
    fail(fmt::format("I3: site {} applied another update of round {}", site, record.round));
  took_state(site, record.round, after);
}

void Checker::took_state(SiteId site, RoundId round, Digest digest) {
  if (round.value == 0) return;
  const auto [known, is_first] = states_.emplace(round, digest);
  if (!is_first && known->second != digest)
    fail(fmt::format("I1: site {} holds another state of round {} than the first that applied it", site, round));
}

void Checker::check_outcome(SiteId site, const RoundKey& key, Outcome outcome) {
  const auto truth = committed_.find(key.round);
  const bool is_counted = truth != committed_.end() && truth->second.key() == key && truth->second.counted.contains(site);
  if (outcome == Outcome::kCommitted && !is_counted) {
    fail(fmt::format("I4: site {} holds its contribution to round {} of epoch {} for committed; it is not", site, key.round, key.epoch));
  }
  if ((outcome == Outcome::kDiscarded || outcome == Outcome::kReturned) && is_counted) {
    fail(fmt::format("I4: site {} took back or discarded its contribution to round {} of epoch {}, which is counted", site, key.round,
                     key.epoch));
  }
}

void Checker::resolved(SiteId site, const RoundKey& key, Outcome outcome) {
  if (!outcomes_.emplace(std::pair{key, site}, outcome).second)
    fail(fmt::format("I4: site {} decided twice about round {}", site, key.round));
  check_outcome(site, key, outcome);
}

void Checker::check_outcomes() {
  for (const auto& [what, outcome] : outcomes_) check_outcome(what.second, what.first, outcome);
}

}  // namespace sluice::sim
