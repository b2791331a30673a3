// Goal: each rule of the tidy test catches what it is for, and leaves alone what looks similar. Method: small trees made of strings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tidy/function_length.h"
#include "tests/tidy/include_rules.h"
#include "tests/tidy/text_rules.h"
#include "tests/tidy/tree_rules.h"

namespace sluice::tidy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct TestFile {
  std::string path;
  std::string text;
};

Tree make_tree(std::initializer_list<TestFile> files) {
  Tree tree;
  for (const TestFile& file : files) tree.add(file.path, file.text);
  return tree;
}

// "path:line" of each finding.
std::vector<std::string> places(const Findings& findings) {
  std::vector<std::string> result;
  for (const Finding& finding : findings) result.push_back(finding.path + ":" + std::to_string(finding.line));
  return result;
}

std::string repeat(std::string_view text, int times) {
  std::string result;
  for (int count = 0; count < times; ++count) result += text;
  return result;
}

TEST(TidySource, CommentsAndLiteralsAreToldFromCode) {
  const SourceFile file =
      make_source_file("base/a.cc", "int a = 1'000;  // x \"y\"\nauto s = \"// no { comment\";\nchar c = '\"'; /* b\nb */ int d;\n");
  EXPECT_EQ(trim(file.code[0]), "int a = 1'000;");
  EXPECT_EQ(trim(file.comments[0]), "// x \"y\"");
  EXPECT_EQ(file.code[1], "auto s = \"               \";");
  EXPECT_EQ(trim(file.comments[1]), "");
  EXPECT_EQ(trim(file.code[3]), "int d;");
}

TEST(TidySource, RawStringsAndPythonStringsAreLiterals) {
  const SourceFile cpp = make_source_file("base/a.cc", "auto s = R\"x(\n\" // { )\"\n)x\"; int b;\n");
  EXPECT_EQ(trim(cpp.code[1]), "");
  EXPECT_THAT(cpp.code[2], HasSubstr("int b;"));
  const SourceFile python = make_source_file("site-agent/python/a.py", "x = '''\nimport y  # no\n'''  # yes\n");
  EXPECT_EQ(trim(python.code[1]), "");
  EXPECT_EQ(trim(python.comments[2]), "# yes");
}

TEST(TidySource, AWordIsNotPartOfAnother) {
  EXPECT_TRUE(contains_word("usleep(1)", "usleep("));
  EXPECT_FALSE(contains_word("usleep(1)", "sleep("));
  EXPECT_TRUE(contains_word("std::snprintf(x); printf(y);", "printf("));
  EXPECT_FALSE(contains_word("std::snprintf(x);", "printf("));
}

TEST(TidyIncludes, UpwardIncludeIsCaught) {
  const Tree tree = make_tree({{"base/a.h", "#pragma once\n#include \"sync/b.h\"\n"},
                               {"sync/b.h", "#pragma once\n#include \"base/a.h\"\n#include \"compression/c.h\"\n"},
                               {"compression/c.h", "#pragma once\n#include \"topology/d.h\"\n"},
                               {"topology/d.h", "#pragma once\n"},
                               {"tests/sync/b_test.cc", "// Goal\n#include \"sync/b.h\"\n"}});
  EXPECT_THAT(places(check_include_directions(tree)), ElementsAre("base/a.h:2", "compression/c.h:2"));
}

TEST(TidyIncludes, GatewayAndSiteAgentNeverMeet) {
  const Tree tree = make_tree({{"gateway/a.cc", "#include \"site-agent/b.h\"\n"},
                               {"site-agent/b.h", "#pragma once\n"},
                               {"site-agent/c.cc", "#include \"gateway/d.h\"\n#include \"proto/agent.pb.h\"\n"},
                               {"gateway/d.h", "#pragma once\n"},
                               {"sync/e.cc", "#include \"proto/agent.pb.h\"\n"}});
  EXPECT_THAT(places(check_include_directions(tree)), ElementsAre("gateway/a.cc:1", "site-agent/c.cc:1", "sync/e.cc:1"));
}

