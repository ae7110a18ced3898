#include "tests/support/oracle_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

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
    std::vector<std::vector<int64_t>> new_sources;
    std::vector<std::vector<int64_t>> new_tokens;
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
  const int64_t rows = state.rows();
  const int64_t width = input.tokens.size(1);
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
