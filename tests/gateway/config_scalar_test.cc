// Goal: one scalar has one reading or none.
// Method: tables of texts with their value, and of texts that are refused; then every formatted value is read back.

#include "gateway/internal/config_scalar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace sluice::gateway {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

TEST(ConfigScalar, OnlyDecimalIntegersAreRead) {
  EXPECT_EQ(parse_strict_integer("0").value, 0);
  EXPECT_EQ(parse_strict_integer("10").value, 10);
  EXPECT_EQ(parse_strict_integer("-7").value, -7);
  EXPECT_EQ(parse_strict_integer("9223372036854775807").value, INT64_MAX);
  for (const char* text : {"",
                           "-",
                           "+1",
                           " 1",
                           "1 ",
                           "01",
                           "00",
                           "-010",
                           "0x10",
                           "0b1",
                           "0o7",
                           "1_000",
                           "1,000",
                           "1e3",
                           "1.0",
                           "٣",
                           "9223372036854775808",
                           "99999999999999999999",
                           ".nan",
                           "~"}) {
    EXPECT_FALSE(parse_strict_integer(text).value) << text;
  }
}

TEST(ConfigScalar, OnlyFiniteDecimalRealsAreRead) {
  EXPECT_EQ(parse_strict_real("0.5").value, 0.5);
  EXPECT_EQ(parse_strict_real("3").value, 3.0);
  EXPECT_EQ(parse_strict_real("1e-3").value, 1e-3);
  EXPECT_EQ(parse_strict_real("-2.5E+2").value, -250.0);
  for (const char* text :
       {"", ".5", "5.", "05", "1e", "1e+", "nan", ".nan", "NaN", "inf", "-.inf", "Infinity", "0x1p3", "1e999", "1 ", "1f"}) {
    EXPECT_FALSE(parse_strict_real(text).value) << text;
  }
}

TEST(ConfigScalar, OnlyTrueAndFalseAreBooleans) {
  EXPECT_EQ(parse_strict_bool("true").value, true);
  EXPECT_EQ(parse_strict_bool("false").value, false);
  for (const char* text : {"yes", "no", "on", "off", "y", "n", "True", "TRUE", "False", "1", "0", "", "~"}) {
    EXPECT_FALSE(parse_strict_bool(text).value) << text;
  }
  EXPECT_THAT(parse_strict_bool("off").trouble, HasSubstr("write `false`"));
}

