// Goal: the repository keeps the rules of docs/STYLE.md that a machine can check. Method: reads every file of ours as text and applies the
// rules, one test each; a failure names file, line and remedy. That each rule can fail is shown in tidy_rules_test.cc.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/tidy/function_length.h"
#include "tests/tidy/include_rules.h"
#include "tests/tidy/text_rules.h"
#include "tests/tidy/tree_rules.h"

namespace sluice::tidy {
namespace {

const Tree& tree() {
  static const Tree instance = read_tree(SLUICE_SOURCE_DIR);
  return instance;
}

void expect_none(const Findings& findings) {
  constexpr std::size_t kShownMax = 200;
  for (std::size_t index = 0; index < std::min(findings.size(), kShownMax); ++index) ADD_FAILURE() << findings[index].to_string();
  EXPECT_LE(findings.size(), kShownMax) << "more findings than are shown";
}

TEST(TidyTree, TheTreeIsFound) {
  EXPECT_TRUE(tree().contains("CMakeLists.txt"));
  EXPECT_TRUE(tree().contains("base/result.h"));
  EXPECT_GT(tree().files.size(), 40U);
}
TEST(TidyTree, IncludesFollowTheFolderTable) { expect_none(check_include_directions(tree())); }
TEST(TidyTree, ThirdPartiesStayAtTheEdge) { expect_none(check_third_party(tree())); }
TEST(TidyTree, CoresArePure) { expect_none(check_pure_cores(tree())); }
TEST(TidyTree, HeadersOpenWithPragmaOnceAndComeFirst) { expect_none(check_header_form(tree())); }
TEST(TidyTree, FunctionsFitAScreen) { expect_none(check_function_length(tree())); }
TEST(TidyTree, LinesAndFilesKeepTheirLimits) { expect_none(check_layout(tree())); }
TEST(TidyTree, NothingIsLeftOver) { expect_none(check_leftovers(tree())); }
TEST(TidyTree, BannedCallsAreAbsent) { expect_none(check_banned_calls(tree())); }
TEST(TidyTree, FileNamesAreUniqueSnakeCase) { expect_none(check_file_names(tree())); }
TEST(TidyTree, FoldersHavePagesWithOneTitleAndLiveLinks) { expect_none(check_pages(tree())); }
TEST(TidyTree, ErrorTableMatchesTheCodes) { expect_none(check_error_table(tree())); }
TEST(TidyTree, EverySourceIsListed) { expect_none(check_files_are_listed(tree())); }
TEST(TidyTree, TestsSayTheirGoal) { expect_none(check_tests_say_their_goal(tree())); }

}  // namespace
}  // namespace sluice::tidy
