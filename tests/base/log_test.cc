// Goal: a line of log is one line, and one JSON object when asked, whatever the message holds. Method: stderr captured, JSON parsed.
#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace sluice {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string captured(LogFormat format, LogLevel level, std::string_view message) {
  configure_log(format, level);
  testing::internal::CaptureStderr();
  log_line(LogLevel::kInfo, "link", message);
  std::string output = testing::internal::GetCapturedStderr();
  configure_log(LogFormat::kText, LogLevel::kInfo);
  return output;
}

TEST(Log, TextLineHoldsTimeLevelComponentAndMessage) {
  const std::string line = captured(LogFormat::kText, LogLevel::kInfo, "up: 3 streams");
  EXPECT_THAT(line, testing::MatchesRegex("[0-9-]+T[0-9:.]+Z info +link: up: 3 streams\n"));
}

TEST(Log, AMessageCannotBreakTheLine) {
  const std::string line = captured(LogFormat::kText, LogLevel::kInfo, "peer said: x\nfake line\r\x1b[2J");
  EXPECT_EQ(std::ranges::count(line, '\n'), 1);
  EXPECT_THAT(line, HasSubstr("x\\u000afake line\\u000d\\u001b[2J"));
}

TEST(Log, JsonLineParsesWhateverTheMessageHolds) {
  const std::string message = "a \"quoted\" \\ {} % \n \x7f caf\xc3\xa9 \xff\xc3";
  const std::string line = captured(LogFormat::kJson, LogLevel::kInfo, message);
  const auto parsed = nlohmann::json::parse(line, nullptr, false);
  ASSERT_TRUE(parsed.is_object()) << line;
  EXPECT_EQ(parsed["level"], "info");
  EXPECT_EQ(parsed["component"], "link");
  EXPECT_EQ(parsed["message"], "a \"quoted\" \\ {} % \n \x7f caf\xc3\xa9 \xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_THAT(line, EndsWith("}\n"));
}

TEST(Log, LinesBelowTheLevelAreLeftOut) { EXPECT_THAT(captured(LogFormat::kText, LogLevel::kWarning, "quiet"), IsEmpty()); }

TEST(Log, ArgumentsAreFormatted) {
  testing::internal::CaptureStderr();
  log_warning("round", "{} of {} sites", 2, 3);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("warning round: 2 of 3 sites\n"));
}

}  // namespace
}  // namespace sluice