TEST(TidyIncludes, PrivateAndUnknownHeadersAreCaught) {
  const Tree tree = make_tree({{"sync/a.cc", "#include \"compression/internal/b.h\"\n#include \"b.h\"\n"},
                               {"compression/internal/b.h", "#pragma once\n"},
                               {"compression/c.cc", "#include \"compression/internal/b.h\"\n"}});
  EXPECT_THAT(places(check_include_directions(tree)), ElementsAre("sync/a.cc:1", "sync/a.cc:2"));
}

TEST(TidyIncludes, AnIncludeInsideALiteralIsNone) {
  const Tree tree = make_tree({{"base/a.cc", "auto text = R\"(\n#include \"sync/b.h\"\n)\";\n"}});
  EXPECT_THAT(check_include_directions(tree), IsEmpty());
}

TEST(TidyIncludes, ThirdPartiesAwayFromTheEdgeAreCaught) {
  const Tree tree = make_tree({{"base/a.cc", "#include <asio.hpp>\n"},
                               {"gateway/b.cc", "#include <asio/ssl.hpp>\n#include <openssl/ssl.h>\n#include <yaml-cpp/yaml.h>\n"},
                               {"gateway/config_yaml.cc", "#include <yaml-cpp/yaml.h>\n"},
                               {"site-agent/c.cc", "#include <prometheus/registry.h>\n#include <httplib.h>\n#include <spdlog/spdlog.h>\n"},
                               {"sync/d.cc", "#include <gloo/context.h>\n#include <nccl.h>\n#include <vector>\n"},
                               {"sync/gloo/e.cc", "#include <gloo/context.h>\n"},
                               {"gateway/f.cu", "#include <cuda_runtime.h>\n"},
                               {"compression/cuda/g.cu", "#include <cuda_runtime.h>\n"}});
  EXPECT_THAT(places(check_third_party(tree)), ElementsAre("base/a.cc:1", "gateway/b.cc:3", "gateway/f.cu:1", "site-agent/c.cc:1",
                                                           "site-agent/c.cc:2", "site-agent/c.cc:3", "sync/d.cc:1", "sync/d.cc:2"));
}

TEST(TidyCores, InputOutputClocksThreadsAndLogsAreCaught) {
  const Tree tree =
      make_tree({{"compression/a.cc", "#include <fstream>\n#include <chrono>\nauto t = Clock::now();\nstd::snprintf(b, 1, \"\");\n"},
                 {"topology/b.cc", "#include <thread>\nvoid f() { log_info(\"x\", \"y\"); }\n"},
                 {"sync/c.cc", "std::random_device seed;\nint now(int);\n"}});
  EXPECT_THAT(places(check_pure_cores(tree)),
              ElementsAre("compression/a.cc:1", "topology/b.cc:1", "compression/a.cc:3", "sync/c.cc:1", "topology/b.cc:2"));
}

TEST(TidyCores, BackendsReadersAndShellsAreExempt) {
  const Tree tree = make_tree({{"sync/gloo/a.cc", "#include <thread>\n"},
                               {"topology/nccl_xml_reader.cc", "#include <fstream>\n"},
                               {"topology/readers/b.cc", "#include <fstream>\n"},
                               {"compression/c.cc", "// Clock::now() is not read here\n"},
                               {"gateway/d.cc", "#include <thread>\nauto t = Clock::now();\n"}});
  EXPECT_THAT(check_pure_cores(tree), IsEmpty());
}

TEST(TidyHeaders, MissingPragmaOnceIsCaught) {
  const Tree tree =
      make_tree({{"base/a.h", "// Comment.\n#include <vector>\n#pragma once\n"}, {"base/b.h", "// Comment.\n\n#pragma once\n"}});
  EXPECT_THAT(places(check_header_form(tree)), ElementsAre("base/a.h:2"));
}

