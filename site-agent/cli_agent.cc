#include "site-agent/cli_agent.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <vector>

#include "base/clock.h"
#include "site-agent/agent.h"

namespace sluice::site_agent {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitCannotConnect = 3;
// A boundary at which nothing is decided is tried again at most this often for each round asked for.
constexpr std::uint64_t kBoundariesPerRoundMax = 100;

struct LoadOptions {
  AgentOptions agent;
  std::uint32_t rank = 0;
  double mib = 1.0;
  std::uint64_t rounds = 10;
  std::uint64_t tokens = 1000;
  double delta = 1e-3;
  std::uint64_t seed = 1;
  double start_seconds = 30.0;
};

// Parameters that move as trained ones do: a random step of the given size each time, different at every rank and seed.
class SyntheticTraining {
 public:
  explicit SyntheticTraining(const LoadOptions& options)
      : values_(std::max<std::size_t>(1, static_cast<std::size_t>(options.mib * 1048576.0 / sizeof(float)))),
        engine_(static_cast<std::mt19937::result_type>(options.seed * 1000 + options.rank)),
        step_(0.0F, static_cast<float>(options.delta)) {}
  std::vector<float>& values() { return values_; }
  // Every value moves by one of 4096 draws: the arithmetic of a step, not of a random generator.
  void move() {
    std::vector<float> draws(4096);
    for (float& draw : draws) draw = step_(engine_);
    const std::size_t shift = engine_() % draws.size();
    for (std::size_t index = 0; index < values_.size(); ++index) values_[index] -= draws[(index + shift) % draws.size()];
  }

 private:
  std::vector<float> values_;
  std::mt19937 engine_;
  std::normal_distribution<float> step_;
};

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

void print_boundary(const LoadOptions& options, const StepResult& result, const AgentStatistics& now, const AgentStatistics& before) {
  fmt::print(
      R"({{"rank":{},"round":{},"outcome":"{}","sites":{},"seconds":{:.6f},"encode_seconds":{:.6f},"decode_seconds":{:.6f},)"
      R"("wait_seconds":{:.6f},"group_seconds":{:.6f},"bytes_sent":{},"bytes_received":{},"bits_per_value":{:.4f}}})"
      "\n",
      options.rank, result.round, step_outcome_name(result.outcome), result.sites_counted, seconds(result.exchange_time),
      seconds(now.encode_time - before.encode_time), seconds(now.decode_time - before.decode_time),
      seconds(now.wait_time - before.wait_time), seconds(now.group_time - before.group_time),
      now.bytes_sent - before.bytes_sent, now.bytes_received - before.bytes_received,
      8.0 * static_cast<double>(now.bytes_sent - before.bytes_sent) * options.agent.ranks / static_cast<double>(now.values));
  std::fflush(stdout);
}

int report(const Error& error) {
  fmt::print(stderr, "{}\n", error.to_string());
  return kExitFailed;
}

int run_load(const LoadOptions& options) {
  AgentOptions agent_options = options.agent;
  agent_options.rank = RankId(options.rank);
  const std::chrono::duration<double> patience(std::clamp(options.start_seconds, 0.0, 86'400.0));
  agent_options.start_timeout = std::chrono::duration_cast<Duration>(patience);
  auto agent = Agent::create(agent_options);
  if (!agent) return report(agent.error());
  SyntheticTraining training(options);
  std::vector<float>& values = training.values();
  const Status added = (*agent)->add_tensor("synthetic", compression::ElementType::kFloat32, {values.size()}, values.data());
  if (!added) return report(added.error());
  const Status started = (*agent)->start();
  if (!started) return report(started.error());
  if (!(*agent)->statistics().is_connected) {
    fmt::print(stderr, "no gateway at {} within {} s\n", options.agent.gateway, options.start_seconds);
    return kExitCannotConnect;
  }
  AgentStatistics before = (*agent)->statistics();
  std::uint64_t rounds = 0;
  std::uint64_t boundaries = 0;
  while (rounds < options.rounds && boundaries < options.rounds * kBoundariesPerRoundMax) {
    training.move();
    const auto result = (*agent)->step(options.tokens, std::nan(""));
    if (!result) return report(result.error());
    if (result->outcome == StepOutcome::kInner) continue;
    ++boundaries;
    if (result->outcome == StepOutcome::kCommitted || result->outcome == StepOutcome::kLeftOut) ++rounds;
    const AgentStatistics now = (*agent)->statistics();
    print_boundary(options, *result, now, before);
    before = now;
  }
  return rounds == options.rounds ? 0 : kExitFailed;
}

}  // namespace

void add_agent_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<LoadOptions>();
  CLI::App* command = app.add_subcommand("agent", "Take part in a run as one rank with a synthetic load; one JSON line a boundary");
  command->add_option("--gateway", options->agent.gateway, "unix:/path or tls:host:port")->required()->envname("SLUICE_GATEWAY");
  command->add_option("--rank", options->rank, "rank of this process within its site");
  command->add_option("--ranks", options->agent.ranks, "processes of the site");
  command->add_option("--mib", options->mib, "size of the parameters in MiB of fp32")->check(CLI::Range(1e-6, 1048576.0));
  command->add_option("--rounds", options->rounds, "committed rounds until it ends");
  command->add_option("--tokens", options->tokens, "tokens of a step: weigh the site's contribution");
  command->add_option("--delta", options->delta, "standard deviation of a step's change");
  command->add_option("--seed", options->seed, "of the changes; each rank adds its number");
  command->add_option("--start-timeout", options->start_seconds, "seconds to wait for the gateway and the other ranks");
  command->add_option("--certificate", options->agent.certificate_file, "PEM file, for tls:");
  command->add_option("--key", options->agent.key_file, "PEM file, for tls:");
  command->add_option("--authority", options->agent.authority_file, "PEM file of the run's authority, for tls:");
  command->add_option("--listen", options->agent.listen, "interface or address for the traffic between the ranks");
  command->callback([options, &exit_code] { exit_code = run_load(*options); });
}

}  // namespace sluice::site_agent
