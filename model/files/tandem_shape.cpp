#include "model/files/tandem_shape.h"

#include <algorithm>

#include <fmt/format.h>

namespace draftsmith::model {

namespace {

// A list of millions of numbers, as a file may hold, makes one short problem.
void check_layer_map(const TandemShape& shape, int64_t secondary_layers, const std::string& where, Problems& problems) {
  constexpr size_t kShown = 16;
  const std::span<const int64_t> map = shape.layer_map;
  if (static_cast<int64_t>(map.size()) != secondary_layers) {
    const auto shown = map.first(std::min(kShown, map.size()));
    problems.add({.where = where,
                  .what = "has not one number for each layer of the secondary",
                  .expected = fmt::format("{} numbers", secondary_layers),
                  .found = fmt::format("{}: {}{}", map.size(), fmt::join(shown, ", "),
                                       shown.size() < map.size() ? ", ..." : "")});
    return;
  }
  const auto outside = [&](int64_t layer) { return layer < 0 || layer > shape.primary_layers; };
  const auto wrong = std::find_if(map.begin(), map.end(), outside);
  if (wrong == map.end()) return;
  problems.add({.where = where,
                .what = "names a representation that the primary does not have",
                .expected = fmt::format("0 (embedding output) to {} (its last layer)", shape.primary_layers),
                .found = fmt::format("{}", *wrong)});
}

}  // namespace

void check_tandem_shape(const TandemShape& shape, int64_t secondary_layers, const std::string& where,
                        Problems& problems) {
  check_layer_map(shape, secondary_layers, where + ": layer_map", problems);
  if (shape.block < 1) {
    problems.add({.where = where + ": block",
                  .what = "a block has at least one token",
                  .expected = "1 or more",
                  .found = fmt::format("{}", shape.block)});
  }
}

}  // namespace draftsmith::model
