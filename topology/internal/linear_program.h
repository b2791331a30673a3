#pragma once

// A small dense linear program: maximise goal * x where rows * x <= limits and x >= 0, with limits >= 0, so that x = 0 is a solution to
// start from. Simplex on a tableau: a few hundred rows and columns take milliseconds. Pure, any thread. Same numbers in, same numbers out.

#include <cstddef>
#include <vector>

namespace sluice::topology {

class LinearProgram {
 public:
  explicit LinearProgram(std::size_t variables) : goal_(variables, 0.0) {}

  void set_goal(std::size_t variable, double weight) { goal_[variable] = weight; }
  // A new row with this limit; its coefficients are zero until set. REQUIRES: limit >= 0.
  std::size_t add_row(double limit);
  void add(std::size_t row, std::size_t variable, double coefficient) { rows_[row][variable] += coefficient; }

  struct Solution {
    std::vector<double> values;
    double goal = 0.0;
    bool is_optimal = false;  // false: the steps ran out (the values are a solution, perhaps not the best) or there is no limit
  };
  [[nodiscard]] Solution maximise() const;

 private:
  std::vector<double> goal_;
  std::vector<std::vector<double>> rows_;
  std::vector<double> limits_;
};

}  // namespace sluice::topology