TEST(TidyHeaders, OwnHeaderComesFirst) {
  const Tree tree = make_tree({{"base/a.h", "#pragma once\n"},
                               {"base/a.cc", "#include <vector>\n#include \"base/a.h\"\n"},
                               {"base/internal/b.h", "#pragma once\n"},
                               {"base/internal/b.cc", "// Comment.\n#include \"base/internal/b.h\"\n#include <vector>\n"},
                               {"base/c.h", "#pragma once\n"},
                               {"base/internal/c.cc", "int x;\n"},
                               {"base/d.cc", "#include <vector>\n"}});
  EXPECT_THAT(places(check_header_form(tree)), ElementsAre("base/a.cc:1", "base/internal/c.cc:0"));
}

TEST(TidyFunctions, AreMeasuredFromSignatureToClosingBrace) {
  const SourceFile file = make_source_file("base/a.cc", R"text(#include <vector>
namespace a {
namespace {
constexpr int kTable[] = {1, 2,
                          3};
struct S : Base<decltype(f())> {
  int x{0};
  S() : x{1} {
    y();
  }
  int get() const { return x; }
};
enum class E { kA, kB };
#define M(x) do { \
    x;            \
  } while (false
}  // namespace
template <typename T>
  requires(sizeof(T) > 1)
Result<std::vector<int>> f(int a,
                           std::vector<int> b = {}) {
  if (a) {
    auto g = [&](int c) { return c; };
  }
  return {};
}
auto h = [](int a) {
  return a;
};
TEST(Suite, Name) {
}
}  // namespace a
)text");
  std::vector<std::string> found;
  for (const Function& function : find_functions(file)) {
    found.push_back(std::to_string(function.first_line) + "-" + std::to_string(function.last_line));
  }
  EXPECT_THAT(found, ElementsAre("8-10", "11-11", "18-26", "27-29", "30-31"));
}

TEST(TidyFunctions, LongOnesAreCaughtInBothLanguages) {
  const Tree tree = make_tree({{"base/a.cc", "int f() {\n" + repeat("  g();\n", 68) + "}\n\nint h() {\n" + repeat("  g();\n", 69) + "}\n"},
                               {"site-agent/python/b.py", "def f():\n" + repeat("    g()\n", 69) + "\n\ndef h(\n    x,\n):\n" +
                                                              repeat("    g()\n", 68) + "\nx = 1\n"}});
  EXPECT_THAT(places(check_function_length(tree)), ElementsAre("base/a.cc:72", "site-agent/python/b.py:73"));
}

TEST(TidyLayout, LongLinesTabsAndTrailingBlanksAreCaught) {
  const std::string wide(141, 'x');
  const Tree tree = make_tree({{"base/a.cc", "//" + wide + "\n\tint x;\nint y; \nint z;\r\n"},
                               {"base/b.py", "#" + wide + "\n"},
                               {"base/c.cc", "//" + repeat("é", 138) + "\n"},
                               {"docs/d.md", "# T\n" + wide + "\nx \n"},
                               {"tests/x/testdata/e.txt", "\tx \n"}});
  EXPECT_THAT(places(check_layout(tree)),
              ElementsAre("base/a.cc:1", "base/a.cc:2", "base/a.cc:3", "base/a.cc:4", "base/b.py:1", "docs/d.md:3"));
}

TEST(TidyLayout, LongFilesAreCaught) {
  const Tree tree = make_tree({{"base/a.cc", repeat("int x;\n\n", 1000)}, {"base/b.cc", repeat("int x;\n", 1001)}});
  EXPECT_THAT(places(check_layout(tree)), ElementsAre("base/b.cc:0"));
}

TEST(TidyLeftovers, MarkersAndMalformedOpenPointsAreCaught) {
  const Tree tree = make_tree({{"base/a.cc",
                                "// FIXME: later\n// TODO: later\n// TODO(perf): faster, issue #12\n// TODO(later): x, issue #1\n"
                                "auto s = \"TODO FIXME\";\n// TODO(perf): no number\n"},
                               {"base/b.py", "x = 1  # XXX\n"},
                               {"base/CMakeLists.txt", "# FIXME\n"}});
  EXPECT_THAT(places(check_leftovers(tree)),
              ElementsAre("base/CMakeLists.txt:1", "base/a.cc:1", "base/a.cc:2", "base/a.cc:4", "base/a.cc:6", "base/b.py:1"));
}

