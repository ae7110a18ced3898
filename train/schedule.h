// Lengths of training with their units, and learning-rate schedules: a factor on the peak rate, by progress.
//
//   warm-up      u = done(warm-up):                   factor u while u < 1
//   constant     1
//   linear       from 1 at the end of the warm-up to 0 after the last step of the run, which itself still moves the
//                model, as in Transformers
//   cosine       the same way along half a cosine (Loshchilov and Hutter, SGDR, 2017, without restarts)
//   inverse_sqrt 1 / sqrt(done(warm-up)) (Vaswani et al. 2017; T5's pre-training)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "base/error.h"
#include "base/options.h"

namespace draftsmith::train {

// ---- Lengths with their unit in the type
// Steps, epochs and labels are not interchangeable numbers. In a recipe they are written "2000 steps", "3 epochs", "1e6
// labels" or "5 %" (of the run).

// Optimizer updates.
struct Steps {
  double count = 0;
};
// Passes over the corpus; may be a fraction.
struct Epochs {
  double count = 0;
};
// Target tokens that entered the loss (padding does not).
struct Labels {
  double count = 0;
};
// Part of the whole run, 0..1.
struct Share {
  double part = 0;
};

using Period = std::variant<Steps, Epochs, Labels, Share>;

// Progress of a run in every unit.
struct Progressed {
  double steps = 0;
  double epochs = 0;
  double labels = 0;
};

// Conversion between the units of one run. The number of steps of an epoch varies a little with the order of the
// examples.
struct PeriodScale {
  double steps_per_epoch = 1;
  double labels_per_epoch = 1;
};

// Reads "<number> steps|epochs|labels|%" (singular too; 2e3, 1.5 and 2_000 are numbers). Throws UserError; `where`
// names the option.
Period parse_period(const std::string& text, const std::string& where);

// Returns the minutes of "<number> minutes"; absent for other texts.
std::optional<double> parse_minutes(const std::string& text);

// Checks an option that holds a period: adds a problem unless `text` is one. `empty_is_off`: "" is valid, too.
void check_period(const std::string& text, const std::string& where, bool empty_is_off, Problems& problems);

// Returns `period` in steps, approximately if its unit is another one. `run` is the length of the run, for shares.
double in_steps(const Period& period, const Period& run, const PeriodScale& scale);

// Returns how much of `period` is done: 0 at the start, 1 at its end, more after. `run` is the length of the run, for
// shares.
double done(const Period& period, const Progressed& progress, const Period& run);

// Returns how many whole periods are done. A period that misses its end by rounding alone is whole.
int64_t times_done(const Period& period, const Progressed& progress, const Period& run);

// ---- Schedules

struct ScheduleOptions {
  std::string name = "constant";
  std::string warmup = {};  // a period; "" is none
  static Fields<ScheduleOptions> fields();
};

class Schedule {
 public:
  // `run` is the length of the run. Errors: UserError for a warm-up that is not a period or is longer than the run, and
  // for inverse_sqrt without a warm-up.
  Schedule(const ScheduleOptions& options, const Period& run, const PeriodScale& scale);

  // Returns the factor on the peak rate for the step that brings the run from `before` to `after`, 0..1. Warm-ups read
  // `after` and decays read `before`, so that neither the first nor the last step has size zero.
  double factor(const Progressed& before, const Progressed& after) const;

 private:
  // Returns the part of the way from the end of the warm-up to the end of the run, 0..1.
  double decayed(const Progressed& progress) const;

  ScheduleOptions options_;
  Period run_;
  std::optional<Period> warmup_;
  double warmup_share_ = 0;  // of the run
};

}  // namespace draftsmith::train
