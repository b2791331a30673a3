#include "gateway/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/assert.h"
#include "gateway/internal/config_limits.h"
#include "gateway/internal/config_reader.h"
#include "gateway/internal/config_rules.h"
#include "gateway/internal/config_tree.h"

namespace sluice::gateway {
namespace {

constexpr std::string_view kOperation = "load config";
// Sparse rounds lose nothing with it and plain averaging, where outer momentum makes them unstable (measured on real training).
constexpr double kSparseResidualShare = 0.95;

std::optional<std::string> process_environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

std::filesystem::path directory_of(const std::filesystem::path& file) {
  std::error_code ignored;
  const std::filesystem::path absolute = std::filesystem::absolute(file, ignored);
  return (ignored ? file : absolute).parent_path();
}

void finish_problems(std::vector<ConfigProblem>& problems) {
  std::stable_sort(problems.begin(), problems.end(), [](const ConfigProblem& a, const ConfigProblem& b) {
    return std::pair(a.line, a.column) < std::pair(b.line, b.column);
  });
  if (problems.size() > kConfigProblemsMax) problems.resize(kConfigProblemsMax);
}

// The whole file, or one byte more than the limit: the tree reader says what is wrong with that.
Result<std::string> read_config_text(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    const std::string reason = error ? error.message() : "not a file";
    return fail(ErrorCode::kConfigUnreadable, std::string(kOperation), fmt::format("{}: {}", path.native(), reason));
  }
  std::ifstream stream(path, std::ios::binary);
  std::string text(kConfigBytesMax + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!stream.eof() && stream.fail()) {
    return fail(ErrorCode::kConfigUnreadable, std::string(kOperation), fmt::format("{}: {}", path.native(), std::strerror(errno)));
  }
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return text;
}

Result<GatewayConfig> first_problem(ConfigOutcome outcome, const std::filesystem::path& file_name) {
  if (outcome.config) return std::move(*outcome.config);
  const ConfigProblem& first = outcome.problems.front();
  std::string text = first.to_string(file_name.native());
  if (outcome.problems.size() > 1) text += fmt::format(" (and {} more; `sluice config check` lists all)", outcome.problems.size() - 1);
  return fail(first.code, std::string(kOperation), std::move(text));
}

}  // namespace

std::string Endpoint::to_string() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

std::string ConfigProblem::to_string(std::string_view file_name) const {
  std::string result(file_name);
  if (line > 0) result += fmt::format(":{}:{}", line, column);
  result += ": ";
  if (!path.empty()) result += path + ": ";
  return result + text;
}

ConfigOutcome examine_config(std::string_view text, const std::filesystem::path& file_name, FileChecks file_checks) {
  ConfigOutcome outcome;
  ConfigTree tree = read_config_tree(text, process_environment);
  outcome.problems = std::move(tree.problems);
  if (tree.root) {
    ReadOutcome read = read_fields(*tree.root, directory_of(file_name));
    outcome.problems.insert(outcome.problems.end(), read.problems.begin(), read.problems.end());
    if (outcome.problems.empty()) outcome.problems = apply_rules(read.config, read.positions);
    if (outcome.problems.empty() && file_checks == FileChecks::kTlsFiles) outcome.problems = check_tls_files(read.config, read.positions);
    read.config.source = file_name;
    if (outcome.problems.empty()) outcome.config = std::move(read.config);
  }
  finish_problems(outcome.problems);
  SLUICE_ASSERT(outcome.config.has_value() == outcome.problems.empty());
  return outcome;
}

Result<ConfigOutcome> examine_config_file(const std::filesystem::path& path, FileChecks file_checks) {
  SLUICE_TRY(const std::string text, read_config_text(path));
  return examine_config(text, path, file_checks);
}

Result<GatewayConfig> load_config(const std::filesystem::path& path) {
  SLUICE_TRY(ConfigOutcome outcome, examine_config_file(path, FileChecks::kTlsFiles));
  return first_problem(std::move(outcome), path);
}

Result<GatewayConfig> parse_config(std::string_view text, const std::filesystem::path& file_name) {
  return first_problem(examine_config(text, file_name, FileChecks::kSkip), file_name);
}

SiteId site_id(const GatewayConfig& config, std::string_view name) {
  const auto found = std::find_if(config.sites.begin(), config.sites.end(), [&](const SiteConfig& site) { return site.name == name; });
  SLUICE_ASSERT(found != config.sites.end(), "site `{}` is not in the configuration", name);
  return SiteId(static_cast<std::uint16_t>(found - config.sites.begin()));
}

SiteId own_site_id(const GatewayConfig& config) { return site_id(config, config.site); }

bool is_sparse(const GatewayConfig& config) {
  const CompressionConfig& compression = config.compression;
  if (compression.regime != Regime::kAuto) return compression.regime == Regime::kSparse;
  const double lowest = compression.mode == CompressionMode::kAuto ? compression.min_bits : compression.bits;
  return lowest < 1.0 && config.training.outer.rule == OuterRule::kAverage;
}

double residual_share(const GatewayConfig& config) {
  return config.compression.error_feedback * (is_sparse(config) ? kSparseResidualShare : 1.0);
}

Endpoint dial_endpoint(const GatewayConfig& config, SiteId peer) {
  SLUICE_ASSERT(peer.value < config.sites.size(), "site id {} of {}", peer.value, config.sites.size());
  const SiteConfig& own = config.sites[own_site_id(config).value];
  const SiteConfig& other = config.sites[peer.value];
  const auto exception = own.dial.find(other.name);
  return exception == own.dial.end() ? other.address : exception->second;
}

SiteSet all_sites(const GatewayConfig& config) {
  SiteSet sites;
  for (std::size_t index = 0; index < config.sites.size(); ++index) sites.insert(SiteId(static_cast<std::uint16_t>(index)));
  return sites;
}

}  // namespace sluice::gateway
