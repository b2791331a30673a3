#include "gateway/internal/config_rules.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "gateway/admin_server.h"
#include "gateway/internal/config_limits.h"
#include "gateway/internal/config_scalar.h"
#include "gateway/tls_context.h"

namespace sluice::gateway {
namespace {

class RuleChecker {
 public:
  RuleChecker(const GatewayConfig& config, const ConfigPositions& positions) : config_(config), positions_(positions) {}

  std::vector<ConfigProblem> run() {
    check_sites();
    if (!problems_.empty()) return std::move(problems_);  // what follows would repeat it
    check_dial();
    check_own_site();
    check_coordination();
    check_quorum();
    check_deadlines();
    check_compression();
    check_local_addresses();
    return std::move(problems_);
  }

 private:
  // At the key itself or, when it was not written, at the nearest enclosing one that was.
  void report(ErrorCode code, std::string path, std::string text) {
    ConfigProblem problem{code, 1, 1, path, std::move(text)};
    for (std::string at = path; !at.empty();) {
      const auto found = positions_.find(at);
      if (found != positions_.end()) {
        problem.line = found->second.line;
        problem.column = found->second.column;
        break;
      }
      const std::size_t cut = at.find_last_of(".[");
      at = cut == std::string::npos ? std::string() : at.substr(0, cut);
    }
    problems_.push_back(std::move(problem));
  }

  int line_of(const std::string& path) const {
    const auto found = positions_.find(path);
    return found == positions_.end() ? 0 : found->second.line;
  }

  std::vector<std::string> site_names() const {
    std::vector<std::string> names;
    for (const SiteConfig& site : config_.sites) names.push_back(site.name);
    return names;
  }

  bool is_site(const std::string& name) const {
    return std::any_of(config_.sites.begin(), config_.sites.end(), [&](const SiteConfig& site) { return site.name == name; });
  }

  void report_unknown_site(const std::string& path, const std::string& name) {
    const std::vector<std::string> names = site_names();
    const auto near = nearest_word(name, names);
    report(ErrorCode::kConfigConflict, path,
           fmt::format("`{}` is not one of the sites ({}){}", name, fmt::join(names, ", "),
                       near ? fmt::format("; did you mean `{}`?", *near) : ""));
  }

  void check_sites() {
    const auto& sites = config_.sites;
    if (sites.size() < 2)
      report(ErrorCode::kConfigBadValue, "sites", fmt::format("found {} site, expected 2 to {}", sites.size(), kSitesMax));
    for (std::size_t index = 0; index < sites.size(); ++index) {
      for (std::size_t earlier = 0; earlier < index; ++earlier) {
        if (sites[index].name == sites[earlier].name) {
          report(ErrorCode::kConfigConflict, fmt::format("sites[{}].name", index),
                 fmt::format("the site name `{}` is already given at line {}", sites[index].name,
                             line_of(fmt::format("sites[{}].name", earlier))));
        }
        if (sites[index].address == sites[earlier].address) {
          report(ErrorCode::kConfigConflict, fmt::format("sites[{}].address", index),
                 fmt::format("{} is already the address of site `{}`", sites[index].address.to_string(), sites[earlier].name));
        }
      }
    }
  }

  void check_dial() {
    for (std::size_t index = 0; index < config_.sites.size(); ++index) {
      const SiteConfig& site = config_.sites[index];
      for (const auto& [peer, endpoint] : site.dial) {
        const std::string path = fmt::format("sites[{}].dial.{}", index, peer);
        if (!is_site(peer)) report_unknown_site(path, peer);
        if (peer == site.name) report(ErrorCode::kConfigConflict, path, "a site does not dial itself");
      }
    }
  }

  void check_own_site() {
    if (!is_site(config_.site)) report_unknown_site("site", config_.site);
  }

  void check_coordination() {
    const CoordinationConfig& coordination = config_.coordination;
    if (coordination.store == StoreKind::kEtcd) {
      return report(ErrorCode::kConfigBadValue, "coordination.store", "found `etcd`: not available in this version; use `local`");
    }
    if (!coordination.endpoints.empty()) {
      report(ErrorCode::kConfigConflict, "coordination.endpoints", "endpoints belong to `store: etcd`, and the store is `local`");
    }
    if (coordination.site.empty()) {
      return report(ErrorCode::kConfigMissingKey, "coordination.site", "the key is missing: the site whose gateway holds the local store");
    }
    if (!is_site(coordination.site)) report_unknown_site("coordination.site", coordination.site);
  }

  void check_quorum() {
    const std::size_t sites = config_.sites.size();
    const std::size_t quorum = config_.round.quorum;
    if (quorum > sites) {
      return report(ErrorCode::kConfigConflict, "round.quorum", fmt::format("found {}, and there are {} sites", quorum, sites));
    }
    if (2 * quorum <= sites && !config_.round.quorum_override) {
      report(ErrorCode::kConfigConflict, "round.quorum",
             fmt::format("found {} of {} sites: two halves could go separate ways; at least {}, or set quorum_override: true", quorum,
                         sites, sites / 2 + 1));
    }
  }

  void check_deadlines() {
    if (config_.round.open_grace > config_.round.deadline) {
      report(ErrorCode::kConfigConflict, "round.open_grace",
             fmt::format("{} is longer than round.deadline, {}", format_duration(config_.round.open_grace),
                         format_duration(config_.round.deadline)));
    }
    const auto silence = config_.wan.heartbeat.interval * config_.wan.heartbeat.misses;
    if (silence > config_.round.deadline) {
      report(ErrorCode::kConfigConflict, "wan.heartbeat",
             fmt::format("a dead link is found after {}, later than round.deadline, {}", format_duration(silence),
                         format_duration(config_.round.deadline)));
    }
  }

