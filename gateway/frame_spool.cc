#include "gateway/frame_spool.h"

#include <fmt/format.h>

#include <algorithm>
#include <asio/post.hpp>
#include <asio/thread_pool.hpp>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <system_error>
#include <utility>

#include "base/assert.h"
#include "base/hash.h"
#include "gateway/internal/disk_file.h"
#include "gateway/internal/replay_file.h"

namespace sluice::gateway {
namespace {

// The frames of one round that memory had no room for. Only ever grows; its space returns with the round.
struct Overflow {
  explicit Overflow(DiskFile file_) : file(std::move(file_)) {}
  DiskFile file;
  std::uint64_t bytes = 0;  // guarded by the spool's mutex; file contents are written once before they are found
};

// Where a frame is: in memory, or in its round's overflow file.
struct Place {
  FrameBytes memory;
  std::shared_ptr<Overflow> overflow;
  std::uint64_t offset = 0;
  std::uint32_t length = 0;
  std::uint64_t hash = 0;
};

// The replay file that the frames of an update are written to as they come, so that promote() finds it nearly done. Frames that fail or are
// still being written when it is wanted cost only that: the file is then written as a whole.
struct Draft {
  explicit Draft(ReplayWriter writer_) : writer(std::move(writer_)) {}
  ReplayWriter writer;   // guarded by the spool's mutex, but for write()
  unsigned pending = 0;  // frames on their way to the disk; guarded likewise
};

std::string describe(const FrameKey& key) {
  return fmt::format("frame of round {}, role {}, site {}, set {:#x}, chunk {}", key.round, static_cast<int>(key.role), key.site,
                     key.counted.bits, key.chunk);
}

FrameKey first_of(RoundId round) {
  FrameKey key;
  key.round = round;
  key.role = static_cast<wire::FrameRole>(0);
  return key;
}

Result<FrameBytes> read_place(const Place& place, const FrameKey& key) {
  if (place.memory) return place.memory;
  ByteVector bytes(place.length);
  SLUICE_TRY(const std::size_t count, place.overflow->file.read_at(place.offset, bytes));
  if (count != bytes.size() || xxh3_64(bytes) != place.hash) {
    return fail(ErrorCode::kSpoolCorrupt, "read overflow file", describe(key) + " changed on disk");
  }
  return std::make_shared<const ByteVector>(std::move(bytes));
}

}  // namespace

struct FrameSpool::Impl {
  explicit Impl(SpoolOptions options_) : options(std::move(options_)) {}

  void find_replay_files();
  void adopt_replay_file(const std::filesystem::path& path);
  // These expect `mutex` to be held.
  bool drop_oldest_replay();
  void drop_replay(RoundId round);
  void forget(const FrameKey& key);
  Result<std::uint64_t> reserve_disk(std::uint64_t bytes);
  Result<std::shared_ptr<Overflow>> overflow_of(RoundId round);
  Result<std::vector<Place>> update_places(RoundId round, SiteSet counted, std::uint32_t chunks) const;
  void erase_rounds(RoundId from, RoundId to);

  Status put_on_disk(const FrameKey& key, const FrameBytes& bytes);
  void add_to_draft(const FrameKey& key, const FrameBytes& bytes);
  bool finish_draft(RoundId round, SiteSet counted, std::uint32_t chunks);
  void keep_replay(const ReplayInfo& info);
  std::shared_ptr<Draft> take_draft(RoundId round, SiteSet counted, std::uint32_t chunks);
  void drop_draft();
  Status write_making_room(const std::function<Status()>& write);

