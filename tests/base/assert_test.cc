// Goal: a broken promise of ours ends the process in every build and says with which values. Method: death tests.
#include "base/assert.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

int evaluations = 0;
bool count_and_return(bool value) {
  ++evaluations;
  return value;
}

TEST(AssertDeathTest, FailureNamesFileConditionAndValues) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const int chunks = 3;
  EXPECT_DEATH(SLUICE_ASSERT(chunks == 4, "{} chunks", chunks), "assert_test.cc:[0-9]+: assertion failed: chunks == 4. 3 chunks");
  EXPECT_DEATH(SLUICE_ASSERT(false), "assertion failed: false");
}

TEST(Assert, HoldingConditionIsEvaluatedOnceAndPasses) {
  evaluations = 0;
  SLUICE_ASSERT(count_and_return(true), "not printed");
  EXPECT_EQ(evaluations, 1);
}

}  // namespace
}  // namespace sluice
