#include "train/period.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <stdexcept>
#include <type_traits>

#include <fmt/format.h>

#include "base/util.h"

namespace draftsmith::train {

namespace {

constexpr double kPercent = 100.0;
constexpr double kRounding = 1e-9;  // 0.3 / 0.1 is 2.9999999999999996

[[noreturn]] void reject(const std::string& text, const std::string& where) {
  throw UserError(Problem{.where = where,
                          .what = "not a length of training",
                          .expected = "a number above 0 and its unit: \"2000 steps\", \"3 epochs\", \"1e6 labels\" or "
                                      "\"5 %\" of the run",
                          .found = "\"" + text + "\""});
}

}  // namespace

Period parse_period(const std::string& text, const std::string& where) {
  std::string compact;
  std::copy_if(text.begin(), text.end(), std::back_inserter(compact), [](char c) { return c != ' ' && c != '_'; });
  char* rest = nullptr;
  const double count = std::strtod(compact.c_str(), &rest);
  if (rest == compact.c_str() || !std::isfinite(count) || count <= 0) reject(text, where);
  const std::string unit = rest;
  if (unit == "steps" || unit == "step") return Steps{count};
  if (unit == "epochs" || unit == "epoch") return Epochs{count};
  if (unit == "labels" || unit == "label") return Labels{count};
  if (unit == "%" && count <= kPercent) return Share{count / kPercent};
  reject(text, where);
}

std::string to_string(const Period& period) {
  return std::visit(Overload{[](Steps p) { return fmt::format("{} steps", p.count); },
                             [](Epochs p) { return fmt::format("{} epochs", p.count); },
                             [](Labels p) { return fmt::format("{} labels", p.count); },
                             [](Share p) { return fmt::format("{} %", p.part * kPercent); }},
                    period);
}

void check_period(const std::string& text, const std::string& where, bool empty_is_off, Problems& problems) {
  if (empty_is_off && text.empty()) return;
  try {
    parse_period(text, where);
  } catch (const UserError& error) {
    problems.add_all(error.problems());
  }
}

double in_steps(const Period& period, const Period& run, const PeriodScale& scale) {
  return std::visit(Overload{[](Steps p) { return p.count; }, [&](Epochs p) { return p.count * scale.steps_per_epoch; },
                             [&](Labels p) { return p.count / scale.labels_per_epoch * scale.steps_per_epoch; },
                             [&](Share p) {
                               if (std::holds_alternative<Share>(run))
                                 throw std::logic_error("a run's length cannot be a share");
                               return p.part * in_steps(run, run, scale);
                             }},
                    period);
}

double done(const Period& period, const Progressed& progress, const Period& run) {
  return std::visit(
      Overload{[&](Steps p) { return progress.steps / p.count; }, [&](Epochs p) { return progress.epochs / p.count; },
               [&](Labels p) { return progress.labels / p.count; },
               [&](Share p) { return done(run, progress, run) / p.part; }},
      period);
}

int64_t times_done(const Period& period, const Progressed& progress, const Period& run) {
  return static_cast<int64_t>(std::floor(done(period, progress, run) + kRounding));
}

}  // namespace draftsmith::train
