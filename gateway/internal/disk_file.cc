#include "gateway/internal/disk_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace sluice::gateway {
namespace {

// EFBIG is RLIMIT_FSIZE or the file system's largest file: for the caller the same as a full disk.
bool is_out_of_space(int number) { return number == ENOSPC || number == EDQUOT || number == EFBIG; }

Error disk_error(const char* call, const std::filesystem::path& path, int number) {
  const ErrorCode code = is_out_of_space(number) ? ErrorCode::kDiskFull : number == ENOENT ? ErrorCode::kNotFound : ErrorCode::kDiskFailed;
  return Error{code, fmt::format("{} {}", call, path.string()), std::generic_category().message(number)};
}

int open_retrying(const std::filesystem::path& path, int flags) {
  int descriptor = -1;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, S_IRUSR | S_IWUSR);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

int open_flags(OpenMode mode) {
  switch (mode) {
    case OpenMode::kRead:
      return O_RDONLY;
    case OpenMode::kReadWrite:
      return O_RDWR | O_CREAT;
    case OpenMode::kReplace:
      return O_RDWR | O_CREAT | O_TRUNC;
  }
  return O_RDONLY;
}

}  // namespace

DiskFile::DiskFile(int descriptor, std::filesystem::path path) : descriptor_(descriptor), path_(std::move(path)) {}

DiskFile::DiskFile(DiskFile&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}

DiskFile& DiskFile::operator=(DiskFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  return *this;
}

DiskFile::~DiskFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Error DiskFile::error(const char* call) const { return disk_error(call, path_, errno); }

Result<DiskFile> DiskFile::open(const std::filesystem::path& path, OpenMode mode) {
  const int descriptor = open_retrying(path, open_flags(mode));
  if (descriptor < 0) return fail(disk_error("open", path, errno));
  return DiskFile(descriptor, path);
}

Result<DiskFile> DiskFile::open_unnamed(const std::filesystem::path& directory) {
  const int descriptor = open_retrying(directory, O_TMPFILE | O_RDWR);
  if (descriptor >= 0) return DiskFile(descriptor, directory / "(unnamed)");
  if (errno != EOPNOTSUPP && errno != EISDIR) return fail(disk_error("open unnamed file in", directory, errno));
  // File systems without O_TMPFILE (NFS, some overlays): a name for as short as can be. A crash in between leaves an empty file.
  const std::filesystem::path path = directory / "overflow.tmp";
  SLUICE_TRY(auto file, DiskFile::open(path, OpenMode::kReplace));
  SLUICE_CHECK_OK(remove_file(path));
  return file;
}

Result<std::size_t> DiskFile::read_at(std::uint64_t offset, std::span<std::uint8_t> into) const {
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t count = ::pread(descriptor_, into.data() + done, into.size() - done, static_cast<off_t>(offset + done));
    if (count == 0) break;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail(error("read"));
    done += static_cast<std::size_t>(count);
  }
  return done;
}

Status DiskFile::write_at(std::uint64_t offset, ByteSpan bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::pwrite(descriptor_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail(error("write"));
    done += static_cast<std::size_t>(count);
  }
  return {};
}

void DiskFile::start_writeback(std::uint64_t offset, std::uint64_t bytes) const {
  (void)::sync_file_range(descriptor_, static_cast<off64_t>(offset), static_cast<off64_t>(bytes), SYNC_FILE_RANGE_WRITE);
}

void DiskFile::drop_cached(std::uint64_t offset, std::uint64_t bytes) const {
  (void)::posix_fadvise(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_DONTNEED);
}

Status DiskFile::truncate(std::uint64_t bytes) {
  while (::ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) {
    if (errno != EINTR) return fail(error("truncate"));
  }
  return {};
}

Status DiskFile::sync() {
  while (::fdatasync(descriptor_) != 0) {
    if (errno != EINTR) return fail(error("flush"));
  }
  return {};
}

Result<std::uint64_t> DiskFile::size() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) return fail(error("stat"));
  return static_cast<std::uint64_t>(status.st_size);
}

Status DiskFile::rename_to(const std::filesystem::path& path) {
  if (::rename(path_.c_str(), path.c_str()) != 0) return fail(error("rename"));
  path_ = path;
  return {};
}

Result<bool> DiskFile::try_lock() {
  while (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR) return fail(error("lock"));
  }
  return true;
}

Result<ByteVector> read_file(const std::filesystem::path& path, std::uint64_t bytes_max) {
  SLUICE_TRY(const auto file, DiskFile::open(path, OpenMode::kRead));
  SLUICE_TRY(const std::uint64_t bytes, file.size());
  if (bytes > bytes_max) {
    return fail(ErrorCode::kLimitExceeded, "read " + path.string(), fmt::format("{} bytes, more than the limit of {}", bytes, bytes_max));
  }
  ByteVector content(bytes);
  SLUICE_TRY(const std::size_t count, file.read_at(0, content));
  content.resize(count);
  return content;
}

Status make_directories(const std::filesystem::path& path) {
  std::error_code failure;
  if (std::filesystem::create_directories(path, failure) && !failure) {
    std::filesystem::permissions(path, std::filesystem::perms::owner_all, failure);
  }
  if (failure) return fail(disk_error("make directory", path, failure.value()));
  return {};
}

Status remove_file(const std::filesystem::path& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return fail(disk_error("remove", path, errno));
  return {};
}

Status sync_directory(const std::filesystem::path& path) {
  const int descriptor = open_retrying(path, O_RDONLY | O_DIRECTORY);
  if (descriptor < 0) return fail(disk_error("open directory", path, errno));
  const int result = ::fsync(descriptor);
  const int number = errno;
  ::close(descriptor);
  if (result != 0) return fail(disk_error("flush directory", path, number));
  return {};
}

}  // namespace sluice::gateway
