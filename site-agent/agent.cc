#include "site-agent/agent.h"

#include <unistd.h>

#include <cmath>
#include <mutex>
#include <random>

#include "base/assert.h"
#include "base/log.h"
#include "site-agent/internal/boundary.h"
#include "site-agent/internal/state_file.h"
#include "site-agent/limits.h"

namespace sluice::site_agent {
namespace {

// Which start of the process this is: a gateway tells a restarted rank from a reconnected one by it.
std::uint64_t make_boot_id() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

std::string machine_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? std::string(name) : std::string();
}

std::string listen_address(const AgentOptions& options, bool is_local) {
  return !options.listen.empty() || is_local ? options.listen : machine_name();
}

}  // namespace

std::string_view step_outcome_name(StepOutcome outcome) {
  switch (outcome) {
    case StepOutcome::kInner:
      return "inner";
    case StepOutcome::kCommitted:
      return "committed";
    case StepOutcome::kLeftOut:
      return "left_out";
    case StepOutcome::kCaughtUp:
      return "caught_up";
    case StepOutcome::kSkipped:
      return "skipped";
    case StepOutcome::kSolo:
      return "solo";
  }
  return "unknown";
}

class Agent::Impl {
 public:
  Impl(AgentOptions options, GatewayAddress address) : options_(std::move(options)), address_(std::move(address)) {}

