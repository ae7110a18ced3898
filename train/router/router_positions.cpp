#include "train/router/router_positions.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "base/error.h"
#include "base/random.h"

namespace draftsmith::train {
namespace {

// Returns the sources with positions in an order that depends on the seed alone.
std::vector<int32_t> shuffled_sources(const data::RouterData& data, uint64_t seed) {
  const CounterRandom random(seed, "router/validation");
  std::vector<int32_t> sources = data.rows().examples;  // rising
  sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
  const auto place = [&](int32_t source) { return random.uniform(static_cast<uint64_t>(source)); };
  std::stable_sort(sources.begin(), sources.end(), [&](int32_t a, int32_t b) { return place(a) < place(b); });
  return sources;
}

}  // namespace

model::RouterFeatures RouterPositions::at(const at::Tensor& rows) const {
  return {features.entropy.index_select(0, rows), features.probabilities.index_select(0, rows),
          features.ids.index_select(0, rows), features.context.index_select(0, rows)};
}

RouterPositions select_positions(const data::RouterData& data, const std::vector<int64_t>& chosen, int64_t k) {
  const data::RouterRows& rows = data.rows();
  const auto stored = static_cast<size_t>(data.info().top_k);
  const auto count = static_cast<int64_t>(chosen.size());
  const auto width = static_cast<size_t>(data.info().context);
  RouterPositions positions{{at::empty({count}, at::kFloat), at::empty({count, k}, at::kFloat),
                             at::empty({count, k}, at::kLong), at::empty({count, data.info().context}, at::kFloat)},
                            at::empty({count}, at::kFloat),
                            {},
                            {}};
  for (int64_t n = 0; n < count; ++n) {
    const auto row = static_cast<size_t>(chosen[static_cast<size_t>(n)]);
    positions.features.entropy.mutable_data_ptr<float>()[n] = rows.entropy[row];
    positions.disagreement.mutable_data_ptr<float>()[n] = rows.disagreement[row];
    positions.rejected.push_back(rows.rejected[row]);
    positions.sources.push_back(rows.examples[row]);
    std::copy_n(rows.context.begin() + static_cast<std::ptrdiff_t>(row * width), width,
                positions.features.context.mutable_data_ptr<float>() + static_cast<size_t>(n) * width);
    for (int64_t i = 0; i < k; ++i) {
      const size_t from = row * stored + static_cast<size_t>(i);
      positions.features.probabilities.mutable_data_ptr<float>()[n * k + i] = rows.probabilities[from];
      positions.features.ids.mutable_data_ptr<int64_t>()[n * k + i] = rows.ids[from];
    }
  }
  return positions;
}

RouterSplit split_by_source(const data::RouterData& data, const RouterShares& shares, uint64_t seed) {
  const std::vector<int32_t> sources = shuffled_sources(data, seed);
  const auto count_of = [&](double share) {
    return share == 0 ? 0 : std::max<int64_t>(1, std::llround(share * static_cast<double>(sources.size())));
  };
  const int64_t validation = count_of(shares.validation);
  const int64_t test = count_of(shares.test);
  std::map<int32_t, int64_t> place;
  for (const int32_t source : sources) place.emplace(source, std::ssize(place));
  RouterSplit split;
  for (int64_t n = 0; n < data.rows().size(); ++n) {
    const int64_t at = place.at(data.rows().examples[static_cast<size_t>(n)]);
    (at < validation ? split.validation : at < validation + test ? split.test : split.training).push_back(n);
  }
  if (!split.training.empty()) return split;
  throw UserError(
      {.where = "router data",
       .what = "there are too few positions to train on some, to choose by others and to judge by a third part",
       .expected = fmt::format("sources in each part, with validation_share = {:g} and test_share = {:g}",
                               shares.validation, shares.test),
       .found = fmt::format("{} positions of {} sources", data.rows().size(), data.info().examples),
       .hint = "decode more sources in the router-data stage"});
}

}  // namespace draftsmith::train