TEST(TidyLeftovers, CodeKeptAsACommentIsCaught) {
  const Tree tree =
      make_tree({{"base/a.cc", R"(// return x;
// send(frame);
// if (x) {
// }
int y;  // std::move(x);
)"},
                 {"base/b.cc", R"(//     Result<Frame> decode(...);
// Returns early; the caller retries (see f);
// A chunk is dropped when its frame is late;
int y;  // in bytes; see limits.h
)"},
                 {"base/c.py", "# return x\n# print(x)\n# Return what was asked for, and print nothing.\n#     import sluice\n"}});
  EXPECT_THAT(places(check_leftovers(tree)),
              ElementsAre("base/a.cc:1", "base/a.cc:2", "base/a.cc:3", "base/a.cc:4", "base/a.cc:5", "base/c.py:1", "base/c.py:2"));
}

TEST(TidyBans, SleepsInTestsAreCaught) {
  const Tree tree = make_tree({{"tests/a_test.cc", "std::this_thread::sleep_for(x);\nusleep(1);\nauto s = \"sleep(1)\";  // sleep(1)\n"},
                               {"tests/e2e/b.py", "time.sleep(1)\n"},
                               {"site-agent/python/c.py", "time.sleep(1)\n"}});
  EXPECT_THAT(places(check_banned_calls(tree)), ElementsAre("tests/a_test.cc:1", "tests/a_test.cc:2", "tests/e2e/b.py:1"));
}

TEST(TidyBans, DetachingIsCaughtEverywhere) {
  const Tree tree =
      make_tree({{"gateway/a.cc", "thread.detach();\nco_spawn(x, y, asio::detached);\n// .detach() is banned\ntensor.detach_()\n"},
                 {"gateway/b.py", "x = y.detach()\n"}});
  EXPECT_THAT(places(check_banned_calls(tree)), ElementsAre("gateway/a.cc:1", "gateway/a.cc:2"));
}

TEST(TidyBans, UsingNamespaceInHeadersIsCaught) {
  const Tree tree = make_tree({{"base/a.h", "#pragma once\nusing namespace std::chrono_literals;\n"},
                               {"base/b.cc", "using namespace std::chrono_literals;\nusing namespace std;\n"}});
  EXPECT_THAT(places(check_banned_calls(tree)), ElementsAre("base/a.h:2", "base/b.cc:2"));
}

TEST(TidyBans, SkipsWithoutReasonAreCaught) {
  const Tree tree = make_tree(
      {{"tests/a_test.cc", "GTEST_SKIP();\nGTEST_SKIP() << \"no GPU\";\nGTEST_SKIP()\n    << \"no GPU\";\nTEST(A, DISABLED_b) {}\n"}});
  EXPECT_THAT(places(check_banned_calls(tree)), ElementsAre("tests/a_test.cc:1"));
  const Tree disabled = make_tree({{"tests/a_test.cc", "TEST(DISABLED_, B) {}\n"}});
  EXPECT_THAT(places(check_banned_calls(disabled)), ElementsAre("tests/a_test.cc:1"));
}

TEST(TidyBans, BuildFilesDoNotGlobOrBreakArithmetic) {
  const Tree tree = make_tree({{"base/CMakeLists.txt", "file(GLOB x *.cc)\nadd_compile_options(-ffast-math)\n"}});
  EXPECT_THAT(places(check_banned_calls(tree)), ElementsAre("base/CMakeLists.txt:1", "base/CMakeLists.txt:2"));
}

TEST(TidyNames, RepeatedAndMisspeltNamesAreCaught) {
  const Tree tree = make_tree({{"base/a.h", ""},
                               {"sync/a.h", ""},
                               {"base/BadName.cc", ""},
                               {"sync/gloo/collectives.cc", ""},
                               {"sync/nccl/collectives.cc", ""},
                               {"base/limits.h", ""},
                               {"sync/limits.h", ""},
                               {"base/README.md", ""},
                               {"sync/README.md", ""},
                               {"x/__init__.py", ""},
                               {"y/__init__.py", ""}});
  EXPECT_THAT(places(check_file_names(tree)), ElementsAre("base/BadName.cc:0", "sync/a.h:0"));
}

