// Certificates as files. Keys are written with mode 0600 from the first byte on; a file that is replaced is replaced as a whole.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>

#include "gateway/certs.h"
#include "gateway/internal/config_scalar.h"
#include "gateway/tls_context.h"

namespace sluice::gateway {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOperation = "make certificates";
constexpr std::size_t kPemBytesMax = 64 * 1024;
// The authority lives longer than the certificates that it signs: replacing it takes all sites at once.
constexpr int kAuthorityDays = 3650;

tl::unexpected<Error> refuse(std::string detail) {
  return fail(ErrorCode::kCertificateRefused, std::string(kOperation), std::move(detail));
}
tl::unexpected<Error> refuse_errno(const fs::path& path) { return refuse(fmt::format("{}: {}", path.native(), std::strerror(errno))); }

struct FileToWrite {
  fs::path path;
  std::string text;
  bool secret = false;
};

Status write_all(int descriptor, const FileToWrite& file) {
  std::string_view rest = file.text;
  while (!rest.empty()) {
    const ssize_t written = ::write(descriptor, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return refuse_errno(file.path);
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::fsync(descriptor) != 0) return refuse_errno(file.path);
  return {};
}

Status write_file(const FileToWrite& file) {
  const fs::path temporary = file.path.native() + ".new";
  const mode_t mode = file.secret ? 0600 : 0644;
  ::unlink(temporary.c_str());
  const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
  if (descriptor < 0) return refuse_errno(temporary);
  Status status = write_all(descriptor, file);
  if (::close(descriptor) != 0 && status) status = refuse_errno(temporary);
  if (status && ::rename(temporary.c_str(), file.path.c_str()) != 0) status = refuse_errno(file.path);
  if (!status) ::unlink(temporary.c_str());
  return status;
}

Result<std::string> read_pem(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return refuse_errno(path);
  std::string text(kPemBytesMax, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return text;
}

Status check_request(const CertificateRun& run) {
  if (const auto name = parse_name(run.run); !name.value) return refuse(fmt::format("run name `{}`: {}", run.run, name.trouble));
  if (const auto domain = parse_domain(run.domain); !domain.value)
    return refuse(fmt::format("domain `{}`: {}", run.domain, domain.trouble));
  if (run.days < 1 || run.days > kAuthorityDays) return refuse(fmt::format("{} days; 1 to {}", run.days, kAuthorityDays));
  if (run.sites.empty()) return refuse("no site is named");
  for (const std::string& site : run.sites) {
    if (const auto name = parse_name(site); !name.value) return refuse(fmt::format("site name `{}`: {}", site, name.trouble));
    if (std::count(run.sites.begin(), run.sites.end(), site) > 1) return refuse(fmt::format("site `{}` is named twice", site));
  }
  return {};
}

// The authority in the directory, checked to be that of the run.
Result<KeyAndCertificate> read_authority(const fs::path& directory, const CertificateRun& run) {
  KeyAndCertificate authority;
  SLUICE_TRY(authority.certificate_pem, read_pem(directory / "ca.pem"));
  SLUICE_TRY(authority.key_pem, read_pem(directory / "ca.key"));
  SLUICE_TRY(const CertificateFacts facts, read_certificate(authority.certificate_pem));
  const std::vector<std::string> expected{"spiffe://" + run.domain};
  if (!facts.is_authority || facts.common_name != run.run || facts.identities != expected) {
    return refuse(fmt::format("{} is of run `{}`, {}; expected run `{}`, spiffe://{}", (directory / "ca.pem").native(), facts.common_name,
                              fmt::join(facts.identities, ", "), run.run, run.domain));
  }
  return authority;
}

struct LeafName {
  std::string file;  // without extension
  std::string common_name;
  std::string identity;
};

std::vector<LeafName> leaf_names(const CertificateRun& run) {
  std::vector<LeafName> names;
  for (const std::string& site : run.sites) {
    names.push_back({"site-" + site, site, site_uri(run.domain, site)});
    if (run.with_agents) names.push_back({"agent-" + site, site, agent_uri(run.domain, site)});
  }
  return names;
}

Status check_absent(const fs::path& directory, const std::vector<LeafName>& names) {
  for (const LeafName& name : names) {
    for (const char* extension : {".pem", ".key"}) {
      const fs::path path = directory / (name.file + extension);
      std::error_code error;
      if (fs::exists(fs::symlink_status(path, error))) {
        return fail(ErrorCode::kCertificateExists, std::string(kOperation), fmt::format("{} exists", path.native()));
      }
    }
  }
  return {};
}

}  // namespace

Result<std::vector<fs::path>> write_certificates(const fs::path& directory, const CertificateRun& run, WallTime now) {
  SLUICE_CHECK_OK(check_request(run));
  const std::vector<LeafName> names = leaf_names(run);
  if (!run.overwrite) SLUICE_CHECK_OK(check_absent(directory, names));
  std::error_code error;
  if (fs::create_directories(directory, error)) fs::permissions(directory, fs::perms::owner_all, error);
  if (error) return refuse(fmt::format("{}: {}", directory.native(), error.message()));

  std::vector<FileToWrite> files;
  KeyAndCertificate authority;
  if (fs::exists(directory / "ca.pem") || fs::exists(directory / "ca.key")) {
    SLUICE_TRY(authority, read_authority(directory, run));
  } else {
    SLUICE_TRY(authority, make_authority({run.run, run.domain, valid_for_days(now, kAuthorityDays)}));
    files.push_back({directory / "ca.key", authority.key_pem, true});
    files.push_back({directory / "ca.pem", authority.certificate_pem, false});
  }
  SLUICE_TRY(const CertificateFacts facts, read_certificate(authority.certificate_pem));
  Validity validity = valid_for_days(now, run.days);
  if (facts.validity.not_after <= now) return refuse(fmt::format("{} has expired", (directory / "ca.pem").native()));
  validity.not_after = std::min(validity.not_after, facts.validity.not_after);
  for (const LeafName& name : names) {
    SLUICE_TRY(KeyAndCertificate leaf, issue_certificate(authority, {name.common_name, {name.identity}, validity}));
    files.push_back({directory / (name.file + ".key"), std::move(leaf.key_pem), true});
    files.push_back({directory / (name.file + ".pem"), std::move(leaf.certificate_pem), false});
  }
  std::vector<fs::path> written;
  for (const FileToWrite& file : files) {
    SLUICE_CHECK_OK(write_file(file));
    written.push_back(file.path);
  }
  return written;
}

}  // namespace sluice::gateway
