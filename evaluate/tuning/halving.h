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

// Speed of a setting that theory predicts, and the measured gain where there is one, both relative to any unit.
struct Prospect {
  std::string label;
  double predicted = 0;
  double gain = 0;
};

// A setting is ruled out by theory if it is predicted below this share of the fastest prediction.
inline constexpr double kWideMargin = 0.75;

// Returns the labels of the settings that theory rules out by kWideMargin. At least `fewest` settings, those with the
// greatest predictions, are left.
std::vector<std::string> ruled_out(const std::vector<Prospect>& settings, size_t fewest);

// Returns the labels of ruled-out settings that measurements bring back. Theory may be wrong by the factor between its
// best and its worst error on the measured settings; a setting comes back if that factor makes up for its distance from
// the fastest measured one. Without measurements all come back.
std::vector<std::string> brought_back(const std::vector<Prospect>& waiting, const std::vector<Prospect>& measured);

// Returns the index of the winner of the last rung: the greatest gain among those that lose at most `max_drop` points,
// or, if all lose more, the smallest drop. Errors: std::logic_error without contenders.
size_t winner(const std::vector<Contender>& contenders, double max_drop);

}  // namespace draftsmith::evaluate
