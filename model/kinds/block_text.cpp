#include "model/kinds/block_text.h"

#include <algorithm>
#include <stdexcept>

#include "base/device_tensors.h"

namespace draftsmith::model {

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
  std::vector<int64_t> absent;  // [B*L] flags
  bool any = false;
  for (int64_t b = 0; b < rows(); ++b) {
    const auto row = static_cast<size_t>(b);
    for (int64_t j = 0; j < tokens; ++j) {
      const int64_t place = first[row] + j;
      const bool present = j < counts[row] && place >= 0;
      if (present && place >= state_->length(b)) throw std::logic_error("states of tokens in no whole block");
      places.push_back(present ? place : 0);
      absent.push_back(present ? 0 : 1);
      any = any || present;
    }
  }
  const at::Device device = model_.info().device;
  if (!any) {
    const int64_t width = projection_.defined() ? projection_.size(0) : model_.config().width;
    return at::zeros({rows(), tokens, width}, at::TensorOptions(model_.info().dtype).device(device));
  }
  const auto on_device = [&](const std::vector<int64_t>& numbers) {
    return upload(at::tensor(numbers, at::kLong).view({rows(), tokens}), device);
  };
  const at::Tensor row = at::arange(rows(), at::TensorOptions(at::kLong).device(device)).unsqueeze(1);
  return kept_.index({row, on_device(places)}).masked_fill_(on_device(absent).to(at::kBool).unsqueeze(2), 0);
}

}  // namespace draftsmith::model
