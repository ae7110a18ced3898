#include "data/router/router_data.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include <fmt/format.h>

#include "base/utf8.h"
#include "data/hdf5/hdf5.h"

namespace draftsmith::data {

namespace {

constexpr Hdf5Format kRouterDataFormat{"draftsmith router data", 1, "the data of a router",
                                       "a stage of kind router-data"};
constexpr int64_t kMostRouterPositions = int64_t{1} << 40;
constexpr int64_t kMostTopTokens = 1024;

class RouterReader : Hdf5Checks {
 public:
  explicit RouterReader(const Hdf5Reader& input) : Hdf5Checks(input, kRouterDataFormat) {}

  RouterDataInfo info() const {
    check_format();
    RouterDataInfo info;
    info.top_k = number("top_k", 1, kMostTopTokens);
    info.vocabulary = number("vocabulary", 1, INT32_MAX);
    info.positions = number("positions", 0, kMostRouterPositions);
    info.examples = number("examples", 0, INT32_MAX);
    info.drafter_hash = input_.string_attribute("/", "drafter_hash");
    info.provenance = input_.string_attributes("/provenance");
    return info;
  }

  RouterRows rows(const RouterDataInfo& info) const {
    RouterRows rows;
    rows.entropy = values<float>("entropy", info.positions, 0);
    rows.probabilities = values<float>("probabilities", info.positions, info.top_k);
    rows.ids = values<int32_t>("ids", info.positions, info.top_k);
    rows.disagreement = values<float>("disagreement", info.positions, 0);
    rows.rejected = values<int32_t>("rejected", info.positions, 0);
    rows.examples = values<int32_t>("examples", info.positions, 0);
    // A tolerance for rounding.
    check_values("entropy", rows.entropy, -1e-3, std::log(static_cast<double>(info.vocabulary)) + 1e-3);
    check_values("probabilities", rows.probabilities, 0, 1 + 1e-5);
    check_values("ids", rows.ids, -1, static_cast<double>(info.vocabulary - 1));
    check_values("disagreement", rows.disagreement, 0, 1);
    check_values("rejected", rows.rejected, 0, 1);
    check_values("examples", rows.examples, 0, static_cast<double>(info.examples - 1));
    return rows;
  }

 private:
  template <class T>
  std::vector<T> values(const std::string& name, int64_t positions, int64_t columns) const {
    const std::string dataset = "/router/" + name;
    std::vector<int64_t> lengths = {positions};
    if (columns > 0) lengths.push_back(columns);
    check_shape(dataset, hdf5_type<T>(), lengths);
    return input_.read<T>(dataset, std::ssize(lengths));
  }

  template <class T>
  void check_values(const std::string& name, const std::vector<T>& values, double least, double most) const {
    const auto bad = std::find_if(values.begin(), values.end(), [&](T value) {
      const auto number = static_cast<double>(value);
      return !(number >= least && number <= most);
    });
    if (bad == values.end()) return;
    check(false, fmt::format("value {} of /router/{}", bad - values.begin(), name),
          fmt::format("{:g} to {:g}", least, most), fmt::format("{}", *bad));
  }
};

double mean(const std::vector<float>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

void write_router_data(const std::filesystem::path& file, const RouterDataInfo& info, const RouterRows& rows) {
  Hdf5Writer output(file);
  const auto write = [&]<class T>(const std::string& name, const std::vector<T>& values, int64_t columns) {
    if (static_cast<int64_t>(values.size()) != rows.size() * std::max<int64_t>(1, columns)) {
      throw std::logic_error("router data: " + name + " has another number of values than there are positions");
    }
    output.append(output.create("/router/" + name, hdf5_type<T>(), columns), std::span<const T>(values));
  };
  write("entropy", rows.entropy, 0);
  write("probabilities", rows.probabilities, info.top_k);
  write("ids", rows.ids, info.top_k);
  write("disagreement", rows.disagreement, 0);
  write("rejected", rows.rejected, 0);
  write("examples", rows.examples, 0);
  output.set_format(kRouterDataFormat, info.provenance);
  output.set_attribute("/", "top_k", info.top_k);
  output.set_attribute("/", "vocabulary", info.vocabulary);
  output.set_attribute("/", "positions", rows.size());
  output.set_attribute("/", "examples", info.examples);
  output.set_attribute("/", "drafter_hash", info.drafter_hash);
  output.finish();
}

RouterData::RouterData(const std::filesystem::path& file) {
  const Hdf5Reader input(file);
  const RouterReader reader(input);
  info_ = reader.info();
  rows_ = reader.rows(info_);
}

bool is_router_data(const std::filesystem::path& file) {
  return has_hdf5_format(file, kRouterDataFormat.name);
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
