// TransformerModel's passes as a features drafter (model/models/feature_drafter.h): what its first layer reads, and the
// unrolled pass over whole sequences.
#include <algorithm>
#include <stdexcept>
#include <vector>

#include "base/device_tensors.h"
#include "model/cpu/row_operations.h"
#include "model/layers/attention.h"
#include "model/transformer/stack.h"
#include "model/transformer/transformer_model.h"
#include "model/transformer/transformer_parts.h"

namespace draftsmith::model {

at::Tensor hidden_of_steps(const at::Tensor& hidden, const at::Tensor& position, const SelfAttentionForm& form) {
  const int64_t tokens = hidden.size(-1), step = form.unrolled;
  const at::Tensor all = at::ones({1, 1, tokens, tokens}, hidden.options());
  at::Tensor first = all.triu(2 - step);  // less than step - 1 tokens before
  if (form.hides_first) {
    const at::Tensor none = position.defined() ? position.eq(0).unsqueeze(1).unsqueeze(1)
                                               : at::arange(tokens, hidden.options().dtype(at::kLong)).eq(0);
    first = first | (none & (step == 1 ? all.tril(-1) : all));  // but the token itself
  }
  std::vector<at::Tensor> steps{hidden | first};
  for (int64_t of = 2; of <= step; ++of) {  // all but one
    steps.push_back(hidden | all.tril(of - step - 1) | all.triu(of - step + 1));
  }
  return at::cat(steps, 3);
}

at::Tensor Block::after_seen(const at::Tensor& x, const at::Tensor& input, KeyValue& seen, const SequencePass& pass,
                             const at::Tensor& read) const {
  const at::Tensor context =
      self_.after_seen(input.defined() ? input : input_of(x), seen, self_bias_of(pass), *pass.dropout);
  const auto kept = [&](const at::Tensor& y) { return read.defined() ? y.flatten(0, 1).index_select(0, read) : y; };
  const at::Tensor residual = kept(x);  // [N,D]
  const at::Tensor sum = after_self(residual, self_.add_output(residual, kept(context), *pass.dropout), pass);
  return read.defined() ? at::zeros_like(x).flatten(0, 1).index_copy(0, read, sum).view_as(x) : sum;
}

namespace {

// Returns 0 for the first token of each sequence, whose state before it there is not, else 1. [B or 1,T,1]
at::Tensor has_state(const TokenBatch& batch, const at::TensorOptions& options) {
  if (!batch.segments.empty()) {
    return upload(segment_index(batch).position, options.device()).ne(0).to(options).unsqueeze(2);
  }
  at::Tensor first = at::ones({1, batch.tokens.size(1), 1}, options);
  first.narrow(1, 0, 1).zero_();
  return first;
}

// Returns the states of each token's predecessor: [B,T,D] moved by one token, zero where there is none.
at::Tensor of_predecessors(const at::Tensor& states, const at::Tensor& present) {
  const at::Tensor nothing = at::zeros_like(states.narrow(1, 0, 1));
  return at::cat({nothing, states.narrow(1, 0, states.size(1) - 1)}, 1) * present;
}

}  // namespace

void TransformerModel::borrow(const TransformerModel& target) {
  if (!config_.reads_features()) throw std::logic_error("only a features drafter borrows from its target");
  const TransformerParts& lent = *target.parts_;
  const bool has_head = config_.own_head() || parts_->head.own_weights() == lent.head.own_weights();
  if (parts_->embedding.is_same(lent.embedding) && has_head) return;
  parts_->embedding = lent.embedding;
  parts_->embedding_scale = lent.embedding_scale;
  parts_->decoder_input = lent.decoder_input;
  if (!config_.own_head()) parts_->head = lent.head;
}

at::Tensor TransformerModel::project_features(const std::vector<at::Tensor>& layers) const {
  if (!config_.reads_features() || layers.size() != config_.features.layers.size()) {
    throw std::logic_error("a features drafter takes one state of its target for each layer that it reads");
  }
  return parts_->feature_projection(at::cat(layers, -1).to(parts_->dtype));
}

at::Tensor TransformerModel::join(const at::Tensor& embedded, const at::Tensor& states) const {
  return at::cat({parts_->decoder.block(0).input_of(embedded), parts_->feature_norm(states)}, -1);
}

const float* TransformerModel::join_on_cpu(const at::Tensor& tokens, const StepLayout& layout,
                                           const float* states) const {
  static thread_local std::vector<float> embedded;
  static thread_local std::vector<float> joined;  // keeps its memory, which is read until the step has run
  const int64_t width = config_.width, rows = tokens.numel();
  embedded.resize(std::max(embedded.size(), static_cast<size_t>(rows * width)));
  joined.resize(std::max(joined.size(), static_cast<size_t>(2 * rows * width)));
  embed_on_cpu(tokens, layout, embedded.data());
  const LayerWeightsView& first = parts_->decoder.packed_views().front();
  const RowNorm norm = parts_->feature_norm.row_norm();
  for (int64_t row = 0; row < rows; ++row) {
    const float* token = embedded.data() + row * width;
    float* to = joined.data() + 2 * row * width;
    if (norms_input(first.norm_place)) {
      normalize_rows(first.self.norm, token, 1, width, to);
    } else {
      std::copy_n(token, width, to);
    }
    normalize_rows(norm, states + row * width, 1, width, to + width);
  }
  return joined.data();
}

at::Tensor TransformerModel::mask_state() const {
  return parts_->feature_mask.select(0, 1);
}

at::Tensor TransformerModel::markov_input(const at::Tensor& previous) const {
  return embedded(parts_->markov_previous, parts_->vocabulary_rows.of(previous));
}

at::Tensor TransformerModel::markov_rows(const at::Tensor& previous) const {
  return parts_->markov_next(markov_input(previous));
}

std::vector<at::Tensor> TransformerModel::forward_features(const FeatureInput& input, const DropoutContext& context) {
  if (!parts_->embedding.defined()) throw std::logic_error("a features drafter reads its target's embedding");
  Dropout dropout(context);
  SequencePass pass{.memory = input.encoder, .dropout = &dropout};
  at::Tensor tokens = embed_sequences(input.target, parts_->decoder_input);  // [B,T,D]
  const at::Tensor present = has_state(input.target, tokens.options().requires_grad(false));
  at::Tensor states = of_predecessors(project_features(input.layers), present);
  const Stack& stack = parts_->decoder;
  if (pass.memory.defined()) {
    pass.cross_bias = stack.cross_bias(tokens, pass.memory, input.source_lengths, dropout.active());
  }
  std::vector<KeyValue> seen(static_cast<size_t>(stack.layers()));
  std::vector<at::Tensor> steps;
  for (int64_t step = 1; step <= input.steps; ++step) {
    work_point_both_ways(states);
    const SelfAttentionForm form{
        .drops = dropout.active(), .unrolled = step, .hides_first = config_.first_position() > 0};
    SelfAttentionForm windowed = form;
    windowed.windowed = true;
    at::Tensor hidden = states;
    for (int64_t i = 0; i < stack.layers(); ++i) {
      if (i == 0 || stack.has_layer_biases()) pass.self_bias = stack.self_bias(tokens, input.target, form, i);
      if (i == 0 && stack.has_windows()) pass.window_bias = stack.self_bias(tokens, input.target, windowed);
      const at::Tensor read = step > 1 || i + 1 == stack.layers() ? input.read : at::Tensor();
      hidden = stack.block(i).after_seen(hidden, i == 0 ? join(tokens, states) : at::Tensor(),
                                         seen[static_cast<size_t>(i)], pass, read);
    }
    steps.push_back(finish(hidden));
    if (!config_.features.block) {
      states = of_predecessors(hidden, present);
    } else if (step == 1 && input.steps > 1) {
      TokenBatch masks = input.target;
      masks.tokens = at::full_like(input.target.tokens, kMaskToken);
      tokens = embed_sequences(masks, parts_->decoder_input);
      states = mask_state().expand_as(states);
    }
  }
  return steps;
}

}  // namespace draftsmith::model
