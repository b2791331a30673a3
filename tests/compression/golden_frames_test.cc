// Goal: frame format version 1 stays what it is: encoders make the same bytes as the files, decoders read the files, and the error
// vectors give their errors. Method: tests/testdata/frames/golden.txt, one vector a line (frame NAME HEX, hash NAME XXH3,
// older NAME HEX: what an encoder of before made of the same input, error CODE HEX).
#include "tests/compression/golden_frames.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "base/hash.h"
#include "compression/frame_decoder.h"

namespace sluice::compression {
namespace {

struct Vector {
  std::string kind;
  std::string name;
  std::string text;
};

std::vector<Vector> load_vectors() {
  std::ifstream file(std::string(SLUICE_SOURCE_DIR) + "/tests/testdata/frames/golden.txt");
  std::vector<Vector> vectors;
  Vector vector;
  while (file >> vector.kind >> vector.name >> vector.text) vectors.push_back(vector);
  return vectors;
}

ByteVector from_hex(const std::string& text) {
  ByteVector bytes;
  for (std::size_t at = 0; at + 1 < text.size(); at += 2)
    bytes.push_back(static_cast<std::uint8_t>(std::stoul(text.substr(at, 2), nullptr, 16)));
  return bytes;
}

TEST(GoldenFrames, EncodersMakeTheseBytes) {
  std::size_t compared = 0;
  for (const Vector& vector : load_vectors()) {
    if (vector.kind == "frame") {
      EXPECT_EQ(make_golden_frame(vector.name), from_hex(vector.text)) << vector.name;
      ++compared;
    } else if (vector.kind == "hash") {
      EXPECT_EQ(fmt::format("{:016x}", xxh3_64(make_golden_frame(vector.name))), vector.text) << vector.name;
      ++compared;
    }
  }
  EXPECT_EQ(compared, std::size(kGoldenNames));
}

TEST(GoldenFrames, DecodersReadThem) {
  for (const Vector& vector : load_vectors()) {
    if (vector.kind != "frame" && vector.kind != "older") continue;
    const ByteVector bytes = from_hex(vector.text);
    const auto view = parse_frame(bytes);
    ASSERT_TRUE(view) << vector.name << ": " << view.error().to_string();
    std::vector<float> values(view->header.value_count);
    EXPECT_TRUE(decode_frame(*view, values)) << vector.name;
    if (vector.kind != "older") continue;
    const ByteVector newer = make_golden_frame(vector.name);
    std::vector<float> same(values.size());
    ASSERT_TRUE(decode_frame(*parse_frame(newer), same)) << vector.name;
    EXPECT_EQ(values, same) << vector.name;
  }
}

TEST(GoldenFrames, ErrorVectorsGiveTheirErrors) {
  std::map<std::string, int> seen;
  for (const Vector& vector : load_vectors()) {
    if (vector.kind != "error") continue;
    const ByteVector bytes = from_hex(vector.text);
    const auto view = parse_frame(bytes);
    Status status;
    if (view) {
      std::vector<float> values(view->header.value_count);
      status = decode_frame(*view, values);
    } else {
      status = fail(view.error());
    }
    ASSERT_FALSE(status) << vector.name;
    EXPECT_EQ(error_code_name(status.error().code), vector.name) << status.error().to_string();
    ++seen[vector.name];
  }
  EXPECT_EQ(seen.size(), 6U);  // each code that frames can give
}

}  // namespace
}  // namespace sluice::compression
