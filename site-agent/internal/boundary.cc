#include "site-agent/internal/boundary.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/assert.h"
#include "compression/sketch.h"
#include "site-agent/internal/site_prober.h"
#include "site-agent/limits.h"

namespace sluice::site_agent {
namespace {

using compression::kChunkValues;

// A sketch looks at runs of kSketchRun values, one of every kSketchStride: an eighth of the chunk predicts the bits within 1 %. Small
// chunks are looked at whole, because a few hundred samples would not.
constexpr std::size_t kSketchRun = 256;
constexpr std::size_t kSketchStride = 8;
constexpr std::size_t kSketchSamples = 524'288;  // enough for a large shard: the error of a bin falls with its count
constexpr std::size_t kSketchWholeBelow = 65'536;
// A rank may break a group and another be formed between two agreements; more than that in one boundary is not progress.
constexpr int kAgreementAttemptsMax = 3;

}  // namespace

Boundary::Boundary(Parts parts) : parts_(parts), chunk_(std::min<std::uint64_t>(kChunkValues, parts.manifest->value_count())) {
  const sync::ChunkRange shard = parts_.session->state().chunks();
  if (parts_.ranks > 1) {
    mean_.resize(parts_.manifest->values_of(shard).count());
  } else {
    writer_.emplace(*parts_.tensors, *parts_.manifest, shard);
  }
}

// ---- agreement of the ranks ----

bool Boundary::have_group() {
  if (group_ && !group_->is_broken()) return true;
  if (group_ && !broken_since_) broken_since_ = Clock::now();
  group_ = parts_.former->take();
  if (group_) broken_since_.reset();
  return group_ != nullptr;
}

// A call that took too long breaks the group although every rank is still connected: the gateway forms another one only when it sees a
// rank come.
void Boundary::regroup_when_lost() {
  const bool is_lost = parts_.ranks > 1 && broken_since_ && Clock::now() - *broken_since_ > kRegroupGrace;
  if (!is_lost || !parts_.session->is_group_complete() || !parts_.former->is_idle()) return;
  broken_since_ = Clock::now();
  parts_.link->drop_current("the site's group broke: asking for another one");
}

// What this rank asks for: the window of a probe, or 0.
std::int64_t Boundary::probe_window_us() const {
  const Session& session = *parts_.session;
  if (has_probed_ || probe_failures_ >= kProbeFailuresMax || !session.is_connected()) return 0;
  const Duration window = std::min<Duration>(session.welcome()->probe_window, kProbeWindowMax);
  return std::chrono::duration_cast<std::chrono::microseconds>(window).count();
}

// Whether the group is still whole.
bool Boundary::probe(Duration window) {
  const SiteProbe result = probe_site(*group_, parts_.machine, window);
  if (result.failure) {
    ++probe_failures_;
    parts_.status->report(*result.failure);
  } else {
    has_probed_ = true;
  }
  parts_.link->send(parts_.session->connection(), make_site_probe(result));
  return !result.failure;
}

Boundary::Agreement Boundary::agree(bool is_beginning, std::uint64_t steps, Duration timeout) {
  Session& session = *parts_.session;
  const bool is_present = session.is_connected() && !is_beginning && (parts_.ranks == 1 || session.is_group_complete());
  const bool is_in_sync = !session.is_catching_up() && session.state().round_min() == session.state().round_max();
  const bool may_pause =
      is_present && session.is_solo_announced() && session.welcome()->solo_steps_max > 0 && steps >= session.welcome()->solo_steps_max;
  std::array<std::int64_t, 6> least = {
      is_present && is_in_sync && !session.is_solo_announced() ? 1 : 0,
      static_cast<std::int64_t>(session.state().round_min()),
      -static_cast<std::int64_t>(session.state().round_max()),
      session.tensors_stale() ? 0 : 1,
      may_pause && is_in_sync ? 1 : 0,
      probe_window_us(),
  };
  Agreement result;
  if (parts_.ranks > 1) {
    const TimePoint begin = Clock::now();
    const std::array<std::int64_t, 6> own = least;
    for (int attempt = 0; attempt < kAgreementAttemptsMax && !result.is_valid && have_group(); ++attempt) {
      least = own;
      const Status status = group_->all_reduce(std::span<std::int64_t>(least), sync::ReduceOp::kMin, timeout);
      result.is_valid = status.has_value();
      if (!status) parts_.status->report(status.error());
    }
    // All ranks of a group that is new have asked for it: a rank that has probed before has said no.
    if (result.is_valid && least[5] > 0) result.is_valid = probe(std::chrono::microseconds(least[5]));
    parts_.status->update([&](AgentStatistics& statistics) { statistics.group_time += Clock::now() - begin; });
    if (!result.is_valid) return result;
  }
  result.is_valid = true;
  result.can_exchange = least[0] == 1;
  result.is_same_round = least[1] == -least[2];
  result.is_any_stale = least[3] == 0;
  result.can_pause = least[4] == 1;
  return result;
}

// Whether the condition holds at every rank; false too when the ranks cannot be asked.
bool Boundary::agree_all(bool condition) {
  if (parts_.ranks == 1) return condition;
  std::int64_t least = condition ? 1 : 0;
  const Status status = group_->all_reduce(std::span<std::int64_t>(&least, 1), sync::ReduceOp::kMin, parts_.group_timeout);
  if (!status) parts_.status->report(status.error());
  return status && least == 1;
}

// ---- tensors and shards ----

// Calls visit(counts, total) for each piece of work in which every rank has at most one chunk: memory stays at one chunk a rank.
template <typename Visit>
bool Boundary::for_each_layer(Visit&& visit) {
  const sync::Manifest& manifest = *parts_.manifest;
  std::vector<std::size_t> counts(parts_.ranks);
  for (std::uint32_t layer = 0;; ++layer) {
    std::size_t total = 0;
    for (std::uint32_t rank = 0; rank < parts_.ranks; ++rank) {
      const sync::ChunkRange shard = manifest.shard(RankId(rank), parts_.ranks);
      counts[rank] = layer < shard.count() ? manifest.chunk_values(ChunkId(shard.begin + layer)).count() : 0;
      total += counts[rank];
    }
    if (total == 0) return true;
    if (!visit(layer, std::span<const std::size_t>(counts), total)) return false;
  }
}

// mean_ = the mean of the ranks' parameters over this rank's shard. The delta is global minus this mean, which is the mean of the deltas;
// reducing the parameters spares every rank a copy of the whole global vector.
bool Boundary::reduce_parameters() {
  const TimePoint begin = Clock::now();
  const sync::ValueRange own = parts_.manifest->values_of(parts_.session->state().chunks());
  const bool is_done = for_each_layer([&](std::uint32_t layer, std::span<const std::size_t> counts, std::size_t total) {
    std::vector<float> values(total);
    std::size_t position = 0;
    for (std::uint32_t rank = 0; rank < parts_.ranks; ++rank) {
      if (counts[rank] == 0) continue;
      const ChunkId chunk(parts_.manifest->shard(RankId(rank), parts_.ranks).begin + layer);
      parts_.tensors->read(chunk, std::span(values).subspan(position, counts[rank]));
      position += counts[rank];
    }
    const std::uint64_t offset = std::min<std::uint64_t>(std::uint64_t{layer} * kChunkValues, own.count());
    const Status status = group_->reduce_scatter(values, counts, std::span(mean_).subspan(offset, counts[parts_.rank.value]),
                                                 sync::ReduceOp::kMean, parts_.group_timeout);
    if (!status) parts_.status->report(status.error());
    return status.has_value();
  });
  parts_.status->update([&](AgentStatistics& statistics) { statistics.group_time += Clock::now() - begin; });
  return is_done;
}

// All ranks' tensors = the site's global parameters.
bool Boundary::gather_tensors() {
  const TimePoint begin = Clock::now();
  const sync::ChunkRange own = parts_.session->state().chunks();
  const bool is_done = for_each_layer([&](std::uint32_t layer, std::span<const std::size_t> counts, std::size_t total) {
    std::vector<float> values(total);
    std::span<const float> mine;
    if (layer < own.count()) mine = parts_.session->state().parameters(ChunkId(own.begin + layer));
    const Status status = group_->all_gather(mine, counts, values, parts_.group_timeout);
    if (!status) {
      parts_.status->report(status.error());
      return false;
    }
    std::size_t position = 0;
    for (std::uint32_t rank = 0; rank < parts_.ranks; ++rank) {
      if (counts[rank] == 0) continue;
      const ChunkId chunk(parts_.manifest->shard(RankId(rank), parts_.ranks).begin + layer);
      parts_.tensors->write(chunk, std::span(values).subspan(position, counts[rank]));
      position += counts[rank];
    }
    return true;
  });
  parts_.status->update([&](AgentStatistics& statistics) { statistics.group_time += Clock::now() - begin; });
  return is_done;
}

bool Boundary::refresh_tensors() {
  if (parts_.ranks > 1) {
    if (!gather_tensors()) return false;
  } else {
    const ShardState& state = parts_.session->state();
    for (std::uint32_t chunk = state.chunks().begin; chunk < state.chunks().end; ++chunk) {
      parts_.tensors->write(ChunkId(chunk), state.parameters(ChunkId(chunk)));
    }
  }
  parts_.session->set_tensors_stale(false);
  return true;
}

// out = values [offset, offset + size) of the chunk's delta.
void Boundary::take_delta(ChunkId chunk, std::uint64_t offset, std::span<float> out) const {
  const ShardState& state = parts_.session->state();
  const std::span<const float> global = state.parameters(chunk).subspan(offset, out.size());
  if (parts_.ranks == 1) {
    parts_.tensors->subtract_from(chunk, offset, global, out);
    return;
  }
  const std::uint64_t begin = parts_.manifest->chunk_values(chunk).begin - parts_.manifest->values_of(state.chunks()).begin;
  const float* local = mean_.data() + begin + offset;
  for (std::size_t index = 0; index < out.size(); ++index) out[index] = global[index] - local[index];
}

// A delta with NaN or Inf must not reach the other sites: the whole site withholds its contribution.
bool Boundary::check_finite() {
  const ShardState& state = parts_.session->state();
  std::uint64_t found = parts_.manifest->value_count();
  for (std::uint32_t index = state.chunks().begin; index < state.chunks().end && found == parts_.manifest->value_count(); ++index) {
    const ChunkId chunk(index);
    if (parts_.ranks == 1) {
      found = parts_.tensors->find_non_finite(chunk);
      continue;
    }
    const sync::ValueRange values = parts_.manifest->chunk_values(chunk);
    const std::uint64_t offset = values.begin - parts_.manifest->values_of(state.chunks()).begin;
    const std::size_t at = find_non_finite(std::span<const float>(mean_).subspan(offset, values.count()));
    if (at < values.count()) found = values.begin + at;
  }
  const bool is_finite = found == parts_.manifest->value_count();
  if (!is_finite) {
    parts_.status->report(Error{ErrorCode::kNonFinite, "make delta", fmt::format("{} is not finite", parts_.manifest->locate(found))});
  }
  if (agree_all(is_finite)) return true;
  parts_.status->update([](AgentStatistics& statistics) { ++statistics.deltas_withheld; });
  parts_.status->announce("the site's parameters hold NaN or Inf: its contribution is withheld, training goes on");
  return false;
}

// ---- the exchange ----

float Boundary::sketch_weight() const {
  if (last_weight_) return *last_weight_;
  const float weight = parts_.session->welcome()->initial_weight;
  return std::isfinite(weight) && weight > 0.0F ? weight : 1.0F;
}

compression::Sketch Boundary::make_sketch(float weight) const {
  const ShardState& state = parts_.session->state();
  compression::Sketch sketch;
  const std::size_t shard_values = parts_.manifest->values_of(state.chunks()).count();
  std::vector<float> delta;
  std::vector<float> residual;
  for (std::uint32_t index = state.chunks().begin; index < state.chunks().end; ++index) {
    const ChunkId chunk(index);
    const std::size_t size = parts_.manifest->chunk_values(chunk).count();
    const std::size_t stride = size < kSketchWholeBelow ? 1 : std::max(kSketchStride, shard_values / kSketchSamples);
    delta.clear();
    residual.clear();
    for (std::size_t begin = 0; begin < size; begin += stride * kSketchRun) {
      const std::size_t count = std::min(kSketchRun, size - begin);
      delta.resize(delta.size() + count);
      take_delta(chunk, begin, std::span(delta).last(count));
      const std::span<const float> kept = state.residual(chunk).subspan(begin, count);
      residual.insert(residual.end(), kept.begin(), kept.end());
    }
    sketch.add(delta, weight, residual, 1);
  }
  return sketch;
}

void Boundary::send_ready(const Progress& progress) {
  Ready ready;
  ready.round = parts_.session->state().round_min() + 1;
  ready.tokens = progress.tokens;
  ready.sketch_weight = sketch_weight();
  ready.sketch = make_sketch(ready.sketch_weight).to_bytes();
  ready.loss = progress.loss;
  ready.inner_steps = progress.steps;
  parts_.link->send(parts_.session->connection(), make_ready(ready));
}

// Codes the shard chunk by chunk; each frame is on its way while the next is coded.
void Boundary::contribute(TimePoint deadline) {
  Session& session = *parts_.session;
  const RoundOpened opened = *session.opened();
  const TimePoint begin = Clock::now();
  session.note_contribution();
  last_weight_ = opened.weight;
  wire::FrameEnvelope envelope;
  envelope.epoch = opened.epoch;
  envelope.round = opened.round;
  envelope.role = static_cast<std::uint16_t>(wire::FrameRole::kContribution);
  ByteVector frame;
  for (std::uint32_t index = session.state().chunks().begin; index < session.state().chunks().end; ++index) {
    const ChunkId chunk(index);
    const std::span<float> delta = std::span(chunk_).first(parts_.manifest->chunk_values(chunk).count());
    take_delta(chunk, 0, delta);
    const Status status =
        session.state().encode(chunk, delta, opened.weight, opened.step, opened.codec, session.welcome()->residual_share, frame);
    if (!status) {
      // The round goes on without this site, and its update takes the place of the bad parameters.
      if (status.error().code != ErrorCode::kNonFinite || check_finite()) parts_.status->report(status.error());
      session.state().undo();
      break;
    }
    envelope.chunk = index;
    if (!parts_.link->wait_for_room(session.connection(), deadline)) break;
    parts_.link->send(session.connection(), make_frame_record(envelope, frame));
  }
  parts_.status->update([&](AgentStatistics& statistics) { statistics.encode_time += Clock::now() - begin; });
}

bool Boundary::handle_next(TimePoint deadline) {
  auto event = parts_.inbox->take(deadline);
  if (!event) return false;
  parts_.session->handle(std::move(*event));
  if (parts_.link->is_reading_paused() && parts_.inbox->waiting_bytes() < kInboundBytesMax / 2) parts_.link->resume_reading();
  return true;
}

void Boundary::handle_waiting() {
  while (handle_next(TimePoint::min())) {
  }
}

void Boundary::wait_for_outcome(std::uint64_t round, TimePoint deadline, bool leaves_when_solo) {
  Session& session = *parts_.session;
  const std::uint64_t skips = session.skips();
  const TimePoint begin = Clock::now();
  while (session.state().round_min() < round && session.skips() == skips && session.is_connected()) {
    if (parts_.ranks > 1 && !session.is_group_complete()) break;
    if (leaves_when_solo && session.is_solo_announced()) break;
    if (session.tensors_stale() && !session.is_catching_up()) break;  // took another state: what was offered is void
    if (session.wants_contribution()) {
      if (writer_) writer_->take_back();  // the round was opened again: its delta is taken from the caller's values
      contribute(deadline);
    } else if (!handle_next(deadline)) {
      break;
    }
  }
  parts_.status->update([&](AgentStatistics& statistics) { statistics.wait_time += Clock::now() - begin; });
}

StepResult Boundary::exchange(Progress& progress, TimePoint deadline, bool leaves_when_solo) {
  Session& session = *parts_.session;
  const std::uint64_t round_before = session.state().round_min();
  const std::uint64_t skips_before = session.skips();
  if (parts_.ranks > 1 && !reduce_parameters()) return go_solo("a rank of the site is gone or too slow");
  // Ranks must agree before any of them contributes; a single one finds out while it codes, without a pass of its own.
  if (parts_.ranks > 1 && !check_finite()) return make_result(StepOutcome::kSkipped, false);
  if (!session.wants_contribution()) send_ready(progress);
  session.set_writer(writer_ ? &*writer_ : nullptr);
  wait_for_outcome(round_before + 1, deadline, leaves_when_solo);
  session.set_writer(nullptr);
  if (writer_) writer_->take_back();  // nothing, after a commit
  return conclude(progress, round_before, skips_before);
}

StepResult Boundary::conclude(Progress& progress, std::uint64_t round_before, std::uint64_t skips_before) {
  Session& session = *parts_.session;
  // Another rank may wait for its outcome as long as this one was allowed to.
  const Duration patience = session.welcome()->exchange_timeout + parts_.group_timeout;
  const Agreement at = agree(false, progress.steps, patience);
  if (!at.is_valid) return go_solo("a rank of the site is gone or too slow");
  if (!at.is_same_round) return go_solo("the site's ranks stand at different rounds");
  const bool has_refreshed = at.is_any_stale;
  if (has_refreshed && !refresh_tensors()) return go_solo("a rank of the site is gone or too slow");
  const std::uint64_t round = session.state().round_min();
  if (round > round_before || has_refreshed) {
    progress = Progress{0, 0, progress.loss};
    end_solo();
    if (session.last_commit().round != round || round == round_before) return make_result(StepOutcome::kCaughtUp, true);
    return make_result(session.last_commit().was_counted ? StepOutcome::kCommitted : StepOutcome::kLeftOut, true);
  }
  if (!session.is_connected()) return go_solo("the gateway is gone: " + session.lost_reason());
  if (session.is_solo_announced()) return go_solo("");
  if (session.skips() == skips_before) {
    parts_.status->announce(fmt::format("round {} was not decided in time; training goes on locally", round_before + 1));
  }
  return make_result(StepOutcome::kSkipped, false);
}

// ---- alone and back ----

// An empty reason: the gateway has announced it already.
StepResult Boundary::go_solo(const std::string& why) {
  const bool was_solo = parts_.status->statistics().is_solo;
  parts_.status->update([](AgentStatistics& statistics) {
    statistics.is_solo = true;
    ++statistics.solo_boundaries;
  });
  if (!was_solo && !why.empty()) parts_.status->announce(fmt::format("training alone: {}", why));
  return make_result(StepOutcome::kSolo, false);
}

void Boundary::end_solo() {
  if (!parts_.status->statistics().is_solo) return;
  parts_.status->update([](AgentStatistics& statistics) { statistics.is_solo = false; });
  parts_.status->announce(fmt::format("back with the run at round {}", parts_.session->state().round_min()));
}

StepResult Boundary::make_result(StepOutcome outcome, bool tensors_written) const {
  StepResult result;
  result.outcome = outcome;
  result.tensors_written = tensors_written;
  result.round = parts_.session->state().round_min();
  const bool has_commit = outcome == StepOutcome::kCommitted || outcome == StepOutcome::kLeftOut;
  if (has_commit) result.sites_counted = static_cast<std::uint32_t>(parts_.session->last_commit().counted.size());
  return result;
}

TimePoint Boundary::exchange_deadline() const {
  const Duration stated = parts_.session->welcome()->exchange_timeout;
  return Clock::now() + (stated > Duration::zero() ? stated : Duration(kExchangeTimeoutDefault));
}

StepResult Boundary::run(Progress& progress) {
  Session& session = *parts_.session;
  handle_waiting();
  regroup_when_lost();
  const Agreement at = agree(false, progress.steps, parts_.group_timeout);
  if (!at.is_valid && session.is_connected()) return go_solo("not all ranks of the site are connected");
  if (!at.is_valid) return go_solo("no gateway: " + session.lost_reason());
  if (at.is_same_round && at.is_any_stale) {
    if (!refresh_tensors()) return go_solo("a rank of the site is gone or too slow");
    progress = Progress{0, 0, progress.loss};
    end_solo();
    return make_result(StepOutcome::kCaughtUp, true);
  }
  if (at.can_exchange && at.is_same_round) return exchange(progress, exchange_deadline(), true);
  if (at.can_pause && at.is_same_round) {
    StepResult result = exchange(progress, Clock::now() + session.welcome()->solo_pause, false);
    if (result.outcome == StepOutcome::kSkipped) result = go_solo("");
    return result;
  }
  if (session.is_solo_announced()) return go_solo("");
  if (!session.is_connected()) return go_solo("no gateway: " + session.lost_reason());
  return go_solo(session.is_catching_up() ? "the state is being brought up to date" : "the site's ranks are not all ready");
}

void Boundary::begin(TimePoint deadline) {
  Session& session = *parts_.session;
  const auto is_here = [&] {
    return session.is_connected() && !session.is_catching_up() && session.state().round_min() >= session.welcome()->round &&
           (parts_.ranks == 1 || session.is_group_complete());
  };
  while (!is_here() && handle_next(deadline)) {
  }
  if (!session.is_connected()) {
    go_solo("no gateway yet: " + session.lost_reason());
    return;
  }
  if (parts_.ranks > 1 && !parts_.former->wait(deadline)) {
    go_solo("not all ranks of the site are connected yet");
    return;
  }
  const Agreement at = agree(true, 0, parts_.group_timeout);
  if (at.is_valid && at.is_same_round && at.is_any_stale && !refresh_tensors()) go_solo("a rank of the site is gone or too slow");
}

}  // namespace sluice::site_agent
