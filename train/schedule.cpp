#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <numbers>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "base/util.h"

namespace draftsmith::train {
namespace {

constexpr double kPercent = 100.0;
constexpr double kRounding = 1e-9;  // 0.3 / 0.1 is 2.9999999999999996

[[noreturn]] void reject(const std::string& text, const std::string& where) {
  throw UserError(Problem{where, "not a length of training",
                          "a number above 0 and its unit: \"2000 steps\", \"3 epochs\", \"1e6 labels\" or "
                          "\"5 %\" of the run",
                          "\"" + text + "\"", ""});
}

// Returns the number and the unit of a text; 0 unless its number is above 0.
std::pair<double, std::string> quantity_of(const std::string& text) {
  std::string compact;
  std::copy_if(text.begin(), text.end(), std::back_inserter(compact), [](char c) { return c != ' ' && c != '_'; });
  char* rest = nullptr;
  const double count = std::strtod(compact.c_str(), &rest);
  if (rest == compact.c_str() || !std::isfinite(count) || count <= 0) return {};
  return {count, rest};
}

}  // namespace

Period parse_period(const std::string& text, const std::string& where) {
  const auto [count, unit] = quantity_of(text);
  if (unit == "steps" || unit == "step") return Steps{count};
  if (unit == "epochs" || unit == "epoch") return Epochs{count};
  if (unit == "labels" || unit == "label") return Labels{count};
  if (unit == "%" && count <= kPercent) return Share{count / kPercent};
  reject(text, where);
}

std::optional<double> parse_minutes(const std::string& text) {
  const auto [count, unit] = quantity_of(text);
  return unit == "minutes" || unit == "minute" ? std::optional(count) : std::nullopt;
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

Fields<ScheduleOptions> ScheduleOptions::fields() {
  return Fields<ScheduleOptions>("learning-rate schedule")
      .add("name", &ScheduleOptions::name, Choices{"constant", "linear", "inverse_sqrt", "cosine"},
           "What follows the warm-up: constant; linear or cosine decay to 0 at the end of the run; "
           "inverse_sqrt: 1/sqrt(t/warm-up).")
      .add("warmup", &ScheduleOptions::warmup,
           "Length of the linear warm-up: \"500 steps\", \"0.5 epochs\", \"1e6 labels\" or \"4 %\" of the run; empty: "
           "none. inverse_sqrt needs one.")
      .check([](const ScheduleOptions& options, const std::string& where, Problems& problems) {
        check_period(options.warmup, where + ".warmup", true, problems);
        if (options.name == "inverse_sqrt" && options.warmup.empty()) {
          problems.add({where + ".warmup", "inverse_sqrt needs a warm-up: its rate is 1/sqrt(t/warm-up)",
                        "a period, such as \"1000 steps\"", "none", ""});
        }
      });
}

Schedule::Schedule(const ScheduleOptions& options, const Period& run, const PeriodScale& scale)
    : options_(options), run_(run) {
  throw_problems_of(validate_options<ScheduleOptions>, options, "schedule");
  if (options.warmup.empty()) return;
  warmup_ = parse_period(options.warmup, "schedule.warmup");
  warmup_share_ = in_steps(*warmup_, run_, scale) / in_steps(run_, run_, scale);
  if (warmup_share_ > 1) {
    throw UserError(Problem{"schedule.warmup", "the warm-up is longer than the run", "at most the run's length",
                            fmt::format("\"{}\", {:.3g} times the run", options.warmup, warmup_share_), ""});
  }
}

double Schedule::decayed(const Progressed& progress) const {
  const double run_done = std::min(1.0, done(run_, progress, run_));
  if (warmup_share_ >= 1) return 1.0;
  return std::clamp((run_done - warmup_share_) / (1 - warmup_share_), 0.0, 1.0);
}

double Schedule::factor(const Progressed& before, const Progressed& after) const {
  const double warmed = warmup_ ? done(*warmup_, after, run_) : 1.0;
  if (warmed < 1) return warmed;
  if (options_.name == "linear") return 1 - decayed(before);
  if (options_.name == "cosine") return 1 - (1 - std::cos(std::numbers::pi * decayed(before))) / 2;
  if (options_.name == "inverse_sqrt") return 1 / std::sqrt(warmed);
  return 1;
}

}  // namespace draftsmith::train