TEST(ConfigScalar, QuantitiesNeedTheirUnit) {
  EXPECT_EQ(parse_duration("90 s").value, milliseconds(90'000));
  EXPECT_EQ(parse_duration("1.5min").value, milliseconds(90'000));
  EXPECT_EQ(parse_duration("0.1 s").value, milliseconds(100));
  EXPECT_EQ(parse_duration("0 ms").value, milliseconds(0));
  EXPECT_EQ(parse_duration("2 h").value, milliseconds(7'200'000));
  EXPECT_EQ(parse_size("64 MiB").value, Bytes{64 * kMiB});
  EXPECT_EQ(parse_size("0.5KiB").value, Bytes{512});
  EXPECT_EQ(parse_rate("200 Mbit/s").value, BitsPerSecond{2e8});
  EXPECT_EQ(parse_rate("1.5 Gbit/s").value, BitsPerSecond{1.5e9});
  for (const char* text : {"", "90", "s", "90 S", "90 sec", "1 m", "-1 s", "1 s 2", "0.0001 s", "1e3 s", "1..5 s", "1 d", "٩ s"}) {
    EXPECT_FALSE(parse_duration(text).value) << text;
  }
  for (const char* text : {"64", "64 MB", "64 M", "64 mib", "64 Mb", "-1 B", "0.3 B", "99999999999999 GiB"}) {
    EXPECT_FALSE(parse_size(text).value) << text;
  }
  for (const char* text : {"200", "200 Mbps", "25 MB/s", "200 mbit/s", "1 gbit/s", "-1 bit/s"})
    EXPECT_FALSE(parse_rate(text).value) << text;
}

TEST(ConfigScalar, FormattedQuantitiesAreReadBack) {
  for (const std::int64_t count : {0LL, 1LL, 999LL, 1000LL, 1500LL, 60'000LL, 90'000LL, 3'600'000LL, 5'400'000LL, 604'800'000LL}) {
    EXPECT_EQ(parse_duration(format_duration(milliseconds(count))).value, milliseconds(count)) << format_duration(milliseconds(count));
  }
  for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{1}, kKiB - 1, kKiB, 3 * kMiB, 7 * kGiB, 65'536 * kGiB, kGiB + 1}) {
    EXPECT_EQ(parse_size(format_size(Bytes{count})).value, Bytes{count}) << format_size(Bytes{count});
  }
  for (const double rate : {1.0, 999.0, 1e4, 1.5e6, 2e8, 1.234567e9, 1e13}) {
    EXPECT_EQ(parse_rate(format_rate(BitsPerSecond{rate})).value, BitsPerSecond{rate}) << format_rate(BitsPerSecond{rate});
  }
  EXPECT_EQ(format_duration(milliseconds(90'000)), "90 s");
  EXPECT_EQ(format_size(Bytes{64 * kMiB}), "64 MiB");
}

TEST(ConfigScalar, EndpointsAreHostAndPort) {
  EXPECT_EQ(parse_endpoint("gw.example.org:7400").value, (Endpoint{"gw.example.org", 7400}));
  EXPECT_EQ(parse_endpoint("10.0.0.1:0").value, (Endpoint{"10.0.0.1", 0}));
  EXPECT_EQ(parse_endpoint("[fe80::1]:7400").value, (Endpoint{"fe80::1", 7400}));
  EXPECT_EQ((Endpoint{"fe80::1", 7400}).to_string(), "[fe80::1]:7400");
  for (const char* text : {"", ":", "host", "host:", ":7400", "host:70000", "host:-1", "host:07400", "::1:7400", "[::1]", "[]:1",
                           "[host]:1", "ho st:1", "host:1 ", "http://host:1", "user@host:1", "-host:1", "host:1/path"}) {
    EXPECT_FALSE(parse_endpoint(text).value) << text;
  }
}

TEST(ConfigScalar, NamesAreSafeInCertificatesLabelsAndPaths) {
  for (const char* text : {"a", "7", "us-east-1", "x0"}) EXPECT_TRUE(parse_name(text).value) << text;
  for (const char* text : {"", "-a", "a-", "A", "a_b", "a.b", "a/b", "..", "a b", "a\n", "é"}) {
    EXPECT_FALSE(parse_name(text).value) << text;
  }
  EXPECT_TRUE(parse_name(std::string(63, 'a')).value);
  EXPECT_FALSE(parse_name(std::string(64, 'a')).value);
  EXPECT_TRUE(parse_domain("train_1.example.org").value);
  for (const char* text : {"", "A.example", "a/b", "spiffe://a", "a b", "a:1"}) EXPECT_FALSE(parse_domain(text).value) << text;
}

TEST(ConfigScalar, NearestWordFindsSlipsButNotOtherWords) {
  const std::vector<std::string> words{"deadline", "open_grace", "commit_deadline", "quorum", "bits"};
  EXPECT_EQ(nearest_word("dedline", words), "deadline");
  EXPECT_EQ(nearest_word("qourum", words), "quorum");
  EXPECT_EQ(nearest_word("Bits", words), "bits");
  EXPECT_EQ(nearest_word("opengrace", words), "open_grace");
  EXPECT_EQ(nearest_word("zebra", words), std::nullopt);
  EXPECT_EQ(nearest_word("", words), std::nullopt);
  EXPECT_EQ(nearest_word(std::string(10'000, 'x'), words), std::nullopt);
  EXPECT_EQ(nearest_word("deadline", {}), std::nullopt);
}

}  // namespace
}  // namespace sluice::gateway
