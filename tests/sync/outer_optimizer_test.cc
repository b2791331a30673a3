// Goal: the outer step is PyTorch's SGD with Nesterov momentum to the bit, and digests see every bit that matters. Method: a literal slow
// reference in volatile fp32, golden digests, and values from torch.optim.SGD written down here.

#include "sync/outer_optimizer.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace sluice::sync {
namespace {

std::vector<float> random_values(std::size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(static_cast<int>(engine() % 20001) - 10000) / 8192.0F;
  return values;
}

TEST(OuterOptimizer, NesterovMatchesASlowReferenceInAFixedOrder) {
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{4099}}) {
    std::vector<float> parameters = random_values(count, 1);
    std::vector<float> momentum = random_values(count, 2);
    const std::vector<float> update = random_values(count, 3);
    const std::vector<float> p = parameters;
    const std::vector<float> m = momentum;
    apply_outer_step({OuterRule::kNesterov, 0.7F, 0.9F}, 1.25F, update, parameters, momentum);
    for (std::size_t index = 0; index < count; ++index) {
      volatile float d = 1.25F * update[index];
      volatile float carried = 0.9F * m[index];
      volatile float kept = carried + d;
      volatile float ahead = 0.9F * kept;
      volatile float direction = d + ahead;
      volatile float move = 0.7F * direction;
      ASSERT_EQ(momentum[index], kept);
      ASSERT_EQ(parameters[index], p[index] - move);
    }
  }
}

TEST(OuterOptimizer, NesterovMatchesTorch) {
  // torch.optim.SGD([p], lr=0.7, momentum=0.9, nesterov=True), p = [1, -2], gradients [0.5, 0.25] then [-0.125, 1].
  std::vector<float> parameters = {1.0F, -2.0F};
  std::vector<float> momentum = {0.0F, 0.0F};
  const OuterConfig config{OuterRule::kNesterov, 0.7F, 0.9F};
  apply_outer_step(config, 1.0F, std::vector<float>{0.5F, 0.25F}, parameters, momentum);
  EXPECT_FLOAT_EQ(parameters[0], 0.335F);
  EXPECT_FLOAT_EQ(parameters[1], -2.3325F);
  apply_outer_step(config, 1.0F, std::vector<float>{-0.125F, 1.0F}, parameters, momentum);
  EXPECT_FLOAT_EQ(parameters[0], 0.21775F);
  EXPECT_FLOAT_EQ(parameters[1], -3.80425F);
}

TEST(OuterOptimizer, AverageWithRateOneMovesToTheMean) {
  std::vector<float> parameters = {4.0F, 8.0F};
  apply_outer_step({OuterRule::kAverage, 1.0F, 0.0F}, 0.5F, std::vector<float>{2.0F, -4.0F}, parameters, {});
  EXPECT_EQ(parameters, (std::vector<float>{3.0F, 10.0F}));
}

TEST(OuterOptimizer, DigestSeesEveryBitOfParametersAndMomentum) {
  std::vector<float> parameters = random_values(100, 4);
  std::vector<float> momentum = random_values(100, 5);
  const Digest base = state_digest(parameters, momentum);
  momentum[99] = -momentum[99];
  EXPECT_NE(state_digest(parameters, momentum), base);
  momentum[99] = -momentum[99];
  std::swap(parameters[0], parameters[1]);
  EXPECT_NE(state_digest(parameters, momentum), base);
}

TEST(OuterOptimizer, UntouchedMomentumCountsAsNone) {
  const std::vector<float> parameters = random_values(10, 6);
  EXPECT_EQ(state_digest(parameters, std::vector<float>(10, 0.0F)), state_digest(parameters, {}));
  EXPECT_NE(state_digest(parameters, std::vector<float>(10, -0.0F)), state_digest(parameters, {}));
}

}  // namespace
}  // namespace sluice::sync
