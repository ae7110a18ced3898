// Learning-rate schedules: a factor on the peak rate, from the progress of the run.
//
//   warm-up      u = done(warm-up):                   factor u while u < 1
//   constant     1
//   linear       from 1 at the end of the warm-up to `final_factor` after the last step of the run, which itself still
//                moves the model, as in Transformers
//   cosine       the same way along half a cosine (Loshchilov and Hutter, SGDR, 2017, without restarts)
//   inverse_sqrt 1 / sqrt(done(warm-up)) (Vaswani et al. 2017; T5's pre-training)
#pragma once

#include <string>

#include "base/options.h"
#include "train/period.h"

namespace draftsmith::train {

struct ScheduleOptions {
  std::string name = "constant";
  std::string warmup = {};    // a period; "" is none
  double final_factor = 0.0;  // of the peak rate, at the end of the run; linear and cosine
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
