#pragma once

// The arrays that follow from a site graph: speed_intra[gpu][gpu], speed_inter[node][node], type[node]. Pure.
// GPUs and nodes are numbered in the order of SiteGraph::devices. Speeds are in GB/s and absent where nothing states them. A site of
// thousands of GPUs has no room for a full matrix, so these are looked up; every statement about a pair remains in the graph.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "topology/site_graph.h"

namespace sluice::topology {

struct Speed {
  double gb_per_second = 0;
  LinkBasis basis = LinkBasis::kDerived;
  FileIndex file = 0;
  std::optional<double> latency_us = std::nullopt;
};

// One row for each device of a kind, with the best statement for each other device that a link leads to. Memory follows the links.
class SpeedRows {
 public:
  struct Entry {
    std::size_t to = 0;
    Speed speed;
  };

  // Of the links between devices of this kind.
  SpeedRows(const SiteGraph& graph, DeviceKind kind);

  [[nodiscard]] std::size_t size() const { return rows_.size(); }
  [[nodiscard]] const std::vector<Entry>& row(std::size_t from) const { return rows_[from]; }
  // Nothing when no link with a speed joins the two. REQUIRES: both below size().
  [[nodiscard]] std::optional<Speed> at(std::size_t from, std::size_t to) const;

 private:
  std::vector<std::vector<Entry>> rows_;  // ascending by `to`
};

// speed_intra: between GPUs, as far as links say: those of one node, and of others that NVLink joins.
SpeedRows speed_intra(const SiteGraph& graph);

// speed_inter: between nodes. A measured or stated link between two nodes counts; otherwise what the ports of both and the switches
// between them allow one pair that has the network to itself: the slower of the two nodes' ports together, and of the ways up from their
// leaf switches when those differ. Nothing between nodes that no known fabric joins, unless no fabric is known at all.
class NodeSpeeds {
 public:
  explicit NodeSpeeds(const SiteGraph& graph);

  [[nodiscard]] std::size_t size() const { return nodes_.size(); }
  // REQUIRES: both below size(). Nothing from a node to itself.
  [[nodiscard]] std::optional<Speed> at(std::size_t from, std::size_t to) const;

 private:
  struct Node {
    std::optional<double> ports;   // GB/s of its ports together
    std::optional<double> way_up;  // GB/s from its leaf switches together to other switches
    std::size_t fabric = 0;        // number of the connected part of the network; nodes of one part reach each other
    std::size_t leaf = 0;          // its first leaf switch, or the node itself
    FileIndex file = 0;
  };
  void add_ports(const SiteGraph& graph);
  void join_fabric(const SiteGraph& graph);

  SpeedRows direct_;
  std::vector<Node> nodes_;
  bool has_fabric_ = false;
};

// What kind of node: what was set by hand, otherwise its GPUs' model or type with their number, "8x sm90"; "unknown" without either.
std::vector<std::string> node_types(const SiteGraph& graph);

}  // namespace sluice::topology
