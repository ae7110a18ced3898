#include "model/models/block_models.h"

#include <algorithm>
#include <optional>
#include <stdexcept>

#include <fmt/format.h>

#include "base/device_tensors.h"
#include "base/error.h"
#include "base/util.h"
#include "model/families/family.h"
#include "model/transformer/stack.h"
#include "model/transformer/transformer_parts.h"

namespace draftsmith::model {
namespace {

constexpr int64_t kNone = -1;

// Returns the vectors of kept [B,T,W] at these L places of each row, [B,L,W]; zeros where a place is kNone.
at::Tensor vectors_at(const at::Tensor& kept, const std::vector<int64_t>& places, int64_t count) {
  const at::Device device = kept.device();
  const at::Tensor place = upload(at::tensor(places, at::kLong).view({kept.size(0), count}), device);
  const at::Tensor row = at::arange(kept.size(0), at::TensorOptions(at::kLong).device(device)).unsqueeze(1);
  return kept.index({row, place.clamp_min(0)}).masked_fill_(place.lt(0).unsqueeze(2), 0);
}

}  // namespace

BlockText::BlockText(TransformerModel& model, at::Tensor projection, int64_t rows, int64_t capacity)
    : model_(model),
      projection_(std::move(projection)),
      block_(model.config().block_attention),
      capacity_(capacity),
      tokens_(static_cast<size_t>(rows)),
      state_(model.begin(rows, capacity)) {}

void BlockText::append(const at::Tensor& tokens, std::span<const int64_t> new_tokens) {
  const at::Tensor host = tokens.to(at::kCPU).contiguous();  // int64 [B,L]
  const auto* id = host.const_data_ptr<int64_t>();
  StepInput input{.tokens = {}, .new_tokens = {}, .logits = Logits::kNone, .hidden_layers = {model_.info().layers}};
  std::vector<int64_t> read;  // [B] tokens that the model has read
  int64_t width = 0;
  for (size_t b = 0; b < tokens_.size(); ++b, id += host.size(1)) {
    tokens_[b].insert(tokens_[b].end(), id, id + new_tokens[b]);
    const auto length = std::ssize(tokens_[b]);
    if (length > capacity_) throw std::logic_error("a row would pass the capacity of its state");
    read.push_back(state_->length(static_cast<int64_t>(b)));
    input.new_tokens.push_back(length / block_ * block_ - read.back());
    width = std::max(width, input.new_tokens.back());
  }
  if (width == 0) return;
  std::vector<int64_t> whole;
  for (size_t b = 0; b < tokens_.size(); ++b) {
    const auto first = tokens_[b].begin() + read[b];
    whole.insert(whole.end(), first, first + input.new_tokens[b]);
    whole.resize((b + 1) * static_cast<size_t>(width), model_.info().pad);
  }
  input.tokens = upload(at::tensor(whole, at::kLong).view({rows(), width}), model_.info().device);
  const at::Tensor states = model_.finish(model_.step(input, *state_).hidden.front());  // [B,width,D]
  keep(projection_.defined() ? at::linear(states, projection_) : states, read, input.new_tokens);
}

void BlockText::keep(const at::Tensor& states, std::span<const int64_t> first, std::span<const int64_t> counts) {
  if (!kept_.defined()) kept_ = states.new_zeros({rows(), capacity_, states.size(2)});
  for (int64_t b = 0; b < rows(); ++b) {
    const auto row = static_cast<size_t>(b);
    if (counts[row] == 0) continue;
    kept_.select(0, b).narrow(0, first[row], counts[row]).copy_(states.select(0, b).narrow(0, 0, counts[row]));
  }
}

void BlockText::rollback(std::span<const int64_t> lengths) {
  std::vector<int64_t> whole;
  for (size_t b = 0; b < tokens_.size(); ++b) {
    const int64_t length = std::clamp<int64_t>(lengths[b], 0, std::ssize(tokens_[b]));
    tokens_[b].resize(static_cast<size_t>(length));
    whole.push_back(length / block_ * block_);
  }
  state_->rollback(whole);
}

void BlockText::select_rows(std::span<const int64_t> rows) {
  std::vector<std::vector<int64_t>> chosen;
  for (const int64_t row : rows) chosen.push_back(tokens_.at(static_cast<size_t>(row)));
  tokens_ = std::move(chosen);
  state_->select_rows(rows);
  if (!kept_.defined()) return;
  const std::vector<int64_t> index(rows.begin(), rows.end());
  kept_ = kept_.index_select(0, upload(at::tensor(index, at::kLong), kept_.device()));
}

at::Tensor BlockText::states(int64_t row, int64_t first, int64_t count) const {
  if (first < 0 || first + count > state_->length(row)) throw std::logic_error("states of tokens in no whole block");
  return kept_.select(0, row).narrow(0, first, count);
}

at::Tensor BlockText::states(std::span<const int64_t> first, std::span<const int64_t> counts, int64_t tokens) const {
  std::vector<int64_t> places;  // [B*L]
  bool any = false;
  for (int64_t b = 0; b < rows(); ++b) {
    const auto row = static_cast<size_t>(b);
    for (int64_t j = 0; j < tokens; ++j) {
      const int64_t place = first[row] + j;
      const bool present = j < counts[row] && place >= 0;
      if (present && place >= state_->length(b)) throw std::logic_error("states of tokens in no whole block");
      places.push_back(present ? place : kNone);
      any = any || present;
    }
  }
  if (any) return vectors_at(kept_, places, tokens);
  const int64_t width = projection_.defined() ? projection_.size(0) : model_.config().width;
  return at::zeros({rows(), tokens, width}, at::TensorOptions(model_.info().dtype).device(model_.info().device));
}

// The text, and of each row the logits of one block, which are computed together: the head's weights are read once.
class BlockPredictionModel::State final : public BlockText {
 public:
  State(TransformerModel& model, int64_t rows, int64_t capacity)
      : BlockText(model, {}, rows, capacity), block_of_(static_cast<size_t>(rows), kNone) {}