  SpoolOptions options;
  std::vector<std::string> warnings;
  mutable std::mutex mutex;
  // ---- guarded by mutex ----
  std::map<FrameKey, Place> frames;  // ordered by round first
  std::map<RoundId, std::shared_ptr<Overflow>> overflows;
  std::map<RoundId, ReplayInfo> replays;
  std::shared_ptr<Draft> draft;  // of the update that frames came for last
  std::condition_variable draft_written;
  std::uint64_t memory_bytes = 0;
  std::uint64_t disk_bytes = 0;  // overflow and replay files, those being written and the draft included
  // ---- not guarded; last, so that it ends before what its work uses ----
  asio::thread_pool disk_thread{1};
};

FrameSpool::FrameSpool(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
FrameSpool::FrameSpool(FrameSpool&&) noexcept = default;
FrameSpool& FrameSpool::operator=(FrameSpool&&) noexcept = default;
FrameSpool::~FrameSpool() {
  if (impl_) impl_->disk_thread.join();
}

Result<FrameSpool> FrameSpool::open(SpoolOptions options) {
  SLUICE_CHECK_OK(make_directories(options.directory));
  auto impl = std::make_unique<Impl>(std::move(options));
  impl->find_replay_files();
  return FrameSpool(std::move(impl));
}

void FrameSpool::Impl::find_replay_files() {
  std::error_code failure;
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(options.directory, failure)) paths.push_back(entry.path());
  if (failure) warnings.push_back(fmt::format("list {}: {}", options.directory.string(), failure.message()));
  for (const auto& path : paths) {
    if (parse_replay_file_name(path.filename())) {
      adopt_replay_file(path);
    } else if (is_temporary_replay_file(path)) {
      static_cast<void>(remove_file(path));  // half-written when the process ended
    }
  }
  const std::lock_guard lock(mutex);
  while (replays.size() > options.keep_rounds || disk_bytes > options.disk_bytes_max) {
    if (!drop_oldest_replay()) break;
  }
}

void FrameSpool::Impl::adopt_replay_file(const std::filesystem::path& path) {
  const auto info = read_replay_info(path);
  if (info && info->round == parse_replay_file_name(path.filename())) {
    replays[info->round] = *info;
    disk_bytes += info->file_bytes;
    return;
  }
  warnings.push_back(fmt::format("{} removed: {}", path.string(), info ? "it holds another round" : info.error().detail));
  if (const auto removed = remove_file(path); !removed) warnings.push_back(removed.error().to_string());
}

bool FrameSpool::Impl::drop_oldest_replay() {
  if (replays.empty()) return false;
  drop_replay(replays.begin()->first);
  return true;
}

void FrameSpool::Impl::drop_replay(RoundId round) {
  const auto found = replays.find(round);
  if (found == replays.end()) return;
  // A file that cannot be removed would be found again at the next start; its space is counted as free until then.
  static_cast<void>(remove_file(options.directory / replay_file_name(round)));
  disk_bytes -= found->second.file_bytes;
  replays.erase(found);
}

void FrameSpool::Impl::forget(const FrameKey& key) {
  const auto found = frames.find(key);
  if (found == frames.end()) return;
  if (found->second.memory) memory_bytes -= found->second.memory->size();
  frames.erase(found);
}

// Counts the bytes as used; the oldest replay files make way. Returns what it counted.
Result<std::uint64_t> FrameSpool::Impl::reserve_disk(std::uint64_t bytes) {
  while (disk_bytes + bytes > options.disk_bytes_max) {
    if (drop_oldest_replay()) continue;
    return fail(ErrorCode::kDiskFull, "spool to " + options.directory.string(),
                fmt::format("{} bytes in use and {} more needed, over the limit of {}", disk_bytes, bytes, options.disk_bytes_max));
  }
  disk_bytes += bytes;
  return bytes;
}

Result<std::shared_ptr<Overflow>> FrameSpool::Impl::overflow_of(RoundId round) {
  auto& overflow = overflows[round];
  if (!overflow) {
    auto file = DiskFile::open_unnamed(options.directory);
    if (!file) {
      overflows.erase(round);
      return fail(file.error());
    }
    overflow = std::make_shared<Overflow>(std::move(*file));
  }
  return overflow;
}

// The disk itself may be fuller than the budget says, from others' files: our oldest replay files make way there, too.
Status FrameSpool::Impl::write_making_room(const std::function<Status()>& write) {
  while (true) {
    Status written = write();
    if (written || written.error().code != ErrorCode::kDiskFull) return written;
    const std::lock_guard lock(mutex);
    if (!drop_oldest_replay()) return written;
  }
}

Status FrameSpool::put(const FrameKey& key, ByteVector bytes) { return put(key, std::make_shared<const ByteVector>(std::move(bytes))); }

Status FrameSpool::put(const FrameKey& key, FrameBytes bytes) {
  SLUICE_ASSERT(bytes != nullptr && bytes->size() <= wire::kFrameRecordBytesMax, "{} bytes", bytes ? bytes->size() : 0);
  bool is_kept = false;
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->forget(key);
    if (impl_->memory_bytes + bytes->size() <= impl_->options.memory_bytes_max) {
      impl_->memory_bytes += bytes->size();
      impl_->frames[key].memory = bytes;
      is_kept = true;
    }
  }
  if (!is_kept) SLUICE_CHECK_OK(impl_->put_on_disk(key, bytes));
  if (key.role == wire::FrameRole::kUpdate) impl_->add_to_draft(key, bytes);
  return {};
}

