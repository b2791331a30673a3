// Goal: every code has a name, advice and one number for life. Method: the table against golden numbers of its first codes, and uniqueness.
#include "base/error.h"

#include <gtest/gtest.h>

#include <set>
#include <string_view>
#include <vector>

namespace sluice {
namespace {

std::vector<ErrorCode> all_codes() {
  return {
#define SLUICE_ERROR_CODE(name, number, advice) ErrorCode::name,
#include "base/error_codes.def"
#undef SLUICE_ERROR_CODE
  };
}

// Numbers reach operators, dashboards and peers of other versions.
TEST(ErrorCodes, PublishedNumbersDoNotMove) {
  EXPECT_EQ(static_cast<unsigned>(ErrorCode::kInvalidArgument), 100U);
  EXPECT_EQ(static_cast<unsigned>(ErrorCode::kInternal), 105U);
  EXPECT_EQ(static_cast<unsigned>(ErrorCode::kConfigSyntax), 200U);
  EXPECT_EQ(static_cast<unsigned>(ErrorCode::kFrameTruncated), 300U);
  EXPECT_EQ(static_cast<unsigned>(ErrorCode::kManifestMismatch), 308U);
}

TEST(ErrorCodes, NamesAndNumbersAreUnique) {
  std::set<std::string_view> names;
  std::set<ErrorCode> numbers;
  for (const ErrorCode code : all_codes()) {
    names.insert(error_code_name(code));
    numbers.insert(code);
  }
  EXPECT_EQ(names.size(), all_codes().size());
  EXPECT_EQ(numbers.size(), all_codes().size());
}

TEST(ErrorCodes, EachSaysInASentenceWhatToDo) {
  for (const ErrorCode code : all_codes()) {
    const std::string_view advice = error_code_advice(code);
    EXPECT_GT(advice.size(), 10U) << error_code_name(code);
    EXPECT_TRUE(advice.ends_with('.')) << error_code_name(code) << ": " << advice;
  }
}

TEST(ErrorCodes, AForeignNumberIsUnknown) {
  const auto foreign = static_cast<ErrorCode>(65535);
  EXPECT_EQ(error_code_name(foreign), "unknown");
  EXPECT_EQ(error_code_advice(foreign), "unknown");
}

TEST(Error, ReadsAsOperationDetailAndCode) {
  const Error error{ErrorCode::kFrameTruncated, "decode frame", "payload ends at byte 17 of 40"};
  EXPECT_EQ(error.to_string(), "decode frame: payload ends at byte 17 of 40 [kFrameTruncated 300]");
}

}  // namespace
}  // namespace sluice
