// Lengths of training with their unit in the type: steps, epochs and labels are not interchangeable numbers. In a
// recipe they are written "2000 steps", "3 epochs", "1e6 labels" or "5 %" (of the run).
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "base/error.h"

namespace draftsmith::train {

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
std::string to_string(const Period& period);

// Checks an option that holds a period: adds a problem unless `text` is one. `empty_is_off`: "" is valid, too.
void check_period(const std::string& text, const std::string& where, bool empty_is_off, Problems& problems);

// Returns `period` in steps, approximately if its unit is another one. `run` is the length of the run, for shares.
double in_steps(const Period& period, const Period& run, const PeriodScale& scale);

// Returns how much of `period` is done: 0 at the start, 1 at its end, more after. `run` is the length of the run, for
// shares.
double done(const Period& period, const Progressed& progress, const Period& run);

// Returns how many whole periods are done. A period that misses its end by rounding alone is whole.
int64_t times_done(const Period& period, const Progressed& progress, const Period& run);

}  // namespace draftsmith::train
