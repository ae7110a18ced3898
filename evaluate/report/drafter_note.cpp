#include "evaluate/report/drafter_note.h"

#include <fmt/format.h>

#include "evaluate/report/section.h"

namespace draftsmith::evaluate {

std::string drafter_note(const std::string& name, const DrafterResult& drafter) {
  std::string note = fmt::format("Drafter {}: cost ratio c = {}", name, fixed(drafter.cost_ratio, 3));
  if (const auto& alpha = drafter.alpha_forced) {
    note += fmt::format(", alpha_forced {} at T = 0 and {} at T = 1", fixed(alpha->temperature_0, 3),
                        fixed(alpha->temperature_1, 3));
  }
  if (drafter.target_step_seconds) {
    note += "; a target step of 1, 2, … tokens takes";
    for (const double seconds : *drafter.target_step_seconds) note += fmt::format(" {:.2f}", seconds * 1000);
    note += " ms";
  }
  return note + ".";
}

}  // namespace draftsmith::evaluate
