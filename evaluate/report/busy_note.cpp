#include "evaluate/report/busy_note.h"

#include <fmt/format.h>

namespace draftsmith::evaluate {
namespace {

// Share of the processors above which others disturb times.
constexpr double kDisturbing = 0.1;

}  // namespace

std::string busy_note(const Results& results) {
  const auto load = results.environment.find("other_load");
  if (load == results.environment.end() || !load->is_number() || load->get<double>() < kDisturbing) return "";
  return fmt::format(
      "! Other processes used {:.0f} % of the processors meanwhile: these are speeds of a busy machine, and low ones",
      100 * load->get<double>());
}

}  // namespace draftsmith::evaluate
