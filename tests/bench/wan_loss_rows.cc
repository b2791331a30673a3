// What a link that becomes slow and fast again costs a real training: the demo's language model in three sites, in automatic mode, once
// with the steps and once without; the loss over held-out text afterwards.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include <poll.h>

#include "base/clock.h"
#include "tests/bench/wan_rows.h"

namespace sluice::bench {
namespace {

constexpr std::uint16_t kSites = 3;
constexpr double kFastMbit = 6.0;
constexpr double kSlowMbit = 1.5;
constexpr std::chrono::milliseconds kDelay{20};  // one way
constexpr unsigned kRounds = 27;
constexpr unsigned kInnerSteps = 10;
constexpr unsigned kDownAfter = 9;  // rounds
constexpr unsigned kUpAfter = 18;
constexpr double kTolerance = 0.005;
constexpr std::chrono::minutes kTrainingMax{3};
constexpr std::chrono::seconds kAttachMax{60};
constexpr int kPollMs = 100;
constexpr const char* kTarget = "within 0.5 %";

support::PathShape path_of(double mbit) { return path_shape(mbit, kDelay); }

struct Training {
  double loss = 0.0;  // nats per byte
  std::string hash;   // of the parameters, the same at all sites
  nlohmann::json rounds = nlohmann::json::array();
};

class TrainingRun {
 public:
  TrainingRun(WanRig& rig, const WanBenchOptions& options, std::filesystem::path directory)
      : rig_(rig), options_(options), directory_(std::move(directory)) {}

  Result<Training> run(bool has_steps) {
    for (std::uint16_t site = 0; site < kSites; ++site) SLUICE_CHECK_OK(start_trainer(site));
    const auto has_agent = [](const nlohmann::json& status) {
      return std::ranges::any_of(status["agents"], [](const nlohmann::json& agent) { return agent["connected"].get<bool>(); });
    };
    for (std::uint16_t site = 0; site < kSites; ++site) {
      SLUICE_CHECK_OK(rig_.fleet().wait_status(site, "a training process", kAttachMax, has_agent));
    }
    std::ofstream(directory_ / "start").flush();
    SLUICE_CHECK_OK(watch(has_steps));
    return read_results();
  }

 private:
  [[nodiscard]] std::filesystem::path result_file(std::uint16_t site) const { return directory_ / fmt::format("result-{}.json", site); }

  Status start_trainer(std::uint16_t site) {
    support::ChildOptions child;
    const auto word = [](auto value) { return std::to_string(value); };
    child.arguments = {options_.python,
                       "-m",
                       "sluice_demo.train",
                       "--site",
                       word(site),
                       "--sites",
                       word(kSites),
                       "--steps",
                       word(kRounds * kInnerSteps),
                       "--inner-steps",
                       word(kInnerSteps),
                       "--sequences",
                       "4",
                       "--result",
                       result_file(site).string(),
                       "--start-file",
                       (directory_ / "start").string()};
    child.environment = {{"PYTHONPATH", SLUICE_PYTHON_FOLDER},
                         {"SLUICE_AGENT_LIBRARY", SLUICE_AGENT_LIBRARY},
                         {"SLUICE_GATEWAY", rig_.fleet().agent_address(site)},
                         {"OMP_NUM_THREADS", "1"}};
    child.stderr_file = (directory_ / fmt::format("train-{}.log", site)).string();
    SLUICE_TRY(auto started, support::ChildProcess::start(child));
    trainers_.push_back(std::move(started));
    return {};
  }

  // Changes the link when its round has come, until the training ends; keeps what was decided for each round.
  Status watch(bool has_steps) {
    const TimePoint limit = Clock::now() + kTrainingMax;
    unsigned seen = 0;
    while (std::ranges::any_of(trainers_, [](support::ChildProcess& each) { return each.is_running(); })) {
      if (Clock::now() > limit) return fail(ErrorCode::kTimeout, "train", fmt::format("round {} of {}", seen, kRounds));
      ::poll(nullptr, 0, kPollMs);
      const auto status = rig_.fleet().status(0);
      if (!status) continue;
      const unsigned round = (*status)["round"].get<unsigned>();
      if (has_steps && seen < kDownAfter && round >= kDownAfter) rig_.wan().set_both(SiteId(0), SiteId(1), path_of(kSlowMbit));
      if (has_steps && seen < kUpAfter && round >= kUpAfter) rig_.wan().set_both(SiteId(0), SiteId(1), path_of(kFastMbit));
      seen = round;
      for (const auto& each : (*status)["rounds"]) {
        if (rounds_.empty() || rounds_.back()["round"] < each["round"]) rounds_.push_back(each);
      }
    }
    return {};
  }

