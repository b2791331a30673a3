#include "topology/internal/linear_program.h"

#include <cmath>

#include "base/assert.h"

namespace sluice::topology {
namespace {

constexpr double kTolerance = 1e-10;
constexpr std::size_t kStepsMax = 20'000;
// The steepest column finds the optimum fast and may cycle; after this many steps the lowest-numbered one is taken, which cannot.
constexpr std::size_t kSteepestSteps = 2'000;

// Rows of the tableau: one for each constraint, the goal last. Columns: variables, slacks, right side.
class Tableau {
 public:
  Tableau(const std::vector<double>& goal, const std::vector<std::vector<double>>& rows, const std::vector<double>& limits)
      : variables_(goal.size()), columns_(goal.size() + rows.size() + 1), cells_(rows.size() + 1, std::vector<double>(columns_, 0.0)) {
    for (std::size_t row = 0; row < rows.size(); ++row) {
      std::copy(rows[row].begin(), rows[row].end(), cells_[row].begin());
      cells_[row][variables_ + row] = 1.0;
      cells_[row].back() = limits[row];
      basis_.push_back(variables_ + row);
    }
    for (std::size_t variable = 0; variable < variables_; ++variable) cells_.back()[variable] = -goal[variable];
  }

  // Nothing improves any more: columns_.
  [[nodiscard]] std::size_t entering(bool lowest) const {
    std::size_t best = columns_;
    double steepest = -kTolerance;
    for (std::size_t column = 0; column + 1 < columns_; ++column) {
      if (cells_.back()[column] >= steepest) continue;
      best = column;
      if (lowest) break;
      steepest = cells_.back()[column];
    }
    return best;
  }

  // The row that limits the column first; rows() when none does.
  [[nodiscard]] std::size_t leaving(std::size_t column) const {
    std::size_t best = rows();
    double least = 0.0;
    for (std::size_t row = 0; row < rows(); ++row) {
      if (cells_[row][column] <= kTolerance) continue;
      const double ratio = cells_[row].back() / cells_[row][column];
      if (best == rows() || ratio < least || (ratio == least && basis_[row] < basis_[best])) {
        best = row;
        least = ratio;
      }
    }
    return best;
  }

  void pivot(std::size_t row, std::size_t column) {
    std::vector<double>& chosen = cells_[row];
    const double inverse = 1.0 / chosen[column];
    for (double& cell : chosen) cell *= inverse;
    for (std::size_t other = 0; other < cells_.size(); ++other) {
      const double factor = cells_[other][column];
      if (other == row || std::fabs(factor) < 1e-300) continue;
      for (std::size_t at = 0; at < columns_; ++at) cells_[other][at] -= factor * chosen[at];
      cells_[other][column] = 0.0;
    }
    basis_[row] = column;
  }

  [[nodiscard]] std::vector<double> values() const {
    std::vector<double> result(variables_, 0.0);
    for (std::size_t row = 0; row < rows(); ++row) {
      if (basis_[row] < variables_) result[basis_[row]] = std::max(0.0, cells_[row].back());
    }
    return result;
  }
  [[nodiscard]] double goal() const { return cells_.back().back(); }
  [[nodiscard]] std::size_t rows() const { return cells_.size() - 1; }
  [[nodiscard]] std::size_t columns() const { return columns_; }

 private:
  std::size_t variables_;
  std::size_t columns_;
  std::vector<std::vector<double>> cells_;
  std::vector<std::size_t> basis_;
};

}  // namespace

std::size_t LinearProgram::add_row(double limit) {
  SLUICE_ASSERT(limit >= 0.0, "limit {}", limit);
  rows_.emplace_back(goal_.size(), 0.0);
  limits_.push_back(limit);
  return rows_.size() - 1;
}

LinearProgram::Solution LinearProgram::maximise() const {
  Tableau tableau(goal_, rows_, limits_);
  Solution solution;
  for (std::size_t step = 0; step < kStepsMax; ++step) {
    const std::size_t column = tableau.entering(step > kSteepestSteps);
    if (column == tableau.columns()) {
      solution.is_optimal = true;
      break;
    }
    const std::size_t row = tableau.leaving(column);
    if (row == tableau.rows()) break;
    tableau.pivot(row, column);
  }
  solution.values = tableau.values();
  solution.goal = tableau.goal();
  return solution;
}

}  // namespace sluice::topology
