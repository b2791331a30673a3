#pragma once

// SiteTopology: what the gateway knows of the inside of its own site: the graph that topology.file promises, and what the ranks have
// measured between each other (topology/site_probe.h), which counts before it. Owned by the gateway's loop; not thread-safe.
// Files: reads the promised graph and, from the state directory, the one of the run before; writes topology.json there when all ranks have
// reported. A measurement that cannot be saved is only logged.

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "gateway/status.h"
#include "proto/agent.pb.h"
#include "topology/site_graph.h"
#include "topology/site_probe.h"

namespace sluice::gateway {

struct SiteTopologyOptions {
  std::filesystem::path promised_file;  // of any kind that `sluice topo` reads; empty = none
  std::filesystem::path state_directory;
  std::uint32_t ranks = 1;
  bool is_probing = true;  // the ranks are asked to measure
};

class SiteTopology {
 public:
  // Errors: those of topology/topology_reader.h and kTopologyUnreadable for the promised file. What an earlier run left is passed over
  // with a warning in the log when it cannot be read.
  static Result<SiteTopology> open(SiteTopologyOptions options);

  // A rank's probe has ended. Errors: kWireBadMessage.
  Status take(RankId rank, const wire::SiteProbe& probe);
  // Works what was taken into the graph, once all ranks have reported or one of them a failure, and saves it. Whether anything has changed.
  bool refresh();

  // Never null; replaced by refresh().
  [[nodiscard]] const std::shared_ptr<const TopologyStatus>& status() const { return status_; }

 private:
  struct RankProbe {
    topology::ProbeReport report;
    double seconds = 0.0;
    std::size_t pairs_planned = 0;
    bool is_cut = false;
    std::string failure;
  };
  explicit SiteTopology(SiteTopologyOptions options) : options_(std::move(options)) {}
  Status merge(topology::SiteGraph measured);
  [[nodiscard]] TopologyStatus summarize() const;
  Status save() const;

  SiteTopologyOptions options_;
  std::optional<topology::SiteGraph> promised_;
  topology::SiteGraph graph_;  // promised and measured
  std::map<RankId, RankProbe> probes_;
  std::set<RankId> fresh_;  // have reported since all had
  bool is_dirty_ = false;
  bool is_of_earlier_run_ = false;
  std::shared_ptr<const TopologyStatus> status_;
};

}  // namespace sluice::gateway