  ~Impl() {
    if (link_) link_->stop();
    former_.reset();  // its thread may have waited for an answer on the link
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status add_tensor(sync::TensorSpec tensor, void* data) {
    if (manifest_) return fail(ErrorCode::kAgentOrder, "add tensor", "after start or load_state");
    if (tensor.type != compression::ElementType::kFloat32) {
      return fail(ErrorCode::kInvalidArgument, "add tensor", tensor.name + " is not fp32: register the optimizer's master parameters");
    }
    const bool is_empty = std::find(tensor.shape.begin(), tensor.shape.end(), 0U) != tensor.shape.end();
    if (data == nullptr && !is_empty) return fail(ErrorCode::kInvalidArgument, "add tensor", tensor.name + " has no memory");
    tensors_.push_back(std::move(tensor));
    data_.push_back(static_cast<float*>(data));
    return {};
  }

  Status prepare() {
    if (manifest_) return {};
    SLUICE_TRY(auto manifest, sync::Manifest::create(tensors_));
    manifest_.emplace(std::move(manifest));
    table_ = TensorTable(*manifest_, data_);
    state_ = ShardState(*manifest_, manifest_->shard(options_.rank, options_.ranks));
    status_.update([&](AgentStatistics& statistics) { statistics.values = manifest_->value_count(); });
    return {};
  }

  Status load_state(const std::string& path) {
    if (link_) return fail(ErrorCode::kAgentOrder, "load state", "after start");
    SLUICE_CHECK_OK(prepare());
    ShardState loaded(*manifest_, manifest_->shard(options_.rank, options_.ranks));
    SLUICE_CHECK_OK(read_state_file(path, *manifest_, loaded));
    state_ = std::move(loaded);
    is_loaded_ = true;
    return {};
  }

  Status save_state(const std::string& path) {
    if (!session_) return fail(ErrorCode::kAgentOrder, "save state", "before start");
    const Attending attending(*this);
    return write_state_file(path, session_->state(), *manifest_);
  }

  Status start() {
    if (link_) return fail(ErrorCode::kAgentOrder, "start", "started before");
    SLUICE_CHECK_OK(prepare());
    if (!is_loaded_) take_initial_state();
    LinkConfig config;
    config.address = address_;
    config.files = TlsClientFiles{options_.certificate_file, options_.key_file, options_.authority_file};
    config.rank = options_.rank;
    config.ranks = options_.ranks;
    config.boot_id = make_boot_id();
    link_ = std::make_unique<GatewayLink>(std::move(config), *manifest_,
                                          GatewayLink::Callbacks{[this](GatewayEvent&& event) { return inbox_.deliver(std::move(event)); },
                                                                 [this](const Error& error) { status_.report(error); }});
    session_ = std::make_unique<Session>(std::move(state_), *link_, status_);
    if (options_.ranks > 1) start_former();
    Boundary::Parts parts{&*manifest_,   &table_,        session_.get(),         link_.get(),   &inbox_, former_.get(), &status_,
                          options_.rank, options_.ranks, options_.group_timeout, machine_name()};
    boundary_ = std::make_unique<Boundary>(parts);
    link_->start();
    {
      const std::lock_guard lock(link_mutex_);
      visible_link_ = link_.get();
    }
    const Attending attending(*this);
    boundary_->begin(Clock::now() + options_.start_timeout);
    return {};
  }

  bool is_next_boundary() {
    if (!next_is_boundary_) {
      const std::uint32_t inner_steps = status_.statistics().inner_steps;
      next_is_boundary_ = inner_steps > 0 && (steps_ + 1) % inner_steps == 0;
    }
    return *next_is_boundary_;
  }

  Result<StepResult> step(std::uint64_t tokens, double loss) {
    if (!boundary_) return fail(ErrorCode::kAgentOrder, "step", "before start");
    const bool is_boundary = is_next_boundary();
    next_is_boundary_.reset();
    ++steps_;
    ++progress_.steps;
    progress_.tokens += tokens;
    progress_.loss = loss;
    status_.update([&](AgentStatistics& statistics) {
      statistics.steps = steps_;
      statistics.steps_since_round = progress_.steps;
    });
    if (is_boundary) return exchange();
    StepResult result;
    result.round = status_.statistics().round;
    return result;
  }

  Result<StepResult> exchange() {
    if (!boundary_) return fail(ErrorCode::kAgentOrder, "exchange", "before start");
    const TimePoint begin = Clock::now();
    const Attending attending(*this);
    StepResult result = boundary_->run(progress_);
    result.exchange_time = Clock::now() - begin;
    status_.update([&](AgentStatistics& statistics) {
      statistics.exchange_time += result.exchange_time;
      statistics.steps_since_round = progress_.steps;
    });
    return result;
  }

  AgentStatistics statistics() const {
    AgentStatistics statistics = status_.statistics();
    const std::lock_guard lock(link_mutex_);
    if (visible_link_ == nullptr) return statistics;
    statistics.bytes_sent = visible_link_->bytes_sent();
    statistics.bytes_received = visible_link_->bytes_received();
    return statistics;
  }

  const AgentStatus& status() const { return status_; }

 private:
  // Owns the session for the time of a call.
  class Attending {
   public:
    explicit Attending(Impl& impl) : impl_(impl) { impl_.inbox_.attend(); }
    ~Attending() {
      impl_.inbox_.release();
      impl_.link_->resume_reading();
    }
    Attending(const Attending&) = delete;
    Attending& operator=(const Attending&) = delete;

   private:
    Impl& impl_;
  };

  void take_initial_state() {
    std::vector<float> values;
    for (std::uint32_t index = state_.chunks().begin; index < state_.chunks().end; ++index) {
      values.resize(manifest_->chunk_values(ChunkId(index)).count());
      table_.read(ChunkId(index), values);
      const std::vector<float> zeros(values.size());
      state_.set_chunk(ChunkId(index), 0, values, zeros, zeros);
    }
  }

  void start_former() {
    const GroupConfig config{options_.rank, options_.ranks, listen_address(options_, address_.is_unix)};
    former_ = std::make_unique<GroupFormer>(link_->store(), config, [this](const Error& error) {
      status_.report(error);
      link_->drop_current("the site's group did not form: " + error.detail);
    });
    session_->on_group_formed([this](std::uint64_t generation) { former_->form(generation); });
    // Each rank's shard comes from its own tensors; the first agreement gives all ranks the same parameters.
    if (!is_loaded_) session_->set_tensors_stale(true);
  }

  AgentOptions options_;
  GatewayAddress address_;
  std::vector<sync::TensorSpec> tensors_;
  std::vector<float*> data_;
  std::optional<sync::Manifest> manifest_;
  TensorTable table_;
  ShardState state_;  // until start
  bool is_loaded_ = false;
  AgentStatus status_;
  Inbox inbox_{[this](GatewayEvent&& event) { session_->handle(std::move(event)); }};
  std::unique_ptr<GatewayLink> link_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<GroupFormer> former_;
  std::unique_ptr<Boundary> boundary_;
  mutable std::mutex link_mutex_;
  GatewayLink* visible_link_ = nullptr;  // link_, once started, for statistics() from other threads
  std::uint64_t steps_ = 0;
  Progress progress_{0, 0, std::nan("")};
  std::optional<bool> next_is_boundary_;
};

Agent::Agent(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Agent::~Agent() = default;

Result<std::unique_ptr<Agent>> Agent::create(AgentOptions options) {
  if (options.ranks == 0 || options.ranks > kRanksMax || options.rank.value >= options.ranks) {
    return fail(ErrorCode::kInvalidArgument, "create agent",
                fmt::format("rank {} of {}, at most {} ranks", options.rank, options.ranks, kRanksMax));
  }
  SLUICE_TRY(GatewayAddress address, parse_gateway_address(options.gateway));
  if (!address.is_unix && (options.certificate_file.empty() || options.key_file.empty() || options.authority_file.empty())) {
    return fail(ErrorCode::kInvalidArgument, "create agent", "tls: needs certificate, key and authority files");
  }
  return std::unique_ptr<Agent>(new Agent(std::make_unique<Impl>(std::move(options), std::move(address))));
}

Status Agent::add_tensor(std::string name, compression::ElementType type, std::vector<std::uint64_t> shape, void* data) {
  return impl_->add_tensor(sync::TensorSpec{std::move(name), type, std::move(shape)}, data);
}
Status Agent::start() { return impl_->start(); }
bool Agent::is_next_boundary() { return impl_->is_next_boundary(); }
Result<StepResult> Agent::step(std::uint64_t tokens, double loss) { return impl_->step(tokens, loss); }
Result<StepResult> Agent::exchange() { return impl_->exchange(); }
AgentStatistics Agent::statistics() const { return impl_->statistics(); }
std::string Agent::last_error() const { return impl_->status().last_error(); }
Announced Agent::announcement() const { return impl_->status().announcement(); }
Status Agent::save_state(const std::string& path) { return impl_->save_state(path); }
Status Agent::load_state(const std::string& path) { return impl_->load_state(path); }

}  // namespace sluice::site_agent
