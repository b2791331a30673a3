// A site of 10,000 GPUs: its machines, NICs, NVLink switches and a network of leaves and spines are generated as files, and read, merged,
// analysed, diagnosed, saved and loaded. Prints the seconds of each part, those of the processor, and the memory used at most.
//     topology_bench [GPUS] [--json]

#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topology/diagnosis.h"
#include "topology/graph_arrays.h"
#include "topology/graph_file.h"
#include "topology/graph_merge.h"
#include "topology/topology_reader.h"

namespace {

using namespace sluice::topology;

constexpr std::size_t kGpusOfNode = 8;
constexpr std::size_t kNodesOfLeaf = 32;
constexpr std::size_t kSpines = 16;

// Of this process: what remains of a figure when others use the machine.
double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// One machine: two CPUs, four switches with two GPUs and two NICs each, four NVLink switches.
std::string machine_xml() {
  std::string text = "<system version=\"1\">";
  for (int cpu = 0; cpu < 2; ++cpu) {
    text += fmt::format("<cpu numaid=\"{}\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"143\">", cpu);
    for (int bridge = cpu * 2; bridge < cpu * 2 + 2; ++bridge) {
      text += fmt::format("<pci busid=\"0000:{}0:00.0\" class=\"0x060400\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">", bridge + 1);
      for (int slot = 0; slot < 2; ++slot) {
        const int gpu = bridge * 2 + slot;
        text += fmt::format(
            "<pci busid=\"0000:{}{}:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><gpu dev=\"{}\" sm=\"90\">",
            bridge + 1, slot + 1, gpu);
        for (int nv_switch = 0; nv_switch < 4; ++nv_switch) {
          text += fmt::format("<nvlink target=\"0000:f{}:00.0\" count=\"{}\" tclass=\"0x068000\"/>", nv_switch, nv_switch < 2 ? 5 : 4);
        }
        text += fmt::format(
            "</gpu></pci><pci busid=\"0000:{}{}:00.0\" class=\"0x020700\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><nic>"
            "<net name=\"mlx5_{}\" dev=\"{}\" speed=\"400000\" port=\"1\"/></nic></pci>",
            bridge + 1, slot + 5, gpu, gpu);
      }
      text += "</pci>";
    }
    text += "</cpu>";
  }
  return text + "</system>";
}

// A listing of the network: a leaf for each rail of 32 nodes, spines above.
std::string fabric_text(std::size_t nodes) {
  std::string text;
  const std::size_t groups = (nodes + kNodesOfLeaf - 1) / kNodesOfLeaf;
  for (std::size_t leaf = 0; leaf < groups * kGpusOfNode; ++leaf) {
    text += fmt::format("Switch\t65 \"S-l{}\"\t\t# \"MF0;leaf{}:MQM9701/U1\" enhanced port 0 lid 1 lmc 0\n", leaf, leaf);
    for (std::size_t port = 0; port < kNodesOfLeaf; ++port) {
      const std::size_t node = leaf / kGpusOfNode * kNodesOfLeaf + port;
      if (node >= nodes) break;
      text += fmt::format("[{}]\t\"H-{}-{}\"[1](x) \t\t# \"node{:04} mlx5_{}\" lid 1 4xNDR\n", port + 1, node, leaf % kGpusOfNode, node,
                          leaf % kGpusOfNode);
    }
    for (std::size_t spine = 0; spine < 2 * kSpines; ++spine) {
      text += fmt::format("[{}]\t\"S-s{}\"[1]\t\t# \"MF0;spine:MQM9701/U1\" lid 1 4xNDR\n", 33 + spine, spine % kSpines);
    }
  }
  for (std::size_t spine = 0; spine < kSpines; ++spine)
    text += fmt::format("Switch\t65 \"S-s{}\"\t\t# \"MF0;spine{}:MQM9701/U1\" enhanced port 0\n", spine, spine);
  for (std::size_t node = 0; node < nodes; ++node) {
    for (std::size_t nic = 0; nic < kGpusOfNode; ++nic)
      text += fmt::format("Ca\t1 \"H-{}-{}\"\t\t# \"node{:04} mlx5_{}\"\n", node, nic, node, nic);
  }
  return text;
}

[[noreturn]] void give_up(const sluice::Error& error) {
  fmt::print(stderr, "{}\n", error.to_string());
  std::exit(1);
}

SiteGraph take(sluice::Result<SiteGraph> graph) {
  if (!graph) give_up(graph.error());
  return std::move(*graph);
}

// What a planner asks: every row of the GPUs, and of the nodes a sample of pairs that covers each node.
double analyse(const SiteGraph& graph) {
  double sum = 0;
  const SpeedRows gpus = speed_intra(graph);
  for (std::size_t row = 0; row < gpus.size(); ++row) {
    for (const auto& entry : gpus.row(row)) sum += entry.speed.gb_per_second;
  }
  const NodeSpeeds nodes(graph);
  for (std::size_t from = 0; from < nodes.size(); ++from) {
    for (std::size_t to = 0; to < nodes.size(); ++to) {
      if (const auto speed = nodes.at(from, to)) sum += speed->gb_per_second;
    }
  }
  return sum + static_cast<double>(node_types(graph).size() + count_pairs(graph).size());
}

}  // namespace

int main(int argc, char** argv) {
  bool wants_json = false;
  std::size_t gpus = 10'000;
  for (int index = 1; index < argc; ++index) {
    if (std::string_view(argv[index]) == "--json") {
      wants_json = true;
    } else {
      gpus = static_cast<std::size_t>(std::strtoul(argv[index], nullptr, 10));
    }
  }
  const std::size_t nodes = (gpus + kGpusOfNode - 1) / kGpusOfNode;
  const std::string machine = machine_xml();
  const std::string fabric = fabric_text(nodes);

  const auto start = std::chrono::steady_clock::now();
  const double cpu_start = cpu_seconds();
  std::vector<MergeInput> inputs;
  inputs.push_back({take(read_topology_file(fabric, "fabric")), ""});
  inputs.push_back({take(read_topology_file(machine, "machine")), "*"});
  const double read_seconds = seconds_since(start);
  SiteGraph graph = take(merge_graphs(std::move(inputs)));
  const double built_seconds = seconds_since(start);
  const double sum = analyse(graph);
  const std::size_t findings = diagnose(graph).size();
  const double analysed_seconds = seconds_since(start);
  const double analysed_cpu = cpu_seconds() - cpu_start;
  const auto save_start = std::chrono::steady_clock::now();
  const std::string file = write_graph_file(graph);
  const double saved_seconds = seconds_since(save_start);
  const auto load_start = std::chrono::steady_clock::now();
  const double load_cpu_start = cpu_seconds();
  const SiteGraph loaded = take(read_topology_file(file, "saved"));
  const double loaded_seconds = seconds_since(load_start);
  const double loaded_cpu = cpu_seconds() - load_cpu_start;
  const bool is_same = loaded.ngpus() == graph.ngpus() && loaded.links.size() == graph.links.size() && findings == diagnose(loaded).size();
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const double peak_mib = static_cast<double>(usage.ru_maxrss) / 1024;
  if (wants_json) {
    fmt::print("{{\"gpus\":{},\"nodes\":{},\"devices\":{},\"links\":{},\"findings\":{},\"read_seconds\":{:.3f},\"build_seconds\":{:.3f},",
               graph.ngpus(), graph.nnodes(), graph.devices.size(), graph.links.size(), findings, read_seconds,
               built_seconds - read_seconds);
    fmt::print("\"analyse_seconds\":{:.3f},\"total_seconds\":{:.3f},\"total_cpu_seconds\":{:.3f},\"save_seconds\":{:.3f},",
               analysed_seconds - built_seconds, analysed_seconds, analysed_cpu, saved_seconds);
    fmt::print("\"load_seconds\":{:.3f},\"load_cpu_seconds\":{:.3f},\"peak_mib\":{:.0f}}}\n", loaded_seconds, loaded_cpu, peak_mib);
  } else {
    fmt::print("{} GPUs in {} nodes: {} devices, {} links, {} findings\n", graph.ngpus(), graph.nnodes(), graph.devices.size(),
               graph.links.size(), findings);
    fmt::print("read {:.3f} s, build {:.3f} s, analyse {:.3f} s: together {:.3f} s ({:.3f} s of processor time)\n", read_seconds,
               built_seconds - read_seconds, analysed_seconds - built_seconds, analysed_seconds, analysed_cpu);
    fmt::print("save {:.3f} s, load {:.3f} s ({:.3f} s of processor time); peak memory {:.0f} MiB\n", saved_seconds, loaded_seconds,
               loaded_cpu, peak_mib);
  }
  return is_same && sum > 0 ? 0 : 1;
}
