#include "site-agent/internal/shard_state.h"

#include <algorithm>

#include "base/assert.h"
#include "compression/frame_decoder.h"
#include "compression/grid_codec.h"

namespace sluice::site_agent {
namespace {

using compression::Codec;

Status encode_with(Codec codec, std::span<const float> delta, float weight, std::span<float> residual, float step, ChunkId chunk,
                   ByteVector& out) {
  if (codec == Codec::kRaw32) {
    SLUICE_CHECK_OK(compression::encode_raw_frame(delta, weight, residual, chunk, out));
  } else if (codec == Codec::kBf16) {
    SLUICE_CHECK_OK(compression::encode_bf16_frame(delta, weight, residual, chunk, out));
  } else if (compression::is_grid(codec)) {
    SLUICE_CHECK_OK(compression::encode_grid_frame(delta, weight, residual, step, chunk, out));
  } else {
    return fail(ErrorCode::kInvalidArgument, "encode contribution", fmt::format("codec {} is unknown", static_cast<int>(codec)));
  }
  return {};
}

Status check_shape(const compression::FrameView& frame, ChunkId chunk, std::size_t values) {
  if (frame.header.chunk == chunk && frame.header.value_count == values) return {};
  return fail(ErrorCode::kFrameUnexpected, "read frame",
              fmt::format("chunk {} with {} values inside an envelope for chunk {} with {}", frame.header.chunk, frame.header.value_count,
                          chunk, values));
}

}  // namespace

ShardState::ShardState(const sync::Manifest& manifest, sync::ChunkRange chunks)
    : manifest_(&manifest), chunks_(chunks), values_(manifest.values_of(chunks)) {
  parameters_.resize(values_.count());
  momentum_.resize(values_.count());
  residual_.resize(values_.count());
  residual_before_.resize(values_.count());
  staged_values_.resize(values_.count());
  round_.resize(chunks.count());
  digests_.resize(chunks.count());
  staged_.resize(chunks.count());
  installing_.resize(chunks.count());
  has_contributed_.resize(chunks.count());
}

std::size_t ShardState::slot(ChunkId chunk) const {
  SLUICE_ASSERT(contains(chunk), "chunk {} of {}..{}", chunk, chunks_.begin, chunks_.end);
  return chunk.value - chunks_.begin;
}

std::size_t ShardState::offset(ChunkId chunk) const { return manifest_->chunk_values(chunk).begin - values_.begin; }

std::span<float> ShardState::section(AlignedVector<float>& values, ChunkId chunk) const {
  SLUICE_ASSERT(contains(chunk));
  return std::span(values).subspan(offset(chunk), manifest_->chunk_values(chunk).count());
}

std::span<const float> ShardState::section(const AlignedVector<float>& values, ChunkId chunk) const {
  SLUICE_ASSERT(contains(chunk));
  return std::span(values).subspan(offset(chunk), manifest_->chunk_values(chunk).count());
}

std::uint64_t ShardState::round_min() const { return round_.empty() ? round_of_empty_ : *std::min_element(round_.begin(), round_.end()); }
std::uint64_t ShardState::round_max() const { return round_.empty() ? round_of_empty_ : *std::max_element(round_.begin(), round_.end()); }

void ShardState::refresh_digest(ChunkId chunk) { digests_[slot(chunk)] = sync::state_digest(parameters(chunk), momentum(chunk)); }

void ShardState::set_chunk(ChunkId chunk, std::uint64_t round, std::span<const float> parameters, std::span<const float> momentum,
                           std::span<const float> residual) {
  std::copy(parameters.begin(), parameters.end(), section(parameters_, chunk).begin());
  std::copy(momentum.begin(), momentum.end(), section(momentum_, chunk).begin());
  std::copy(residual.begin(), residual.end(), section(residual_, chunk).begin());
  round_[slot(chunk)] = round;
  refresh_digest(chunk);
}

Status ShardState::encode(ChunkId chunk, std::span<const float> delta, float weight, float step, std::uint8_t codec, float residual_share,
                          ByteVector& out) {
  const std::span<float> residual = section(residual_, chunk);
  const std::span<float> before = section(residual_before_, chunk);
  SLUICE_ASSERT(has_contributed_[slot(chunk)] == 0, "chunk {} has an undecided contribution", chunk);
  std::copy(residual.begin(), residual.end(), before.begin());
  has_contributed_[slot(chunk)] = 1;
  SLUICE_CHECK_OK(encode_with(static_cast<Codec>(codec), delta, weight, residual, step, chunk, out));
  if (residual_share == 1.0F) return {};
  for (float& value : residual) value *= residual_share;
  return {};
}

void ShardState::settle() { std::fill(has_contributed_.begin(), has_contributed_.end(), std::uint8_t{0}); }

void ShardState::undo() {
  for (std::uint32_t chunk = chunks_.begin; chunk < chunks_.end; ++chunk) {
    if (has_contributed_[chunk - chunks_.begin] == 0) continue;
    const std::span<const float> before = section(residual_before_, ChunkId(chunk));
    std::copy(before.begin(), before.end(), section(residual_, ChunkId(chunk)).begin());
  }
  settle();
}

Status ShardState::stage(ChunkId chunk, std::uint64_t epoch, std::uint64_t round, SiteSet counted, bool is_replay,
                         const compression::FrameView& frame) {
  const std::span<float> target = section(staged_values_, chunk);
  Staged& staged = staged_[slot(chunk)];
  staged = Staged{};
  installing_[slot(chunk)] = Installing{};
  SLUICE_CHECK_OK(check_shape(frame, chunk, target.size()));
  SLUICE_CHECK_OK(compression::decode_frame(frame, target));
  staged = Staged{epoch, round, counted, is_replay, false, 0.0F, Digest{}};
  return {};
}

bool ShardState::prepare(ChunkId chunk, float scale, const sync::OuterConfig& outer) {
  Staged& staged = staged_[slot(chunk)];
  if (staged.round == 0 || staged.is_prepared || sync::has_momentum(outer.rule)) return false;
  const std::span<float> next = section(staged_values_, chunk);
  sync::prepare_average(outer, scale, parameters(chunk), next);
  staged.is_prepared = true;
  staged.scale = scale;
  staged.next_digest = sync::state_digest(next, momentum(chunk));
  return true;
}

bool ShardState::is_staged(std::uint64_t round, SiteSet counted, float scale) const {
  for (std::size_t index = 0; index < staged_.size(); ++index) {
    if (round_[index] + 1 != round) continue;
    if (staged_[index].round != round || (!staged_[index].is_replay && staged_[index].counted != counted)) return false;
    if (staged_[index].is_prepared && staged_[index].scale != scale) return false;
  }
  return true;
}

void ShardState::commit(std::uint64_t round, float scale, const sync::OuterConfig& outer, const Written& written) {
  SLUICE_ASSERT(round > 0);
  const bool is_all_prepared = !staged_.empty() && std::all_of(staged_.begin(), staged_.end(),
                                                               [&](const Staged& each) { return each.is_prepared && each.round == round; });
  if (is_all_prepared) parameters_.swap(staged_values_);
  for (std::uint32_t index = 0; index < round_.size(); ++index) {
    if (round_[index] + 1 != round) continue;
    const ChunkId chunk(chunks_.begin + index);
    SLUICE_ASSERT(staged_[index].round == round, "chunk {} has no update for round {}", chunk, round);
    const bool was_prepared = staged_[index].is_prepared;
    if (was_prepared) {
      if (!is_all_prepared) std::ranges::copy(section(staged_values_, chunk), section(parameters_, chunk).begin());
      digests_[index] = staged_[index].next_digest;
    } else {
      sync::apply_outer_step(outer, scale, section(staged_values_, chunk), section(parameters_, chunk), section(momentum_, chunk));
      refresh_digest(chunk);
    }
    staged_[index] = Staged{};
    round_[index] = round;
    if (written) written(chunk, parameters(chunk), was_prepared);
  }
  round_of_empty_ = round;
}

Result<bool> ShardState::install(ChunkId chunk, std::uint64_t round, Part part, bool needs_momentum, const compression::FrameView& frame) {
  const std::span<float> waiting = section(staged_values_, chunk);
  Installing& installing = installing_[slot(chunk)];
  staged_[slot(chunk)] = Staged{};
  SLUICE_CHECK_OK(check_shape(frame, chunk, waiting.size()));
  if (needs_momentum && (!installing.has_part || installing.part == part || installing.round != round)) {
    installing.has_part = false;
    SLUICE_CHECK_OK(compression::decode_frame(frame, waiting));
    installing = Installing{true, part, round};
    return false;
  }
  std::vector<float> second(waiting.size());
  SLUICE_CHECK_OK(compression::decode_frame(frame, second));
  const std::span<float> target = section(part == Part::kParameters ? parameters_ : momentum_, chunk);
  std::copy(second.begin(), second.end(), target.begin());
  if (needs_momentum) {
    const std::span<float> other = section(part == Part::kParameters ? momentum_ : parameters_, chunk);
    std::copy(waiting.begin(), waiting.end(), other.begin());
  }
  installing = Installing{};
  round_[slot(chunk)] = round;
  refresh_digest(chunk);
  return true;
}

Status ShardState::export_part(ChunkId chunk, Part part, ByteVector& out) const {
  const std::span<const float> values = part == Part::kParameters ? parameters(chunk) : momentum(chunk);
  // x + (-0.0) has the bits of x for every x; with +0.0 a negative zero would change its sign and the digest with it.
  std::vector<float> nothing(values.size(), -0.0F);
  SLUICE_CHECK_OK(compression::encode_raw_frame(values, 1.0F, nothing, chunk, out));
  return {};
}

}  // namespace sluice::site_agent
