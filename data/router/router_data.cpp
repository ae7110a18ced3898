#include "data/router/router_data.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include <fmt/format.h>

#include "base/utf8.h"

namespace draftsmith::data {
namespace {

constexpr int64_t kMostRouterPositions = int64_t{1} << 40;
constexpr int64_t kMostTopTokens = 1024;

// Reads a dataset whose values lie from `least` to `most`.
template <class T>
std::vector<T> router_values(const Hdf5Reader& input, const std::string& name, const std::vector<int64_t>& lengths,
                             double least, double most) {
  const auto values = input.values<T>("/router/" + name, lengths);
  const auto bad = std::ranges::find_if(values, [&](T value) {
    const auto number = static_cast<double>(value);
    return !(number >= least && number <= most);
  });
  if (bad != values.end()) {
    input.check(false, fmt::format("value {} of /router/{}", bad - values.begin(), name),
                fmt::format("{:g} to {:g}", least, most), fmt::format("{}", *bad));
  }
  return {values.begin(), values.end()};
}

double mean(const std::vector<float>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

void write_router_data(const std::filesystem::path& file, const RouterDataInfo& info, const RouterRows& rows) {
  Hdf5Writer output(file);
  const auto write = [&]<class T>(const std::string& name, const std::vector<T>& values, int64_t columns = 0) {
    if (static_cast<int64_t>(values.size()) != rows.size() * std::max<int64_t>(1, columns)) {
      throw std::logic_error("router data: " + name + " has another number of values than there are positions");
    }
    output.write_array("/router/" + name, std::span<const T>(values), columns);
  };
  write("entropy", rows.entropy);
  write("probabilities", rows.probabilities, info.top_k);
  write("ids", rows.ids, info.top_k);
  write("disagreement", rows.disagreement);
  write("rejected", rows.rejected);
  write("examples", rows.examples);
  output.set_format(kRouterDataFormat, info.provenance);
  output.set_attribute("/", "top_k", info.top_k);
  output.set_attribute("/", "vocabulary", info.vocabulary);
  output.set_attribute("/", "positions", rows.size());
  output.set_attribute("/", "examples", info.examples);
  output.set_attribute("/", "drafter_hash", info.drafter_hash);
  output.finish();
}

RouterData::RouterData(const std::filesystem::path& file) {
  const Hdf5Reader input(file, kRouterDataFormat);
  info_ = {.top_k = input.number("top_k", 1, kMostTopTokens),
           .vocabulary = input.number("vocabulary", 1, INT32_MAX),
           .positions = input.number("positions", 0, kMostRouterPositions),
           .examples = input.number("examples", 0, INT32_MAX),
           .drafter_hash = input.text("drafter_hash"),
           .provenance = input.provenance()};
  const std::vector<int64_t> one = {info_.positions};
  const std::vector<int64_t> several = {info_.positions, info_.top_k};
  const auto vocabulary = static_cast<double>(info_.vocabulary);
  // Entropies and probabilities have a tolerance for rounding.
  rows_.entropy = router_values<float>(input, "entropy", one, -1e-3, std::log(vocabulary) + 1e-3);
  rows_.probabilities = router_values<float>(input, "probabilities", several, 0, 1 + 1e-5);
  rows_.ids = router_values<int32_t>(input, "ids", several, -1, vocabulary - 1);
  rows_.disagreement = router_values<float>(input, "disagreement", one, 0, 1);
  rows_.rejected = router_values<int32_t>(input, "rejected", one, 0, 1);
  rows_.examples = router_values<int32_t>(input, "examples", one, 0, static_cast<double>(info_.examples - 1));
}

std::string describe_router_data(const RouterData& data) {
  const RouterDataInfo& info = data.info();
  const RouterRows& rows = data.rows();
  std::string text = fmt::format("router data: {} positions of {} sources, top {} tokens of {}\n", info.positions,
                                 info.examples, info.top_k, info.vocabulary);
  if (rows.size() > 0) {
    const auto rejected = std::count(rows.rejected.begin(), rows.rejected.end(), 1);
    text += fmt::format("  mean disagreement (total variation) {:.4f}, rejected {:.4f}, entropy {:.4f} nats\n",
                        mean(rows.disagreement), static_cast<double>(rejected) / static_cast<double>(rows.size()),
                        mean(rows.entropy));
  }
  text += fmt::format("  drafter sha256 {}\n", printable(info.drafter_hash.substr(0, 16)));
  for (const auto& [key, value] : info.provenance) {
    text += fmt::format("  {}: {}\n", printable(key), printable(value));
  }
  return text;
}

}  // namespace draftsmith::data
