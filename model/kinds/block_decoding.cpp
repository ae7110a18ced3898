#include "model/kinds/block_decoding.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "base/device_tensors.h"
#include "model/kinds/block_text.h"
#include "model/transformer/decoding_guard.h"

namespace draftsmith::model {
namespace {

constexpr int64_t kNone = -1;

}  // namespace

// The text, and of each row the logits of one block, which are computed together: the head's weights are read once.
class BlockPredictionModel::State final : public DecodeState {
 public:
  State(TransformerModel& model, int64_t rows, int64_t capacity)
      : text(model, {}, rows, capacity), model_(model), block_of_(static_cast<size_t>(rows), kNone) {}

  int64_t rows() const override { return text.rows(); }
  int64_t capacity() const override { return text.capacity(); }
  int64_t length(int64_t row) const override { return text.length(row); }

  void rollback(std::span<const int64_t> lengths) override {
    text.rollback(lengths);
    for (size_t b = 0; b < block_of_.size(); ++b) {
      if (block_of_[b] >= text.length(static_cast<int64_t>(b)) / text.block()) block_of_[b] = kNone;
    }
  }

  void select_rows(std::span<const int64_t> rows) override {
    text.select_rows(rows);
    std::vector<int64_t> blocks;
    for (const int64_t row : rows) blocks.push_back(block_of_.at(static_cast<size_t>(row)));
    block_of_ = std::move(blocks);
    if (!logits_.defined()) return;
    const std::vector<int64_t> index(rows.begin(), rows.end());
    logits_ = logits_.index_select(0, upload(at::tensor(index, at::kLong), logits_.device()));
  }

  // Returns the logits [B,1,V] of the token after each row's last one.
  at::Tensor next_logits() {
    std::vector<int64_t> missing;
    std::vector<at::Tensor> states;
    for (int64_t b = 0; b < rows(); ++b) {
      const int64_t block = predicting(b) < 0 ? kNone : predicting(b) / text.block();
      if (block == kNone || block == block_of_[static_cast<size_t>(b)]) continue;
      missing.push_back(b);
      states.push_back(text.states(b, block * text.block(), text.block()));
      block_of_[static_cast<size_t>(b)] = block;
    }
    if (!missing.empty()) predict(missing, model_.head(at::stack(states)));
    if (!logits_.defined()) {
      return at::zeros({rows(), 1, model_.info().vocabulary}, at::TensorOptions(model_.info().device));
    }
    std::vector<int64_t> places;
    std::vector<int64_t> absent;
    for (int64_t b = 0; b < rows(); ++b) {
      places.push_back(std::max<int64_t>(0, predicting(b)) % text.block());
      absent.push_back(predicting(b) < 0 ? 1 : 0);
    }
    const auto on_device = [&](const std::vector<int64_t>& numbers) {
      return upload(at::tensor(numbers, at::kLong).view({rows(), 1}), logits_.device());
    };
    const at::Tensor row = at::arange(rows(), at::TensorOptions(at::kLong).device(logits_.device())).unsqueeze(1);
    return logits_.index({row, on_device(places)}).masked_fill_(on_device(absent).to(at::kBool).unsqueeze(2), 0);
  }

  // Returns the logits [B,L,V] at counts[b] tokens of each row from `first` on.
  at::Tensor logits_at(std::span<const int64_t> first, std::span<const int64_t> counts, int64_t tokens) const {
    std::vector<int64_t> places;
    for (const int64_t token : first) places.push_back(token + 1 - text.block());
    const at::Tensor logits = model_.head(text.states(places, counts, tokens));  // [B,L,V]
    for (int64_t b = 0; b < rows(); ++b) {
      const int64_t before = std::clamp<int64_t>(-places[static_cast<size_t>(b)], 0, tokens);
      logits.select(0, b).narrow(0, 0, before).zero_();
    }
    return logits;
  }

  BlockText text;

 private:
  // Returns the token whose state predicts the row's next one; negative: none.
  int64_t predicting(int64_t row) const { return text.length(row) - text.block(); }

  // Keeps the logits [n,γ,V] of rows.
  void predict(std::span<const int64_t> rows_of_logits, const at::Tensor& logits) {
    if (!logits_.defined()) logits_ = logits.new_zeros({rows(), text.block(), logits.size(2)});
    for (size_t i = 0; i < rows_of_logits.size(); ++i) {
      logits_.select(0, rows_of_logits[i]).copy_(logits.select(0, static_cast<int64_t>(i)));
    }
  }

  TransformerModel& model_;
  std::vector<int64_t> block_of_;  // [B] number of the block whose states made the row's logits; kNone: none did
  at::Tensor logits_;              // [B,γ,V]; undefined: none yet
};

BlockPredictionModel::BlockPredictionModel(std::unique_ptr<TransformerModel> transformer)
    : transformer_(std::move(transformer)) {
  if (block() < 1) throw std::logic_error("a model of block prediction has block attention");
}

EncoderStates BlockPredictionModel::encode(const TokenBatch& source) {
  return transformer_->encode(source);
}

std::unique_ptr<DecodeState> BlockPredictionModel::begin(const EncoderStates& source, int64_t capacity,
                                                         int64_t samples) {
  return transformer_->begin(source, capacity, samples);
}

std::unique_ptr<DecodeState> BlockPredictionModel::begin(int64_t rows, int64_t capacity) {
  return std::make_unique<State>(*transformer_, rows, capacity);
}

StepOutput BlockPredictionModel::step(const StepInput& input, DecodeState& state) {
  const DecodingGuard guard;
  auto& own = dynamic_cast<State&>(state);
  if (!input.hidden_layers.empty()) throw std::logic_error("a model of block prediction has states of whole blocks");
  std::vector<int64_t> first;
  for (int64_t b = 0; b < own.rows(); ++b) first.push_back(own.length(b));
  own.text.append(input.tokens, input.new_tokens);
  StepOutput output;
  if (input.logits == Logits::kLast) output.logits = own.next_logits();
  if (input.logits == Logits::kAll) output.logits = own.logits_at(first, input.new_tokens, input.tokens.size(1));
  return output;
}

void BlockPredictionModel::give_back(std::unique_ptr<DecodeState> state) {
  if (auto* own = dynamic_cast<State*>(state.get())) own->text.give_back();
}

}  // namespace draftsmith::model