// One draft at a time: another round or set ends the one before. Errors end it, too, and are promote()'s to report.
void FrameSpool::Impl::add_to_draft(const FrameKey& key, const FrameBytes& bytes) {
  std::shared_ptr<Draft> current;
  std::uint64_t offset = 0;
  {
    const std::lock_guard lock(mutex);
    if (!draft || draft->writer.round() != key.round || draft->writer.counted() != key.counted) {
      drop_draft();
      auto writer = ReplayWriter::open(options.directory, key.round, key.counted);
      if (!writer) return;
      draft = std::make_shared<Draft>(std::move(*writer));
    }
    if (!reserve_disk(bytes->size())) return drop_draft();
    current = draft;
    offset = current->writer.reserve(bytes->size());
    ++current->pending;
  }
  // Not here: a disk that is busy would hold up the rounds.
  asio::post(disk_thread, [this, current = std::move(current), offset, chunk = key.chunk, bytes]() mutable {
    const Status written = current->writer.write(offset, *bytes);
    const std::uint64_t hash = xxh3_64(*bytes);
    const std::lock_guard lock(mutex);
    --current->pending;
    if (written) {
      current->writer.enter(chunk, offset, static_cast<std::uint32_t>(bytes->size()), hash);
    } else if (draft == current) {
      drop_draft();
    }
    current.reset();
    draft_written.notify_all();
  });
}

void FrameSpool::Impl::drop_draft() {
  if (!draft) return;
  disk_bytes -= draft->writer.bytes();
  draft->writer.abandon();  // the disk thread may hold it a little longer
  draft.reset();
}

// The draft when it is the whole of this update and nobody else writes to it; its bytes stay counted.
std::shared_ptr<Draft> FrameSpool::Impl::take_draft(RoundId round, SiteSet counted, std::uint32_t chunks) {
  if (!draft || draft->pending > 0 || draft->writer.round() != round || draft->writer.counted() != counted ||
      !draft->writer.is_complete(chunks)) {
    drop_draft();
    return nullptr;
  }
  return std::exchange(draft, nullptr);
}

Status FrameSpool::Impl::put_on_disk(const FrameKey& key, const FrameBytes& bytes) {
  Place place;
  place.length = static_cast<std::uint32_t>(bytes->size());
  place.hash = xxh3_64(*bytes);
  {
    const std::lock_guard lock(mutex);
    SLUICE_TRY(place.overflow, overflow_of(key.round));
    SLUICE_TRY(const std::uint64_t reserved, reserve_disk(bytes->size()));
    place.offset = place.overflow->bytes;
    place.overflow->bytes += reserved;
  }
  const Status written = write_making_room([&] { return place.overflow->file.write_at(place.offset, *bytes); });
  const std::lock_guard lock(mutex);
  const auto current = overflows.find(key.round);
  if (current == overflows.end() || current->second != place.overflow) return {};  // the round was dropped meanwhile: nobody will ask
  if (!written) return written;                                                    // the place stays counted until the round is dropped
  forget(key);
  frames[key] = std::move(place);
  return {};
}

Result<FrameBytes> FrameSpool::get(const FrameKey& key) const {
  Place place;
  {
    const std::lock_guard lock(impl_->mutex);
    const auto found = impl_->frames.find(key);
    if (found == impl_->frames.end()) return fail(ErrorCode::kNotFound, "get frame", describe(key));
    place = found->second;
  }
  return read_place(place, key);
}

bool FrameSpool::has(const FrameKey& key) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->frames.contains(key);
}

// Rounds from .. to - 1.
void FrameSpool::Impl::erase_rounds(RoundId from, RoundId to) {
  const auto begin = frames.lower_bound(first_of(from));
  const auto end = frames.lower_bound(first_of(to));
  for (auto frame = begin; frame != end; ++frame) {
    if (frame->second.memory) memory_bytes -= frame->second.memory->size();
  }
  frames.erase(begin, end);
  if (draft && draft->writer.round() >= from && draft->writer.round() < to) drop_draft();
  const auto overflow_end = overflows.lower_bound(to);
  for (auto overflow = overflows.lower_bound(from); overflow != overflow_end;) {
    disk_bytes -= overflow->second->bytes;
    overflow = overflows.erase(overflow);
  }
}

void FrameSpool::drop_round(RoundId round) {
  const std::lock_guard lock(impl_->mutex);
  impl_->erase_rounds(round, round.next());
}

void FrameSpool::drop_rounds_before(RoundId round) {
  const std::lock_guard lock(impl_->mutex);
  impl_->erase_rounds(RoundId(0), round);
}

Result<std::vector<Place>> FrameSpool::Impl::update_places(RoundId round, SiteSet counted, std::uint32_t chunks) const {
  std::vector<Place> places;
  places.reserve(chunks);
  FrameKey key{round, wire::FrameRole::kUpdate, SiteId(0), counted, ChunkId(0)};
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
    key.chunk = ChunkId(chunk);
    const auto found = frames.find(key);
    if (found == frames.end()) return fail(ErrorCode::kNotFound, "promote update", describe(key));
    places.push_back(found->second);
  }
  return places;
}

