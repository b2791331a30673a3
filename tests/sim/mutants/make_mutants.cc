// make_mutants LIST SOURCE_DIR OUT_DIR FILE...: copies the FILEs, each change of the list in place under a switch, and writes the names
// of the changes to OUT_DIR/mutant_names.cc. Fails when a change does not fit exactly once.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Mutant {
  std::string name;
  std::string kind;
  std::string file;
  std::string from;
  std::string to;
};

std::optional<std::string> read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Lines after the one with `-` or `+` that are indented go on with it.
std::vector<Mutant> parse(const std::string& list) {
  std::vector<Mutant> mutants;
  std::istringstream lines(list);
  std::string* open = nullptr;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') {
      open = nullptr;
    } else if (line[0] == '-' || line[0] == '+') {
      open = line[0] == '-' ? &mutants.back().from : &mutants.back().to;
      *open = line.substr(std::min<std::size_t>(2, line.size()));
    } else if (line[0] == ' ' && open != nullptr) {
      *open += "\n" + line;
    } else {
      Mutant& mutant = mutants.emplace_back();
      std::istringstream(line) >> mutant.name >> mutant.kind >> mutant.file;
    }
  }
  return mutants;
}

// The condition of an `if` and the like may lack its brackets in the list; then the whole text is a statement prefix and the switch is
// textual.
std::string switched(const Mutant& mutant, std::size_t number) {
  if (mutant.kind == "stmt") {
    return fmt::format("if (::sluice::sim::machine_mutant == {}) {{ {} }} else {{ {} }}", number, mutant.to, mutant.from);
  }
  return fmt::format("(::sluice::sim::machine_mutant == {} ? ({}) : ({}))", number, mutant.to, mutant.from);
}

int complain(const std::string& text) {
  fmt::print(stderr, "make_mutants: {}\n", text);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return complain("usage: make_mutants LIST SOURCE_DIR OUT_DIR FILE...");
  const auto list = read_file(argv[1]);
  if (!list) return complain(fmt::format("cannot read {}", argv[1]));
  std::map<std::string, std::string> sources;
  for (int index = 4; index < argc; ++index) {
    const auto text = read_file(std::filesystem::path(argv[2]) / argv[index]);
    if (!text) return complain(fmt::format("cannot read {}", argv[index]));
    sources[argv[index]] = *text;
  }
  const std::vector<Mutant> mutants = parse(*list);
  std::string names;
  for (std::size_t index = 0; index < mutants.size(); ++index) {
    const Mutant& mutant = mutants[index];
    const auto source = sources.find(mutant.file);
    if (source == sources.end()) return complain(fmt::format("{}: {} is not among the sources", mutant.name, mutant.file));
    std::string& text = source->second;
    const std::size_t at = text.find(mutant.from);
    if (mutant.from.empty() || at == std::string::npos || text.find(mutant.from, at + 1) != std::string::npos) {
      return complain(fmt::format("{}: its text is not exactly once in {}", mutant.name, mutant.file));
    }
    text.replace(at, mutant.from.size(), switched(mutant, index + 1));
    names += fmt::format("\"{}\",\n", mutant.name);
  }
  for (const auto& [file, text] : sources) {
    std::ofstream(std::filesystem::path(argv[3]) / std::filesystem::path(file).filename()) << text;
  }
  std::ofstream(std::filesystem::path(argv[3]) / "mutant_names.cc") << fmt::format(
      "#include \"tests/sim/mutants/mutant_switch.h\"\n\nnamespace sluice::sim {{\n\nstd::span<const char* const> machine_mutant_names() "
      "{{\n"
      "  static constexpr const char* kNames[] = {{\n{}}};\n  return kNames;\n}}\n\n}}  // namespace sluice::sim\n",
      names);
  return 0;
}