  Result<Training> read_results() {
    Training training;
    double nats = 0.0;
    double bytes = 0.0;
    for (std::uint16_t site = 0; site < kSites; ++site) {
      std::ifstream file(result_file(site));
      const auto result = nlohmann::json::parse(file, nullptr, false);
      if (!result.is_object()) return fail(ErrorCode::kNotFound, "train", "no result; see " + (directory_ / "train-0.log").string());
      nats += result["loss_sum"].get<double>();
      bytes += result["held_out_bytes"].get<double>();
      const auto hash = result["parameter_hash"].get<std::string>();
      if (site > 0 && hash != training.hash) return fail(ErrorCode::kInternal, "train", "the sites' parameters differ at the end");
      training.hash = hash;
    }
    training.loss = nats / bytes;
    for (const auto& each : rounds_) {
      training.rounds.push_back({{"round", each["round"]}, {"seconds", each["seconds"]}, {"rate", each.value("rate", nlohmann::json())}});
    }
    return training;
  }

  WanRig& rig_;
  const WanBenchOptions& options_;
  std::filesystem::path directory_;
  std::vector<support::ChildProcess> trainers_;
  std::vector<nlohmann::json> rounds_;
};

Result<Training> train(const WanCase& self, const WanBenchOptions& options, bool has_steps) {
  WanCase arm = self;
  arm.name += has_steps ? "-stepped" : "-unchanged";
  RigOptions settings = rig_options(arm, options, 0);
  settings.sites = kSites;
  settings.fleet.streams = 1;  // a round has few frames
  settings.fleet.inner_steps = kInnerSteps;
  settings.fleet.outer = "{rule: nesterov, learning_rate: 0.8, momentum: 0.5}";
  settings.fleet.compression = "{mode: auto, bits: 3, min_bits: 1, max_bits: 8, warmup_rounds: 1, time_budget: 600ms}";
  const std::filesystem::path directory = settings.directory;
  SLUICE_TRY(auto rig, WanRig::start(std::move(settings), [](support::WanEmulator& wan) { set_all_paths(wan, path_of(kFastMbit)); }));
  SLUICE_CHECK_OK(rig->start_gateways());
  return TrainingRun(*rig, options, directory).run(has_steps);
}

// Mean bits of the rounds after `first` up to `last`.
double mean_bits(const nlohmann::json& rounds, unsigned first, unsigned last) {
  double sum = 0.0;
  double count = 0.0;
  for (const auto& each : rounds) {
    if (each["round"] <= first || each["round"] > last || !each["rate"].contains("target_bits")) continue;
    sum += each["rate"]["target_bits"].get<double>();
    count += 1.0;
  }
  return count > 0.0 ? sum / count : 0.0;
}

Result<std::vector<WanRow>> measure_loss(const WanCase& self, const WanBenchOptions& options) {
  SLUICE_TRY(const Training unchanged, train(self, options, false));
  SLUICE_TRY(const Training stepped, train(self, options, true));
  const double change = stepped.loss / unchanged.loss - 1.0;
  WanRow row{self.name, self.what, "", kTarget, change <= kTolerance, {{"unchanged", unchanged.rounds}, {"stepped", stepped.rounds}}};
  const double before = mean_bits(stepped.rounds, 2, kDownAfter);
  const double between = mean_bits(stepped.rounds, kDownAfter, kUpAfter);
  const double after = mean_bits(stepped.rounds, kUpAfter, kRounds);
  row.figure = fmt::format("{:+.2f} % ({:.4f} nats a byte, unchanged {:.4f}; bits {:.2f}, then {:.2f}, then {:.2f})", change * 100,
                           stepped.loss, unchanged.loss, before, between, after);
  return std::vector<WanRow>{std::move(row)};
}

}  // namespace

std::vector<WanCase> loss_cases() {
  return {{"loss-steps",
           fmt::format("held-out loss of a training while a link of {:.1f} Mbit/s falls to {:.1f} and returns, against an unchanged link",
                       kFastMbit, kSlowMbit),
           measure_loss}};
}

}  // namespace sluice::bench
