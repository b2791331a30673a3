// Layout, little-endian: header {magic u64, version u32, chunks in all u32, manifest hash u64, first chunk u32, end chunk u32, round u64,
// XXH3-64 of these 40 bytes}, then for each chunk {round u64, values u64, parameters, momentum, residual as fp32, XXH3-64 of all that}.

#include "site-agent/internal/state_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/hash.h"

namespace sluice::site_agent {
namespace {

constexpr std::uint64_t kMagic = 0x3145'5441'5453'4c53U;  // "SLSTATE1"
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 48;

class File {
 public:
  File(const std::string& path, int flags) : descriptor_(open(path.c_str(), flags | O_CLOEXEC, 0600)) {}
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  [[nodiscard]] bool is_open() const { return descriptor_ >= 0; }
  bool write_all(ByteSpan bytes) {
    while (!bytes.empty()) {
      const ssize_t written = write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return true;
  }
  bool read_all(std::span<std::uint8_t> bytes) {
    while (!bytes.empty()) {
      const ssize_t got = read(descriptor_, bytes.data(), bytes.size());
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    }
    return true;
  }
  bool sync() { return fsync(descriptor_) == 0; }

 private:
  int descriptor_;
};

auto failed(const char* operation, const std::string& path, const std::string& why) {
  return fail(ErrorCode::kAgentStateFile, operation, fmt::format("{}: {}", path, why));
}

ByteVector make_header(const ShardState& state, const sync::Manifest& manifest) {
  ByteVector header;
  ByteWriter writer(header);
  writer.write(kMagic);
  writer.write(kVersion);
  writer.write(manifest.chunk_count());
  writer.write(manifest.hash());
  writer.write(state.chunks().begin);
  writer.write(state.chunks().end);
  writer.write(state.round_min());
  writer.write(xxh3_64(header));
  return header;
}

void write_floats(ByteWriter& writer, std::span<const float> values) {
  writer.write_span({reinterpret_cast<const std::uint8_t*>(values.data()), values.size_bytes()});
}

bool write_chunks(File& file, const ShardState& state) {
  ByteVector record;
  for (std::uint32_t index = state.chunks().begin; index < state.chunks().end; ++index) {
    const ChunkId chunk(index);
    record.clear();
    ByteWriter writer(record);
    writer.write(state.chunk_round(chunk));
    writer.write(static_cast<std::uint64_t>(state.parameters(chunk).size()));
    write_floats(writer, state.parameters(chunk));
    write_floats(writer, state.momentum(chunk));
    write_floats(writer, state.residual(chunk));
    writer.write(xxh3_64(record));
    if (!file.write_all(record)) return false;
  }
  return true;
}

}  // namespace

Status write_state_file(const std::string& path, const ShardState& state, const sync::Manifest& manifest) {
  const char* operation = "save state";
  const std::string temporary = path + ".tmp";
  {
    File file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
    const bool is_written = file.is_open() && file.write_all(make_header(state, manifest)) && write_chunks(file, state) && file.sync();
    if (!is_written) {
      const std::string why = std::strerror(errno);
      unlink(temporary.c_str());
      return failed(operation, temporary, why);
    }
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) return failed(operation, path, std::strerror(errno));
  const std::string directory = std::filesystem::path(path).parent_path().string();
  File folder(directory.empty() ? "." : directory, O_RDONLY | O_DIRECTORY);
  if (!folder.is_open() || !folder.sync()) return failed(operation, directory, std::strerror(errno));
  return {};
}

Status read_state_file(const std::string& path, const sync::Manifest& manifest, ShardState& state) {
  const char* operation = "load state";
  File file(path, O_RDONLY);
  if (!file.is_open()) return failed(operation, path, std::strerror(errno));
  ByteVector header(kHeaderBytes);
  if (!file.read_all(header)) return failed(operation, path, "too short");
  ByteReader reader(header);
  if (reader.read<std::uint64_t>() != kMagic) return failed(operation, path, "not a state file");
  if (const auto version = reader.read<std::uint32_t>(); version != kVersion) {
    return failed(operation, path, fmt::format("version {}, expected {}", version, kVersion));
  }
  const auto chunks = reader.read<std::uint32_t>();
  const auto hash = reader.read<std::uint64_t>();
  const auto begin = reader.read<std::uint32_t>();
  const auto end = reader.read<std::uint32_t>();
  const auto round = reader.read<std::uint64_t>();
  if (reader.read<std::uint64_t>() != xxh3_64(ByteSpan(header).first(kHeaderBytes - 8))) return failed(operation, path, "damaged header");
  if (hash != manifest.hash() || chunks != manifest.chunk_count()) return failed(operation, path, "it is of another model");
  if (begin != state.chunks().begin || end != state.chunks().end) {
    return failed(operation, path, "it is of another rank or number of ranks");
  }
  state.note_round(round);
  for (std::uint32_t index = begin; index < end; ++index) {
    const std::size_t values = manifest.chunk_values(ChunkId(index)).count();
    ByteVector record(24 + 3 * values * sizeof(float));
    if (!file.read_all(record)) return failed(operation, path, fmt::format("ends within chunk {}", index));
    if (load_le<std::uint64_t>(record.data() + record.size() - 8) != xxh3_64(ByteSpan(record).first(record.size() - 8)) ||
        load_le<std::uint64_t>(record.data() + 8) != values) {
      return failed(operation, path, fmt::format("chunk {} is damaged", index));
    }
    std::vector<float> numbers(3 * values);
    std::memcpy(numbers.data(), record.data() + 16, numbers.size() * sizeof(float));
    const std::span<const float> all(numbers);
    state.set_chunk(ChunkId(index), load_le<std::uint64_t>(record.data()), all.first(values), all.subspan(values, values),
                    all.last(values));
  }
  return {};
}

}  // namespace sluice::site_agent
