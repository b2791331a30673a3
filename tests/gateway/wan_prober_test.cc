// Goal: a probe asks first, fills the link within its window, is one at a time for each site, and gives way to rounds. Method: two probers,
// joined by hand, on a loop that runs for real for a few tens of milliseconds.
#include "gateway/wan_prober.h"

#include <gtest/gtest.h>

#include <asio/io_context.hpp>

namespace sluice::gateway {
namespace {

using std::chrono::milliseconds;

constexpr SiteId kAsker{0};
constexpr SiteId kAsked{1};

class Probers : public testing::Test {
 protected:
  WanProberHooks hooks(SiteId self) {
    WanProberHooks result;
    result.send = [this, self](SiteId to, const wire::PeerMessage& message) {
      if (is_down_) return false;
      const Status status = (to == kAsker ? asker_ : asked_).on_message(self, message.probe(), Clock::now());
      EXPECT_TRUE(status.has_value());
      return true;
    };
    result.send_frame = [this](SiteId, const FrameRecord& frame) {
      sent_ += frame.bytes();
      return true;
    };
    result.queued_bytes = [](SiteId) { return std::size_t{0}; };
    result.discard_queued = [this](SiteId) { ++discarded_; };
    result.set_probing = [this](SiteId, bool is_probing) { is_probing_ = is_probing; };
    result.is_round_running = [this, self] { return self == kAsker ? asker_runs_ : asked_runs_; };
    return result;
  }
  void run_until_ended() {
    for (int turn = 0; turn < 10'000 && asker_.is_running(); ++turn) {
      loop_.restart();
      loop_.run_one_for(milliseconds(100));
    }
  }

  asio::io_context loop_;
  bool is_down_ = false;
  bool asker_runs_ = false;
  bool asked_runs_ = false;
  bool is_probing_ = false;
  int discarded_ = 0;
  std::size_t sent_ = 0;
  WanProber asker_{loop_, milliseconds(50), hooks(kAsker)};
  WanProber asked_{loop_, milliseconds(50), hooks(kAsked)};
};

TEST_F(Probers, AGrantedProbeFillsTheLinkForItsWindow) {
  ASSERT_TRUE(asker_.start(kAsked, Clock::now()));
  EXPECT_TRUE(is_probing_);
  EXPECT_TRUE(asked_.expects_frames(kAsker));
  run_until_ended();
  EXPECT_FALSE(asker_.is_running());
  EXPECT_FALSE(is_probing_);
  EXPECT_GT(sent_, 1'000'000U);
  EXPECT_LE(sent_, 600'000'000U);
  EXPECT_EQ(discarded_, 1);
  EXPECT_FALSE(asked_.expects_frames(kAsker)) << "the end was told";
}

// By themselves gateways sent 500 MB over a fast link for a model of 33 kB a round.
TEST_F(Probers, NoMoreIsSentThanAskedFor) {
  ASSERT_TRUE(asker_.start(kAsked, Clock::now(), 300'000));
  run_until_ended();
  EXPECT_FALSE(asker_.is_running());
  EXPECT_GE(sent_, 300'000U);
  EXPECT_LE(sent_, 400'000U);
}

TEST_F(Probers, ASiteInARoundRefuses) {
  asked_runs_ = true;
  ASSERT_TRUE(asker_.start(kAsked, Clock::now()));
  EXPECT_FALSE(asker_.is_running());
  EXPECT_NE(asker_.describe().find("busy"), std::string::npos) << asker_.describe();
  EXPECT_EQ(sent_, 0U);
  asker_runs_ = true;
  EXPECT_FALSE(asker_.start(kAsked, Clock::now()));
}

TEST_F(Probers, OneAtATime) {
  ASSERT_TRUE(asker_.start(kAsked, Clock::now()));
  EXPECT_FALSE(asker_.start(kAsked, Clock::now()));
  EXPECT_FALSE(asked_.start(kAsker, Clock::now())) << "the other way has to wait";
  run_until_ended();
  EXPECT_TRUE(asked_.start(kAsker, Clock::now()));
}

TEST_F(Probers, ARoundEndsIt) {
  ASSERT_TRUE(asker_.start(kAsked, Clock::now()));
  asker_.on_round_opened();
  EXPECT_FALSE(asker_.is_running());
  EXPECT_FALSE(is_probing_);
  EXPECT_NE(asker_.describe().find("round"), std::string::npos);
}

TEST_F(Probers, ADownLinkIsNotProbed) {
  is_down_ = true;
  EXPECT_FALSE(asker_.start(kAsked, Clock::now()));
  is_down_ = false;
  ASSERT_TRUE(asker_.start(kAsked, Clock::now()));
  is_down_ = true;
  asker_.on_peer_down(kAsked);
  EXPECT_FALSE(asker_.is_running());
}

}  // namespace
}  // namespace sluice::gateway
