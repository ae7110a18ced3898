// Successive halving (Jamieson, Talwalkar 2016): many settings on few lines, then the best of them on more lines, until
// a few are compared on all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace draftsmith::evaluate {

// Setting as a rung measured it.
struct Contender {
  std::string label;
  double gain = 0;        // the objective: greater is better
  double drop = 0;        // points lost against the setting's own baseline
  double least_drop = 0;  // lower end of the drop's 95 % interval: what a longer rung may find
};

// Returns the lines of each rung, rising, the last one `lines`: each has `share` times the lines of the one before, so
// that `settings` become at most `share` in the last one. No rung has less than `fewest` lines. share >= 2.
std::vector<int64_t> rung_lines(int64_t settings, int64_t lines, int64_t share, int64_t fewest);

// Returns the labels of the `count` contenders for a rung with more lines. Few lines say little about quality, so three
// ways to look at it take turns: the winner by the drops as measured, the one with the smallest drop, the winner if all
// drops were least_drop; then the next ones by the first and the last way.
std::vector<std::string> kept(const std::vector<Contender>& contenders, double max_drop, size_t count);

// Returns the index of the winner of the last rung: the greatest gain among those that lose at most `max_drop` points,
// or, if all lose more, the smallest drop. Errors: std::logic_error without contenders.
size_t winner(const std::vector<Contender>& contenders, double max_drop);

}  // namespace draftsmith::evaluate
