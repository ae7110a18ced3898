#include "base/random.h"

#include <cmath>
#include <numbers>

namespace draftsmith {

double CounterRandom::normal(uint64_t counter) const {
  const PhiloxBlock words = block(counter);
  const uint64_t first = uint64_t{words[1]} << 32 | words[0];
  const uint64_t second = uint64_t{words[3]} << 32 | words[2];
  // The number is in (0, 1], so that its logarithm is finite.
  const double radius_uniform = (static_cast<double>(first >> 11) + 1) * 0x1p-53;
  const double angle = 2 * std::numbers::pi * (static_cast<double>(second >> 11) * 0x1p-53);
  return std::sqrt(-2 * std::log(radius_uniform)) * std::cos(angle);
}

}  // namespace draftsmith