TEST(TidyPages, MissingPagesAndSecondTitlesAreCaught) {
  Tree tree = make_tree(
      {{"docs/a.md", "# One\n```\n# not a title\n```\n# Two\n"}, {"docs/b.md", "no title\n"}, {"docs/c.md", "# One\n```\n# x\n```\n"}});
  for (const char* folder : {"base", "proto", "compression", "topology", "sync", "gateway", "site-agent", "configs", "docs"}) {
    tree.add(std::string(folder) + "/README.md", "# Folder\n");
  }
  EXPECT_THAT(places(check_pages(tree)), ElementsAre("tests/README.md:0", "docs/a.md:0", "docs/b.md:0"));
}

TEST(TidyPages, DeadLinksAreCaught) {
  Tree tree = make_tree(
      {{"docs/a.md", "# A\n[b](b.md#part) [c](../sync/README.md) [d](https://example.org/x) [e](../gateway/) [f](#a)\n[g](h.md)\n"},
       {"docs/b.md", "# B\n"}});
  for (const char* folder : {"base", "proto", "compression", "topology", "sync", "gateway", "site-agent", "configs", "docs", "tests"}) {
    tree.add(std::string(folder) + "/README.md", "# Folder\n");
  }
  EXPECT_THAT(places(check_pages(tree)), ElementsAre("docs/a.md:3"));
}

TEST(TidyErrors, CodesAndPageMustAgree) {
  const Tree tree =
      make_tree({{"base/error_codes.def",
                  "SLUICE_ERROR_CODE(kA, 100, \"Do a.\")\nSLUICE_ERROR_CODE(kB, 101, \"Do b, then \\\"c\\\".\")\n"
                  "SLUICE_ERROR_CODE(kC, 101, \"Do c.\")\nSLUICE_ERROR_CODE(kD, 104,\n    \"Do d.\")\n"},
                 {"docs/ERRORS.md",
                  "| number | name | advice |\n|---|---|---|\n| 100 | `kA` | Do a. |\n| 101 | `kB` | Do x. |\n| 103 | `kX` | Gone. |\n"}});
  const Findings findings = check_error_table(tree);
  EXPECT_THAT(places(findings),
              ElementsAre("base/error_codes.def:3", "docs/ERRORS.md:4", "docs/ERRORS.md:4", "base/error_codes.def:4", "docs/ERRORS.md:5"));
  const Tree missing = make_tree({{"base/error_codes.def", "SLUICE_ERROR_CODE(kA, 100, \"Do a.\")\n"}, {"docs/ERRORS.md", "# Errors\n"}});
  EXPECT_THAT(check_error_table(missing).at(0).message, HasSubstr("| 100 | `kA` | Do a. |"));
}

TEST(TidyBuild, UnlistedSourcesAndHeadersAreCaught) {
  const Tree tree = make_tree({{"base/CMakeLists.txt", "x\n  a.cc\n  a.h\n  internal/b.cc\n"},
                               {"base/a.cc", ""},
                               {"base/a.h", ""},
                               {"base/aa.cc", ""},
                               {"base/c.h", ""},
                               {"base/internal/b.cc", ""},
                               {"base/internal/b.h", ""},
                               {"tests/d_test.cc", ""}});
  EXPECT_THAT(places(check_files_are_listed(tree)), ElementsAre("base/aa.cc:0", "base/c.h:0", "tests/d_test.cc:0"));
}

TEST(TidyTests, ATestWithoutGoalIsCaught) {
  const Tree tree = make_tree({{"tests/a_test.cc", "#include <x>\n"}, {"tests/b_test.cc", "// Goal: x. Method: y.\n"}});
  EXPECT_THAT(places(check_tests_say_their_goal(tree)), ElementsAre("tests/a_test.cc:1"));
}

}  // namespace
}  // namespace sluice::tidy