  void rollback(std::span<const int64_t> lengths) override {
    BlockText::rollback(lengths);
    for (size_t b = 0; b < block_of_.size(); ++b) {
      if (block_of_[b] >= length(static_cast<int64_t>(b)) / block()) block_of_[b] = kNone;
    }
  }

  void select_rows(std::span<const int64_t> rows) override {
    BlockText::select_rows(rows);
    keep_rows(block_of_, rows);
    if (!logits_.defined()) return;
    const std::vector<int64_t> index(rows.begin(), rows.end());
    logits_ = logits_.index_select(0, upload(at::tensor(index, at::kLong), logits_.device()));
  }

  // Returns the logits [B,1,V] of the token after each row's last one.
  at::Tensor next_logits() {
    std::vector<int64_t> missing;
    std::vector<at::Tensor> before;
    for (int64_t b = 0; b < rows(); ++b) {
      const int64_t number = predicting(b) < 0 ? kNone : predicting(b) / block();
      if (number == kNone || number == block_of_[static_cast<size_t>(b)]) continue;
      missing.push_back(b);
      before.push_back(states(b, number * block(), block()));
      block_of_[static_cast<size_t>(b)] = number;
    }
    if (!missing.empty()) predict(missing, model_.head(at::stack(before)));
    if (!logits_.defined()) {
      return at::zeros({rows(), 1, model_.info().vocabulary}, at::TensorOptions(model_.info().device));
    }
    std::vector<int64_t> places;
    for (int64_t b = 0; b < rows(); ++b) {
      places.push_back(predicting(b) < 0 ? kNone : predicting(b) % block());
    }
    return vectors_at(logits_, places, 1);
  }

  // Returns the logits [B,L,V] at counts[b] tokens of each row from `first` on.
  at::Tensor logits_at(std::span<const int64_t> first, std::span<const int64_t> counts, int64_t tokens) const {
    std::vector<int64_t> places;
    for (const int64_t token : first) places.push_back(token + 1 - block());
    const at::Tensor logits = model_.head(states(places, counts, tokens));  // [B,L,V]
    for (int64_t b = 0; b < rows(); ++b) {
      const int64_t before = std::clamp<int64_t>(-places[static_cast<size_t>(b)], 0, tokens);
      logits.select(0, b).narrow(0, 0, before).zero_();
    }
    return logits;
  }

