// Runs a fuzz target without a fuzzing engine: every file of the folders named on the command line, then mutations of them from a fixed
// seed, so that ordinary and sanitizer builds exercise the target too. libFuzzer (./run fuzz) searches; this replays.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Input = std::vector<std::uint8_t>;

constexpr std::size_t kMutations = 4000;
constexpr std::size_t kFreshBytesMax = 512;  // length of the inputs made without a corpus

std::vector<Input> read_corpus(int count, char** folders) {
  std::vector<Input> inputs;
  for (int index = 1; index < count; ++index) {
    if (!std::filesystem::is_directory(folders[index])) continue;
    for (const auto& entry : std::filesystem::directory_iterator(folders[index])) {
      std::ifstream file(entry.path(), std::ios::binary);
      inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
  }
  return inputs;
}

// Truncates, extends or overwrites up to eight bytes.
Input mutate(Input input, std::mt19937_64& random) {
  const auto below = [&random](std::size_t bound) { return static_cast<std::size_t>(random() % bound); };
  if (input.empty()) input.resize(1 + below(kFreshBytesMax));
  switch (below(4)) {
    case 0:
      input.resize(below(input.size() + 1));
      break;
    case 1:
      input.insert(input.begin() + static_cast<std::ptrdiff_t>(below(input.size())), static_cast<std::uint8_t>(random()));
      break;
    default:
      for (std::size_t edits = 1 + below(8); edits > 0; --edits) input[below(input.size())] = static_cast<std::uint8_t>(random());
  }
  return input;
}

}  // namespace

int main(int count, char** folders) {
  std::vector<Input> inputs = read_corpus(count, folders);
  for (const Input& input : inputs) LLVMFuzzerTestOneInput(input.data(), input.size());
  if (inputs.empty()) inputs.emplace_back();
  std::mt19937_64 random(1);
  for (std::size_t run = 0; run < kMutations; ++run) {
    const Input input = mutate(inputs[run % inputs.size()], random);
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::printf("%zu inputs and %zu mutations\n", inputs.size(), kMutations);
  return 0;
}
