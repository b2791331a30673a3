// Goal: errors travel with code, operation and detail through SLUICE_TRY. Method: a three-step call chain.
#include "base/result.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

Result<int> parse_digit(char character) {
  if (character < '0' || character > '9') return fail(ErrorCode::kInvalidArgument, "parse digit", "not a digit");
  return character - '0';
}

Result<int> add_digits(char left, char right) {
  SLUICE_TRY(const int a, parse_digit(left));
  SLUICE_TRY(const int b, parse_digit(right));
  return a + b;
}

TEST(Result, ValueReachesTheCaller) { EXPECT_EQ(*add_digits('2', '3'), 5); }

TEST(Result, ErrorKeepsCodeOperationAndDetail) {
  const auto sum = add_digits('2', 'x');
  ASSERT_FALSE(sum);
  EXPECT_EQ(sum.error().to_string(), "parse digit: not a digit [kInvalidArgument 100]");
}

}  // namespace
}  // namespace sluice
