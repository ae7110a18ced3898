#include "train/objectives/cross_entropy.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>

namespace draftsmith::train {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// Logits held at a time. Large enough for efficient matrix products, small enough to stay cheap beside the activations.
constexpr int64_t kLogitsAtOnce = int64_t{1} << 24;
constexpr int64_t kFewestRows = 64;

int64_t rows_at_once(int64_t vocabulary) {
  return std::max(kFewestRows, kLogitsAtOnce / vocabulary);
}

at::ScalarType compute_type(const at::Tensor& hidden) {
  return hidden.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// The matrices in the type that their products are computed in: autocast's, where it is on.
struct Operands {
  at::Tensor hidden;  // [P,D]
  at::Tensor weight;  // [V,D]
};

Operands operands(const at::Tensor& hidden, const at::Tensor& weight) {
  const at::DeviceType device = hidden.device().type();
  const at::ScalarType type =
      at::autocast::is_autocast_enabled(device) ? at::autocast::get_autocast_dtype(device) : weight.scalar_type();
  return {hidden.detach().to(type), weight.detach().to(type)};
}

// Buffers of one block of rows, reused from block to block.
struct Buffers {
  at::Tensor logits;     // [C,V]
  at::Tensor log_probs;  // [C,V]
};

// log softmax of `count` rows of logits, in buffers where no conversion is needed. [C,V]
at::Tensor log_probabilities(const Operands& in, int64_t begin, int64_t count, Buffers& buffers) {
  const at::ScalarType type = compute_type(in.hidden);
  const at::Tensor hidden = in.hidden.narrow(0, begin, count);
  const int64_t vocabulary = in.weight.size(0);
  if (!buffers.log_probs.defined()) {
    buffers.logits = at::empty({count, vocabulary}, in.hidden.options());
    buffers.log_probs = at::empty({count, vocabulary}, in.hidden.options().dtype(type));
  }
  at::Tensor logits = buffers.logits.narrow(0, 0, count);
  at::Tensor log_probs = buffers.log_probs.narrow(0, 0, count);
  at::mm_out(logits, hidden, in.weight.t());  // [C,V]
  at::_log_softmax_out(log_probs, logits.to(type), 1, false);
  return log_probs;
}

// Sum of a block's losses.
at::Tensor block_loss(const at::Tensor& log_probs, const at::Tensor& labels, double smoothing) {
  const at::Tensor nll = log_probs.gather(1, labels.unsqueeze(1)).sum().neg();
  if (smoothing == 0) return nll;
  const at::Tensor all = log_probs.sum().neg() / log_probs.size(1);
  return nll * (1 - smoothing) + all * smoothing;
}

// d loss / d logits, in place of the log probabilities: q - (1-e) onehot(y) - e/V.
void to_gradient(at::Tensor& log_probs, const at::Tensor& labels, double smoothing) {
  log_probs.exp_();
  if (smoothing > 0) log_probs.sub_(smoothing / static_cast<double>(log_probs.size(1)));
  log_probs.scatter_add_(1, labels.unsqueeze(1), at::full({labels.size(0), 1}, smoothing - 1, log_probs.options()));
}

struct Gradients {
  at::Tensor hidden;  // [P,D], type of hidden
  at::Tensor weight;  // [V,D], type of weight
};

// Autocast must not convert what the blocks compute, and nothing in them is recorded.
class PlainArithmetic {
 public:
  explicit PlainArithmetic(at::DeviceType device)
      : device_(device), enabled_(at::autocast::is_autocast_enabled(device)) {
    at::autocast::set_autocast_enabled(device_, false);
  }
  ~PlainArithmetic() { at::autocast::set_autocast_enabled(device_, enabled_); }
  PlainArithmetic(const PlainArithmetic&) = delete;
  PlainArithmetic& operator=(const PlainArithmetic&) = delete;

 private:
  at::DeviceType device_;
  bool enabled_;
  at::NoGradGuard no_grad_;
};

void accumulate(Gradients& gradients, const Operands& in, const at::Tensor& logits_gradient, int64_t begin) {
  const int64_t count = logits_gradient.size(0);
  const at::Tensor slope = logits_gradient.to(in.hidden.scalar_type());  // [C,V]
  gradients.hidden.narrow(0, begin, count).copy_(slope.mm(in.weight));
  const at::Tensor hidden = in.hidden.narrow(0, begin, count);
  if (in.hidden.scalar_type() != gradients.weight.scalar_type()) {
    gradients.weight.add_(slope.t().mm(hidden));
  } else if (begin == 0) {
    at::mm_out(gradients.weight, slope.t(), hidden);
  } else {
    gradients.weight.addmm_(slope.t(), hidden);
  }
}

class LinearCrossEntropy : public torch::autograd::Function<LinearCrossEntropy> {
 public:
  static Variable forward(AutogradContext* context, const Variable& hidden, const Variable& weight,
                          const Variable& labels, double smoothing, bool wanted) {
    const Operands in = operands(hidden, weight);
    const PlainArithmetic plain(hidden.device().type());
    const int64_t positions = hidden.size(0);
    const int64_t block = std::min(positions, rows_at_once(weight.size(0)));
    at::Tensor sum = at::zeros({}, hidden.options().dtype(compute_type(in.hidden)));
    Gradients gradients;
    if (wanted) {
      gradients.hidden = at::empty_like(hidden);
      gradients.weight = positions > 0 && in.hidden.scalar_type() == weight.scalar_type()
                             ? at::empty(weight.sizes(), weight.options())
                             : at::zeros(weight.sizes(), weight.options());
    }
    Buffers buffers;
    for (int64_t begin = 0; begin < positions; begin += block) {
      const int64_t count = std::min(block, positions - begin);
      const at::Tensor block_labels = labels.narrow(0, begin, count);
      at::Tensor log_probs = log_probabilities(in, begin, count, buffers);
      sum += block_loss(log_probs, block_labels, smoothing);
      if (!wanted) continue;
      to_gradient(log_probs, block_labels, smoothing);
      accumulate(gradients, in, log_probs, begin);
    }
    if (wanted) context->save_for_backward({gradients.hidden, gradients.weight});
    return sum;
  }

  static variable_list backward(AutogradContext* context, variable_list upstream) {
    const variable_list saved = context->get_saved_variables();
    // The trainer goes backward from the sum itself; a factor costs a pass over the gradients.
    const at::Tensor factor = upstream[0];
    if (factor.is_cpu() && factor.item<double>() == 1.0) return {saved[0], saved[1], {}, {}, {}};
    return {saved[0] * factor.to(saved[0].scalar_type()), saved[1] * factor.to(saved[1].scalar_type()), {}, {}, {}};
  }
};

}  // namespace

at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                                double label_smoothing) {
  const bool wanted = at::GradMode::is_enabled() && (hidden.requires_grad() || weight.requires_grad());
  return LinearCrossEntropy::apply(hidden, weight, labels, label_smoothing, wanted);
}