Status FrameSpool::promote(RoundId round, SiteSet counted, std::uint32_t chunks) {
  if (impl_->finish_draft(round, counted, chunks)) return {};
  std::vector<Place> places;
  std::uint64_t file_bytes = replay_overhead_bytes(chunks);
  {
    const std::lock_guard lock(impl_->mutex);
    SLUICE_TRY(places, impl_->update_places(round, counted, chunks));
    for (const Place& place : places) file_bytes += place.memory ? place.memory->size() : place.length;
    impl_->drop_replay(round);
    SLUICE_CHECK_OK(impl_->reserve_disk(file_bytes));
  }
  const auto frame_of = [&](ChunkId chunk) {
    return read_place(places[chunk.value], FrameKey{round, wire::FrameRole::kUpdate, SiteId(0), counted, chunk});
  };
  const Status written = impl_->write_making_room([&]() -> Status {
    SLUICE_CHECK_OK(write_replay_file(impl_->options.directory, round, counted, chunks, frame_of));
    return {};
  });
  const std::lock_guard lock(impl_->mutex);
  if (!written) {
    impl_->disk_bytes -= file_bytes;
    return written;
  }
  impl_->keep_replay(ReplayInfo{round, counted, chunks, file_bytes});
  return {};
}

void FrameSpool::Impl::keep_replay(const ReplayInfo& info) {
  replays[info.round] = info;
  while (replays.size() > std::max<std::size_t>(options.keep_rounds, 1)) drop_oldest_replay();
}

// False when the update has to be written as a whole.
bool FrameSpool::Impl::finish_draft(RoundId round, SiteSet counted, std::uint32_t chunks) {
  std::unique_lock lock(mutex);
  draft_written.wait(lock, [&] { return !draft || draft->pending == 0; });
  const std::shared_ptr<Draft> done = take_draft(round, counted, chunks);
  if (!done) return false;
  drop_replay(round);
  std::uint64_t counted_bytes = done->writer.bytes();
  const auto reserved = reserve_disk(replay_overhead_bytes(chunks));
  if (reserved) counted_bytes += *reserved;
  const auto info = reserved ? done->writer.finish(chunks) : Result<ReplayInfo>(fail(reserved.error()));
  if (!info) {
    disk_bytes -= counted_bytes;
    return false;
  }
  keep_replay(*info);
  return true;
}

bool FrameSpool::has_committed(RoundId round) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->replays.contains(round);
}

Result<FrameBytes> FrameSpool::get_committed(RoundId round, ChunkId chunk) {
  ReplayInfo info;
  {
    const std::lock_guard lock(impl_->mutex);
    const auto found = impl_->replays.find(round);
    if (found == impl_->replays.end())
      return fail(ErrorCode::kNotFound, "get committed update", fmt::format("round {} is not kept", round));
    info = found->second;
  }
  auto frame = read_replay_frame(impl_->options.directory / replay_file_name(round), info, chunk);
  if (frame) return std::make_shared<const ByteVector>(std::move(*frame));
  if (frame.error().code == ErrorCode::kSpoolCorrupt) {
    const std::lock_guard lock(impl_->mutex);
    impl_->drop_replay(round);
  }
  return fail(std::move(frame).error());
}

bool FrameSpool::free_oldest() {
  const std::lock_guard lock(impl_->mutex);
  return impl_->replays.size() > 1 && impl_->drop_oldest_replay();
}

bool FrameSpool::free_oldest_in(const std::filesystem::path& directory) {
  std::set<RoundId> rounds;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(directory, failure)) {
    if (const auto round = parse_replay_file_name(entry.path().filename())) rounds.insert(*round);
  }
  return rounds.size() > 1 && remove_file(directory / replay_file_name(*rounds.begin())).has_value();
}

std::optional<RoundId> FrameSpool::oldest_round() const {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->replays.empty()) return std::nullopt;
  return impl_->replays.begin()->first;
}

std::optional<RoundId> FrameSpool::newest_round() const {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->replays.empty()) return std::nullopt;
  return impl_->replays.rbegin()->first;
}

void FrameSpool::drop_committed_from(RoundId round) {
  const std::lock_guard lock(impl_->mutex);
  while (!impl_->replays.empty() && impl_->replays.rbegin()->first >= round) impl_->drop_replay(impl_->replays.rbegin()->first);
}

std::uint64_t FrameSpool::bytes_in_memory() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->memory_bytes;
}

std::uint64_t FrameSpool::bytes_on_disk() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->disk_bytes;
}

const std::vector<std::string>& FrameSpool::warnings() const { return impl_->warnings; }

}  // namespace sluice::gateway