 private:
  // Returns the token whose state predicts the row's next one; negative: none.
  int64_t predicting(int64_t row) const { return length(row) - block(); }

  // Keeps the logits [n,γ,V] of rows.
  void predict(std::span<const int64_t> rows_of_logits, const at::Tensor& logits) {
    if (!logits_.defined()) logits_ = logits.new_zeros({rows(), block(), logits.size(2)});
    for (size_t i = 0; i < rows_of_logits.size(); ++i) {
      logits_.select(0, rows_of_logits[i]).copy_(logits.select(0, static_cast<int64_t>(i)));
    }
  }

  std::vector<int64_t> block_of_;  // [B] number of the block whose states made the row's logits; kNone: none did
  at::Tensor logits_;              // [B,γ,V]; undefined: none yet
};

BlockPredictionModel::BlockPredictionModel(std::unique_ptr<TransformerModel> transformer)
    : transformer_(std::move(transformer)) {
  if (block() < 1) throw std::logic_error("a model of block prediction has block attention");
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
  own.append(input.tokens, input.new_tokens);
  StepOutput output;
  if (input.logits == Logits::kLast) output.logits = own.next_logits();
  if (input.logits == Logits::kAll) output.logits = own.logits_at(first, input.new_tokens, input.tokens.size(1));
  return output;
}

void BlockPredictionModel::give_back(std::unique_ptr<DecodeState> state) {
  if (auto* own = dynamic_cast<State*>(state.get())) own->give_back();
}

namespace {

constexpr const char* kBlockKey = "draftsmith_block_prediction";

void block_keys(ConfigKeys& keys, TransformerConfig& config) {
  std::optional<ConfigKeys> object = keys.within(kBlockKey);
  if (!object) return;
  object->integer("block", config.block_attention, {1, kMaxPositions});
  if (keys.reads() && config.encoder_decoder) {
    keys.reader().wrong(kBlockKey, "is not for encoder-decoder models", "a decoder-only architecture");
  }
}

}  // namespace

const ModelKind& block_prediction_kind() {
  static const ModelKind kBlockPrediction = {
      .name = "a model of block prediction",
      .prefix = "DraftsmithBlockPrediction",
      .model_type = "draftsmith_block_prediction",
      .hint = "it predicts blocks of tokens at once: it decodes or drafts, and is trained from random weights",
      .describes = [](const TransformerConfig& config) { return config.block_attention > 0; },
      .keys = block_keys};
  return kBlockPrediction;
}

TransformerConfig block_prediction_config(TransformerConfig config, int64_t block) {
  Problems problems;
  if (config.encoder_decoder || config.tandem_secondary()) {
    problems.add(
        {.where = "block prediction",
         .what = "is for decoder-only models",
         .expected = "a decoder-only architecture",
         .found = config.encoder_decoder ? "an encoder-decoder (" + config.family + ")" : "a Tandem secondary"});
  }
  if (block < 1) {
    problems.add({.where = "block",
                  .what = "a block has at least one token",
                  .expected = "1 or more",
                  .found = fmt::format("{}", block)});
  }
  problems.throw_if_any();
  config.block_attention = block;
  return config;
}

at::Tensor shifted(const at::Tensor& values, const TokenBatch& batch, int64_t distance, double missing) {
  const int64_t tokens = batch.tokens.size(1);
  const at::Tensor place = at::arange(tokens, at::kLong) + distance;            // [T]
  at::Tensor present = place.ge(0).logical_and(place.lt(tokens)).unsqueeze(0);  // [1,T]
  const at::Tensor from = place.clamp(0, tokens - 1);
  if (batch.segments.empty()) {
    present = present & place.unsqueeze(0).lt(at::tensor(batch.lengths, at::kLong).unsqueeze(1));
  } else {
    const at::Tensor segment = segment_index(batch).segment;  // [B,T]
    present = present & segment.index_select(1, from).eq(segment);
  }
  std::vector<int64_t> shape = present.sizes().vec();
  shape.resize(static_cast<size_t>(values.dim()), 1);
  const at::Tensor moved = values.index_select(1, upload(from, values.device()));
  return moved.masked_fill(upload(present.view(shape).logical_not(), values.device()), missing);
}

}  // namespace draftsmith::model
