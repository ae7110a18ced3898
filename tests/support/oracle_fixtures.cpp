#include "tests/support/oracle_fixtures.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "base/random.h"
#include "infer/drafters/model_drafter.h"
#include "infer/loop/rows.h"

namespace draftsmith::infer {

struct OracleModel::State : model::DecodeState {
  std::vector<std::vector<int64_t>> sources;  // [B]
  std::vector<std::vector<int64_t>> tokens;   // [B] processed
  int64_t most = 0;

  int64_t rows() const override { return static_cast<int64_t>(tokens.size()); }
  int64_t capacity() const override { return most; }
  int64_t length(int64_t row) const override {
    return static_cast<int64_t>(tokens.at(static_cast<size_t>(row)).size());
  }
  void rollback(std::span<const int64_t> lengths) override {
    for (size_t b = 0; b < tokens.size(); ++b) {
      if (lengths[b] < length(static_cast<int64_t>(b))) tokens[b].resize(static_cast<size_t>(lengths[b]));
    }
  }
  void select_rows(std::span<const int64_t> kept) override {
    std::vector<std::vector<int64_t>> new_sources, new_tokens;
    for (const int64_t row : kept) {
      new_sources.push_back(sources.at(static_cast<size_t>(row)));
      new_tokens.push_back(tokens.at(static_cast<size_t>(row)));
    }
    sources = std::move(new_sources);
    tokens = std::move(new_tokens);
  }
};

OracleModel::OracleModel(model::ModelInfo info, OracleFunction function)
    : info_(std::move(info)), function_(std::move(function)) {}

model::EncoderStates OracleModel::encode(const model::TokenBatch& source) {
  ++encodes_;
  return {source.tokens.to(at::kDouble).unsqueeze(2), source.lengths};
}

std::unique_ptr<model::DecodeState> OracleModel::begin(const model::EncoderStates& source, int64_t capacity,
                                                       int64_t samples) {
  auto state = std::make_unique<State>();
  state->most = capacity;
  for (size_t b = 0; b < source.lengths.size(); ++b) {
    auto ids = to_host(source.hidden.select(0, static_cast<int64_t>(b)));
    ids.resize(static_cast<size_t>(source.lengths[b]));
    state->sources.insert(state->sources.end(), static_cast<size_t>(samples), ids);
  }
  state->tokens.resize(state->sources.size());
  return state;
}

std::unique_ptr<model::DecodeState> OracleModel::begin(int64_t rows, int64_t capacity) {
  auto state = std::make_unique<State>();
  state->most = capacity;
  state->sources.resize(static_cast<size_t>(rows));
  state->tokens.resize(static_cast<size_t>(rows));
  return state;
}

// Logits of the token after the row's first `length` ones.
void OracleModel::write_logits(const State& state, size_t row, int64_t length, double* out) const {
  const std::span<const int64_t> seen(state.tokens[row].data(), static_cast<size_t>(length));
  const auto probabilities = function_(state.sources[row], info_.encoder_decoder ? seen.subspan(1) : seen);
  if (static_cast<int64_t>(probabilities.size()) != info_.vocabulary) {
    throw std::logic_error("the oracle's function gave a distribution of another size than its vocabulary");
  }
  std::transform(probabilities.begin(), probabilities.end(), out, [](double p) { return std::log(p); });
}

model::StepOutput OracleModel::step(const model::StepInput& input, model::DecodeState& opaque) {
  auto& state = dynamic_cast<State&>(opaque);
  ++steps_;
  const int64_t rows = state.rows(), width = input.tokens.size(1);
  if (input.tokens.size(0) != rows || static_cast<int64_t>(input.new_tokens.size()) != rows) {
    throw std::logic_error("a step's rows differ from its state's");
  }
  const bool all = input.logits == model::Logits::kAll;
  model::StepOutput output;
  output.hidden.assign(input.hidden_layers.size(), input.tokens.to(at::kDouble).unsqueeze(2));
  if (input.logits != model::Logits::kNone) {
    output.logits = at::full({rows, all ? width : 1, info_.vocabulary}, std::numeric_limits<double>::quiet_NaN(),
                             at::TensorOptions(at::kDouble));
  }
  double* logits = output.logits.defined() ? output.logits.mutable_data_ptr<double>() : nullptr;
  const auto tokens = to_host(input.tokens);
  for (int64_t b = 0; b < rows; ++b) {
    const auto row = static_cast<size_t>(b);
    const int64_t added = input.new_tokens[row];
    if (state.length(b) + added > state.most) throw std::logic_error("a step passes the capacity of its state");
    for (int64_t j = 0; j < added; ++j) {
      state.tokens[row].push_back(tokens[static_cast<size_t>(b * width + j)]);
      if (output.logits.defined() && (all || j + 1 == added)) {
        const int64_t place = all ? b * width + j : b;
        write_logits(state, row, state.length(b), logits + place * info_.vocabulary);
      }
    }
  }
  if (output.logits.defined()) output.logits = output.logits.to(info_.device, info_.dtype);
  return output;
}

}  // namespace draftsmith::infer

