// Which connection takes the next frame, and what comes back when one breaks. Pure: no sockets, no time.

#include "gateway/internal/frame_lanes.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "gateway/internal/rate_limiter.h"
#include "gateway/internal/record_parser.h"
#include "gateway/internal/record_stream.h"

namespace sluice::gateway::internal {
namespace {

FrameRecord sized(std::uint32_t chunk, std::size_t bytes) {
  FrameRecord frame;
  frame.envelope.chunk = chunk;
  frame.envelope.role = 1;
  frame.frame = std::make_shared<const ByteVector>(bytes);
  return frame;
}

TEST(FrameLanes, FramesSpreadOverTheLanesInTheOrderOfTheQueue) {
  FrameLanes lanes(kFrameQueueBytes);
  lanes.open_lane(1);
  lanes.open_lane(2);
  for (std::uint32_t chunk = 0; chunk < 4; ++chunk) ASSERT_TRUE(lanes.push(sized(chunk, 1000)));
  std::vector<unsigned> taken;
  for (std::uint32_t chunk = 0; chunk < 4; ++chunk) {
    const auto assignment = lanes.assign();
    ASSERT_TRUE(assignment.has_value());
    EXPECT_EQ(assignment->frame.envelope.chunk, chunk);
    taken.push_back(assignment->lane);
  }
  EXPECT_EQ(taken, (std::vector<unsigned>{1, 2, 1, 2}));
}

TEST(FrameLanes, ALaneHoldsABoundedBacklogButAlwaysOneFrame) {
  FrameLanes lanes(kFrameQueueBytes);
  lanes.open_lane(1);
  for (std::uint32_t chunk = 0; chunk < 10; ++chunk) ASSERT_TRUE(lanes.push(sized(chunk, 600'000)));
  EXPECT_TRUE(lanes.assign().has_value());
  EXPECT_FALSE(lanes.assign().has_value());
  lanes.on_written(1, 1);
  EXPECT_TRUE(lanes.assign().has_value());
}

// A frame larger than the backlog was only taken by a lane with nothing under way: one frame a round trip on each lane.
TEST(FrameLanes, AFrameLargerThanTheBacklogNeedNotWaitForAcknowledgements) {
  FrameLanes lanes(kFrameQueueBytes);
  lanes.open_lane(1);
  for (std::uint32_t chunk = 0; chunk < 3; ++chunk) ASSERT_TRUE(lanes.push(sized(chunk, kStreamBacklogBytes + 100)));
  EXPECT_TRUE(lanes.assign().has_value());
  EXPECT_FALSE(lanes.assign().has_value());
  lanes.on_written(1, 1);
  EXPECT_TRUE(lanes.assign().has_value());
}

// Frames given to a slow lane at the end of a round made all others wait for them.
TEST(FrameLanes, ASlowLaneDoesNotHoldUpTheEnd) {
  FrameLanes lanes(kFrameQueueBytes);
  lanes.open_lane(1);
  lanes.open_lane(2);
  constexpr std::uint32_t kFrames = 100;
  for (std::uint32_t chunk = 0; chunk < kFrames; ++chunk) ASSERT_TRUE(lanes.push(sized(chunk, 1'000'000)));
  std::map<unsigned, std::vector<std::uint32_t>> given;
  std::map<unsigned, std::size_t> acknowledged;
  const auto fill = [&] {
    while (const auto assignment = lanes.assign()) {
      lanes.on_written(assignment->lane, 1);
      given[assignment->lane].push_back(assignment->frame.envelope.chunk);
    }
  };
  fill();
  // Lane 1 passes ten frames while lane 2 passes one.
  int idle_turns = 0;  // of lane 1
  for (int turn = 1; lanes.bytes() > 0 && turn < 1000; ++turn) {
    const unsigned lane = turn % 11 == 0 ? 2 : 1;
    if (acknowledged[lane] < given[lane].size()) {
      ASSERT_TRUE(lanes.on_acknowledged(lane, ++acknowledged[lane]));
    } else if (lane == 1) {
      ++idle_turns;
    }
    fill();
  }
  EXPECT_EQ(lanes.bytes(), 0U);
  EXPECT_EQ(given[1].size() + given[2].size(), kFrames);
  EXPECT_GE(given[2].size(), 5U);  // it is used while there is plenty
  EXPECT_LE(idle_turns, 20);       // and holds nothing up for longer than two of its frames
}

TEST(FrameLanes, ALaneThatIsAloneIsUsedHoweverSlow) {
  FrameLanes lanes(kFrameQueueBytes);
  lanes.open_lane(1);
  lanes.open_lane(2);
  for (std::uint32_t chunk = 0; chunk < 40; ++chunk) ASSERT_TRUE(lanes.push(sized(chunk, 100'000)));
  std::size_t count = 0;
  while (const auto assignment = lanes.assign()) {
    lanes.on_written(assignment->lane, 1);
    if (assignment->lane == 1) {
      ASSERT_TRUE(lanes.on_acknowledged(1, ++count));
    }
  }
  lanes.close_lane(1);
  ASSERT_TRUE(lanes.push(sized(100, 100'000)));
  EXPECT_TRUE(lanes.assign().has_value());
}

TEST(FrameLanes, TheWindowGrowsOnlyWhenItIsWhatHoldsTheLaneBack) {
  FrameLanes lanes(kFrameQueueBytes);
  lanes.open_lane(1);
  for (std::uint32_t chunk = 0; chunk < 40; ++chunk) ASSERT_TRUE(lanes.push(sized(chunk, 1'000'000)));
  const auto fill = [&] {
    std::uint64_t count = 0;
    for (; lanes.assign().has_value(); ++count) lanes.on_written(1, 1);
    return count;
  };
  EXPECT_EQ(fill(), 4U);  // 4 MiB
  ASSERT_TRUE(lanes.on_acknowledged(1, 1));
  EXPECT_EQ(fill(), 5U);  // 8 MiB by now, 3 frames under way
}

TEST(FrameLanes, AcknowledgementsOfWhatWasNotWrittenAreRefused) {
  FrameLanes lanes(kFrameQueueBytes);
  lanes.open_lane(1);
  ASSERT_TRUE(lanes.push(sized(1, 10)));
  EXPECT_FALSE(lanes.on_acknowledged(1, 1));
  ASSERT_TRUE(lanes.assign().has_value());
  EXPECT_FALSE(lanes.on_acknowledged(1, 1));
  lanes.on_written(1, 1);
  EXPECT_TRUE(lanes.on_acknowledged(1, 1));
  EXPECT_FALSE(lanes.on_acknowledged(1, 0));
  EXPECT_EQ(lanes.bytes(), 0U);
}

TEST(FrameLanes, FullQueueTakesNothingButAnEmptyOneTakesAnyFrame) {
  FrameLanes lanes(1000);
  EXPECT_TRUE(lanes.push(sized(1, 5000)));
  EXPECT_FALSE(lanes.push(sized(2, 1)));
  EXPECT_EQ(lanes.discard([](const wire::FrameEnvelope&) { return true; }), 1U);
  EXPECT_TRUE(lanes.push(sized(2, 1)));
}

// Lanes open, write, acknowledge and break in random order; in the end every frame has been acknowledged on some lane, and the byte count
// is exact throughout.
TEST(FrameLanes, NothingIsLostWhateverBreaks) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    FrameLanes lanes(kFrameQueueBytes);
    struct Model {
      std::vector<std::uint32_t> given;
      std::size_t written = 0;
      std::size_t acknowledged = 0;
    };
    std::map<unsigned, Model> models;
    std::set<std::uint32_t> done;
    constexpr std::uint32_t kFrames = 60;
    for (std::uint32_t chunk = 0; chunk < kFrames; ++chunk) ASSERT_TRUE(lanes.push(sized(chunk, random() % 400'000)));
    for (int step = 0; step < 5000 && done.size() < kFrames; ++step) {
      const unsigned lane = 1 + static_cast<unsigned>(random() % 3);
      const bool is_open = lanes.is_open(lane);
      Model& model = models[lane];
      const auto action = random() % 12;
      if (!is_open && action < 4) {
        lanes.open_lane(lane);
        model = Model{};
      } else if (is_open && action == 0) {
        lanes.close_lane(lane);
      } else if (is_open && action < 5 && model.written < model.given.size()) {
        ++model.written;
        lanes.on_written(lane, 1);
      } else if (is_open && action < 9 && model.acknowledged < model.written) {
        done.insert(model.given[model.acknowledged++]);
        ASSERT_TRUE(lanes.on_acknowledged(lane, model.acknowledged));
      } else if (const auto assignment = lanes.assign()) {
        models[assignment->lane].given.push_back(assignment->frame.envelope.chunk);
      }
    }
    EXPECT_EQ(done.size(), kFrames) << "seed " << seed;
    EXPECT_EQ(lanes.bytes(), 0U) << "seed " << seed;
  }
}

TEST(RateLimiter, PassesTheRateAndNoMore) {
  RateLimiter limiter(BitsPerSecond{80e6});
  TimePoint now{std::chrono::seconds(1)};
  std::size_t passed = 0;
  const TimePoint end = now + std::chrono::seconds(2);
  while (now < end) {
    const Duration wait = limiter.take(16'000, now);
    if (wait == Duration::zero()) passed += 16'000;
    now += wait;
  }
  EXPECT_NEAR(static_cast<double>(passed), 20e6, 0.3e6);
}

TEST(RecordParser, TakesRecordsInPiecesOfAnySize) {
  ByteVector stream;
  for (std::uint32_t chunk = 0; chunk < 20; ++chunk) {
    const OutgoingRecord record = frame_record(sized(chunk, chunk * 37));
    stream.insert(stream.end(), record.head.begin(), record.head.end());
    stream.insert(stream.end(), record.body->begin(), record.body->end());
  }
  for (const std::size_t piece : {1U, 2U, 7U, 8U, 40U, 41U, 1000U, 100'000U}) {
    RecordParser parser(wire::kControlBytesMax, true);
    std::uint32_t count = 0;
    for (std::size_t at = 0; at < stream.size();) {
      EXPECT_GE(parser.bytes_needed(), 1U);
      std::optional<ParsedRecord> record;
      const auto used = parser.feed(ByteSpan(stream).subspan(at, std::min(piece, stream.size() - at)), record);
      ASSERT_TRUE(used.has_value());
      ASSERT_GE(*used, 1U);
      at += *used;
      if (!record) continue;
      EXPECT_EQ(record->envelope.chunk, count);
      EXPECT_EQ(record->frame.size(), count * 37);
      ++count;
    }
    EXPECT_EQ(count, 20U) << "pieces of " << piece;
  }
}

TEST(RecordParser, RefusesFromTheHeaderAlone) {
  const std::vector<ByteVector> bad = {
      {0xff, 0xff, 0xff, 0x7f, 2, 0, 0, 0},
      {0, 0, 0, 0x80, 1, 0, 0, 0},
      {1, 0, 0, 0, 3, 0, 0, 0},
      {1, 0, 0, 0, 0, 0, 0, 0},
      {1, 0, 0, 0, 1, 0, 1, 0},
      {31, 0, 0, 0, 2, 0, 0, 0},
  };
  for (const ByteVector& header : bad) {
    RecordParser parser(wire::kControlBytesMax, true);
    std::optional<ParsedRecord> record;
    EXPECT_FALSE(parser.feed(header, record).has_value());
  }
  RecordParser without_frames(100, false);
  std::optional<ParsedRecord> record;
  EXPECT_FALSE(without_frames.feed(ByteVector{40, 0, 0, 0, 2, 0, 0, 0}, record).has_value());
  RecordParser small(100, false);
  EXPECT_FALSE(small.feed(ByteVector{101, 0, 0, 0, 1, 0, 0, 0}, record).has_value());
}

}  // namespace
}  // namespace sluice::gateway::internal