  void check_compression() {
    const CompressionConfig& compression = config_.compression;
    if (compression.min_bits > compression.max_bits) {
      return report(ErrorCode::kConfigConflict, "compression.min_bits",
                    fmt::format("{} is above compression.max_bits, {}", compression.min_bits, compression.max_bits));
    }
    const bool outside = compression.bits < compression.min_bits || compression.bits > compression.max_bits;
    if (compression.mode == CompressionMode::kAuto && outside) {
      report(ErrorCode::kConfigConflict, "compression.bits",
             fmt::format("{} is outside min_bits {} to max_bits {}", compression.bits, compression.min_bits, compression.max_bits));
    }
    if (compression.mode == CompressionMode::kAuto && compression.codec != CodecChoice::kGrid) {
      report(ErrorCode::kConfigConflict, "compression.codec", "raw32 and bf16 have no rate to adapt; they go with `mode: fixed`");
    }
    if (compression.mode == CompressionMode::kFixed && compression.regime == Regime::kDense && compression.bits < 1.0) {
      report(ErrorCode::kConfigConflict, "compression.regime",
             fmt::format("`dense` needs at least 1 bit per value, and bits is {}", compression.bits));
    }
    if (compression.mode == CompressionMode::kFixed && compression.regime == Regime::kSparse && compression.bits > 2.0) {
      report(ErrorCode::kConfigConflict, "compression.regime",
             fmt::format("`sparse` is for less than 2 bits per value, and bits is {}", compression.bits));
    }
  }

  void check_local_addresses() {
    const Endpoint& admin = config_.admin.listen;
    if (!is_loopback_host(admin.host)) {
      report(ErrorCode::kConfigBadValue, "admin.listen",
             fmt::format("found `{}`: the admin interface has no authentication and is bound to loopback only; write 127.0.0.1:{}",
                         admin.to_string(), admin.port));
    }
    if (admin.port != 0 && admin == config_.wan.listen)
      report(ErrorCode::kConfigConflict, "admin.listen", "the same address as wan.listen");
    const auto& agents = config_.agents.listen;
    if (agents && agents->port != 0 && *agents == config_.wan.listen) {
      report(ErrorCode::kConfigConflict, "agents.listen", "the same address as wan.listen");
    }
    if (agents && agents->port != 0 && *agents == admin)
      report(ErrorCode::kConfigConflict, "agents.listen", "the same address as admin.listen");
    const std::size_t length = config_.agents.socket.native().size();
    if (length > kSocketPathBytesMax) {
      report(ErrorCode::kConfigBadValue, "agents.socket",
             fmt::format("{} is {} bytes long; a Unix socket path has at most {}", config_.agents.socket.native(), length,
                         kSocketPathBytesMax));
    }
  }

  const GatewayConfig& config_;
  const ConfigPositions& positions_;
  std::vector<ConfigProblem> problems_;
};

// Empty = fine.
std::string file_trouble(const std::filesystem::path& path, bool secret) {
  struct ::stat status {};
  if (::stat(path.c_str(), &status) != 0) return fmt::format("{}: {}", path.native(), std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return fmt::format("{}: not a file", path.native());
  if (::access(path.c_str(), R_OK) != 0) return fmt::format("{}: {}", path.native(), std::strerror(errno));
  if (!secret) return {};
  if ((status.st_mode & 077U) != 0) {
    return fmt::format("{} can be read by others (mode {:03o}); run chmod 600 on it", path.native(), status.st_mode & 0777U);
  }
  if (status.st_uid != ::geteuid() && status.st_uid != 0) {
    return fmt::format("{} belongs to another user (uid {})", path.native(), status.st_uid);
  }
  return {};
}

}  // namespace

std::vector<ConfigProblem> apply_rules(GatewayConfig& config, const ConfigPositions& positions) {
  if (config.round.quorum == 0) config.round.quorum = static_cast<std::uint16_t>(config.sites.size() / 2 + 1);
  return RuleChecker(config, positions).run();
}

std::vector<ConfigProblem> check_tls_files(const GatewayConfig& config, const ConfigPositions& positions) {
  std::vector<ConfigProblem> problems;
  const TlsConfig& tls = config.tls;
  const auto report = [&](const std::string& key, std::string trouble) {
    const auto position = positions.find(key);
    const ConfigPosition at = position == positions.end() ? ConfigPosition{} : position->second;
    problems.push_back({ErrorCode::kConfigBadValue, at.line, at.column, key, std::move(trouble)});
  };
  const auto check = [&](const char* key, const std::filesystem::path& path, bool secret) {
    std::string trouble = file_trouble(path, secret);
    if (!trouble.empty()) report(key, std::move(trouble));
  };
  check("tls.ca", tls.ca, false);
  check("tls.certificate", tls.certificate, false);
  check("tls.key", tls.key, true);
  if (!problems.empty()) return problems;
  const auto context = TlsContext::load({tls.ca, tls.certificate, tls.key});
  const std::string wanted = site_uri(config.run.domain, config.site);
  if (!context) {
    report("tls", context.error().detail);
  } else if ((*context)->uri() != wanted) {
    report("tls.certificate", fmt::format("{} is of {}, and this is {}", tls.certificate.native(), (*context)->uri(), wanted));
  }
  return problems;
}

}  // namespace sluice::gateway