namespace draftsmith::infer::testing {

model::ModelInfo oracle_info(int64_t vocabulary, at::ScalarType dtype, bool encoder_decoder) {
  model::ModelInfo info{.name = "oracle", .vocabulary = vocabulary, .eos = {kEos}, .dtype = dtype};
  info.encoder_decoder = encoder_decoder;
  return info;
}

OracleFunction random_oracle(int64_t vocabulary, uint64_t seed, double spread, Ids pruned) {
  return [=](std::span<const int64_t> source, std::span<const int64_t> prefix) {
    uint64_t stream = 0x9e3779b97f4a7c15;
    for (const int64_t token : source) stream = (stream ^ static_cast<uint64_t>(token + 1)) * 0xbf58476d1ce4e5b9;
    stream = (stream ^ 77) * 0x94d049bb133111eb;
    for (const int64_t token : prefix) stream = (stream ^ static_cast<uint64_t>(token + 1)) * 0xbf58476d1ce4e5b9;
    const CounterRandom random(seed, stream ^ (stream >> 29));
    std::vector<double> p(static_cast<size_t>(vocabulary));
    for (size_t i = 0; i < p.size(); ++i) p[i] = std::exp(spread * random.normal(i));
    for (const int64_t token : pruned) p[static_cast<size_t>(token)] = 0;
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& value : p) value /= sum;
    return p;
  };
}

OracleFunction mixture(OracleFunction a, OracleFunction b, double share) {
  return [a = std::move(a), b = std::move(b), share](std::span<const int64_t> source, std::span<const int64_t> prefix) {
    auto p = a(source, prefix);
    const auto other = b(source, prefix);
    for (size_t i = 0; i < p.size(); ++i) p[i] = (1 - share) * p[i] + share * other[i];
    return p;
  };
}

OracleFunction constant_oracle(std::vector<double> probabilities) {
  return [p = std::move(probabilities)](std::span<const int64_t>, std::span<const int64_t>) { return p; };
}

std::vector<double> one_hot(int64_t vocabulary, int64_t token) {
  std::vector<double> p(static_cast<size_t>(vocabulary), 0.0);
  p[static_cast<size_t>(token)] = 1;
  return p;
}

std::vector<double> warped(std::vector<double> p, const Warping& warping) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] > p[b]; });
  if (warping.temperature == 0) return one_hot(static_cast<int64_t>(p.size()), static_cast<int64_t>(order[0]));
  for (double& value : p) value = std::pow(value, 1 / warping.temperature);
  const auto normalise = [&] {
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& value : p) value /= sum;
  };
  if (warping.top_k > 0) {
    for (size_t i = static_cast<size_t>(warping.top_k); i < order.size(); ++i) p[order[i]] = 0;
  }
  normalise();
  double mass = 0;
  for (const size_t token : order) {
    const double value = p[token];
    if (warping.top_p < 1 && mass >= warping.top_p) p[token] = 0;
    mass += value;
  }
  const double least = warping.min_p * p[order[0]];
  for (double& value : p) value = value < least ? 0 : value;
  normalise();
  return p;
}

namespace {

struct Enumeration {
  const OracleFunction& function;
  const Ids& source;
  const Warping& warping;
  int64_t limit;
  std::map<Ids, double> sequences;

  void extend(const Ids& prefix, double probability) {
    const auto p = warped(function(source, prefix), warping);
    for (size_t token = 0; token < p.size(); ++token) {
      if (p[token] == 0) continue;
      Ids longer = prefix;
      longer.push_back(static_cast<int64_t>(token));
      const bool ends = longer.back() == kEos || static_cast<int64_t>(longer.size()) == limit;
      if (ends) {
        sequences[longer] = probability * p[token];
      } else {
        extend(longer, probability * p[token]);
      }
    }
  }
};

}  // namespace

std::map<Ids, double> enumerate(const OracleFunction& function, const Ids& source, const Warping& warping,
                                int64_t limit) {
  Enumeration enumeration{function, source, warping, limit, {}};
  enumeration.extend({}, 1);
  return enumeration.sequences;
}

double chi_square_deviate(const std::map<Ids, double>& expected, const std::map<Ids, int64_t>& counts) {
  double total = 0;
  for (const auto& [sequence, count] : counts) {
    if (!expected.contains(sequence)) return std::numeric_limits<double>::infinity();
    total += static_cast<double>(count);
  }
  double statistic = 0, rest_expected = 0, rest_count = 0;
  int64_t cells = 0;
  const auto add = [&](double want, double have) {
    if (want <= 0) return;
    statistic += (have - want) * (have - want) / want;
    ++cells;
  };
  for (const auto& [sequence, probability] : expected) {
    const double want = probability * total;
    const auto found = counts.find(sequence);
    const double have = found == counts.end() ? 0 : static_cast<double>(found->second);
    if (want >= 5) {
      add(want, have);
    } else {
      rest_expected += want;
      rest_count += have;
    }
  }
  add(rest_expected, rest_count);
  const auto freedom = static_cast<double>(std::max<int64_t>(cells - 1, 1));
  const double spread = 2 / (9 * freedom);
  return (std::cbrt(statistic / freedom) - (1 - spread)) / std::sqrt(spread);
}

OraclePair::OraclePair(const Case& oracles)
    : target(oracle_info(oracles.vocabulary, oracles.dtype, oracles.encoder_decoder), oracles.target),
      drafter(target.info(), oracles.drafter) {}

GenerationModels OraclePair::models() {
  return {.target = &target, .drafter = as_drafter(drafter), .generation = {}};
}

std::vector<GenerationResult> decode(const Case& oracles, const DecodeOptions& options, std::span<const Ids> sources) {
  return Generator(OraclePair(oracles).models(), options).generate(sources);
}

std::map<Ids, int64_t> count_sequences(std::span<const GenerationResult> results) {
  std::map<Ids, int64_t> counts;
  for (const GenerationResult& result : results) ++counts[result.ids];
  return counts;
}

}  // namespace draftsmith::infer::testing