Prediction predict(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels) {
  const Operands in = operands(hidden, weight);
  const PlainArithmetic plain(hidden.device().type());
  const int64_t positions = hidden.size(0);
  const int64_t block = std::min(positions, rows_at_once(weight.size(0)));
  Prediction prediction{.loss = {at::zeros({}, hidden.options().dtype(compute_type(in.hidden))), positions},
                        .arg_maxs = at::empty_like(labels)};
  Buffers buffers;
  for (int64_t begin = 0; begin < positions; begin += block) {
    const int64_t count = std::min(block, positions - begin);
    const at::Tensor log_probs = log_probabilities(in, begin, count, buffers);
    prediction.loss.sum += block_loss(log_probs, labels.narrow(0, begin, count), 0);
    prediction.arg_maxs.narrow(0, begin, count).copy_(log_probs.argmax(1));
  }
  return prediction;
}

at::Tensor hidden_at_labels(model::TransformerModel& model, const Batch& batch, const model::DropoutContext& dropout) {
  model::ForwardInput input{.source = batch.source, .target = batch.decoder_input, .hidden_layers = {}};
  const at::Tensor hidden = model.forward(input, dropout).hidden;                // [B,T,D]
  return hidden.reshape({-1, hidden.size(2)}).index_select(0, batch.positions);  // [P,D]
}

HeadLabels labels_in_head(const model::TransformerModel& model, const at::Tensor& hidden, const at::Tensor& labels) {
  const model::VocabularyRows& vocabulary = model.vocabulary_rows();
  if (!vocabulary.pruned()) return {hidden, labels};
  const at::Tensor known = vocabulary.has(labels).nonzero().squeeze(1);  // [Q]
  return {hidden.index_select(0, known), vocabulary.of(labels.index_select(0, known))};
}

const at::Tensor& head_weight(const model::TransformerModel& model) {
  const auto& parameters = model.parameters();
  const auto own = parameters.find("head.weight");
  return own != parameters.end() ? own->second : parameters.at("embedding.weight");
}

Fields<CrossEntropyOptions> CrossEntropyOptions::fields() {
  return Fields<CrossEntropyOptions>("cross entropy")
      .add("label_smoothing", &CrossEntropyOptions::label_smoothing, Range{0, 0.99},
           "Share e of the target distribution that is spread evenly over the vocabulary: "
           "loss = (1-e) * -log q(y) + e/V * sum of -log q(v). 0: off.");
}

Loss CrossEntropy::loss(model::TransformerModel& model, const Batch& batch, const model::DropoutContext& dropout) {
  const HeadLabels labels = labels_in_head(model, hidden_at_labels(model, batch, dropout), batch.labels);
  return {linear_cross_entropy(labels.hidden, head_weight(model), labels.rows, options_.label_smoothing),
          labels.rows.size(0)};
}

}  // namespace draftsmith::train
