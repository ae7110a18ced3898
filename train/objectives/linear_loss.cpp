#include "train/objectives/linear_loss.h"

#include <algorithm>

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "train/plain_arithmetic.h"

namespace draftsmith::train {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// Logits of a block. Large enough for efficient matrix products, small enough to stay cheap beside the activations.
constexpr int64_t kLogitsAtOnce = int64_t{1} << 24;
constexpr int64_t kFewestRows = 64;
// Logits that a loss is given at a time on a CPU: its passes over them stay in the caches.
constexpr int64_t kLogitsInCache = int64_t{1} << 19;

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

struct Gradients {
  at::Tensor hidden;  // [P,D], type of hidden; undefined: not wanted
  at::Tensor weight;  // [V,D], type of weight; undefined: not wanted
};

// Of the loss with respect to the matrices, from that with respect to a block of logits [C,V].
void accumulate(Gradients& gradients, const Operands& in, const at::Tensor& slope, int64_t begin) {
  const int64_t count = slope.size(0);
  if (gradients.hidden.defined()) gradients.hidden.narrow(0, begin, count).copy_(slope.mm(in.weight));
  if (!gradients.weight.defined()) return;
  const at::Tensor hidden = in.hidden.narrow(0, begin, count);
  if (in.hidden.scalar_type() != gradients.weight.scalar_type()) {
    gradients.weight.add_(slope.t().mm(hidden));
  } else if (begin == 0) {
    at::mm_out(gradients.weight, slope.t(), hidden);
  } else {
    gradients.weight.addmm_(slope.t(), hidden);
  }
}

// The losses of a block, whose logits [C,V] become their gradient where it is wanted.
void add_block(LogitLoss& loss, at::Tensor& logits, int64_t begin, bool wanted, at::Tensor& sum) {
  const int64_t count = logits.size(0);
  const int64_t step = logits.is_cpu() ? std::max<int64_t>(1, kLogitsInCache / logits.size(1)) : count;
  loss.begin_block({begin, count});
  for (int64_t first = 0; first < count; first += step) {
    const int64_t rows = std::min(step, count - first);
    at::Tensor slice = logits.narrow(0, first, rows);
    at::Tensor values = slice.to(sum.scalar_type());  // the slice itself where it has that type
    sum += loss.rows(values, {begin + first, rows}, wanted);
    if (wanted && !values.is_same(slice)) slice.copy_(values);
  }
}

class LinearLoss : public torch::autograd::Function<LinearLoss> {
 public:
  static Variable forward(AutogradContext* context, const Variable& hidden, const Variable& weight, LogitLoss* loss,
                          bool wanted) {
    const bool weight_wanted = wanted && weight.requires_grad();
    const Operands in = operands(hidden, weight);
    const PlainArithmetic plain(hidden.device().type());
    const int64_t positions = hidden.size(0);
    const int64_t block = std::min(positions, rows_at_once(weight.size(0)));
    at::Tensor sum = at::zeros({}, hidden.options().dtype(compute_type(in.hidden)));
    Gradients gradients;
    if (wanted && hidden.requires_grad()) gradients.hidden = at::empty_like(hidden);
    if (weight_wanted) {
      gradients.weight = positions > 0 && in.hidden.scalar_type() == weight.scalar_type()
                             ? at::empty(weight.sizes(), weight.options())
                             : at::zeros(weight.sizes(), weight.options());
    }
    const at::Tensor buffer = at::empty({block, weight.size(0)}, in.hidden.options());  // [C,V]
    for (int64_t begin = 0; begin < positions; begin += block) {
      const int64_t count = std::min(block, positions - begin);
      at::Tensor logits = buffer.narrow(0, 0, count);
      at::mm_out(logits, in.hidden.narrow(0, begin, count), in.weight.t());
      add_block(*loss, logits, begin, wanted, sum);
      if (wanted) accumulate(gradients, in, logits, begin);
    }
    if (wanted) context->save_for_backward({gradients.hidden, gradients.weight});
    return sum;
  }

  static variable_list backward(AutogradContext* context, variable_list upstream) {
    variable_list gradients = context->get_saved_variables();
    // The trainer goes backward from the sum itself; a factor costs a pass over the gradients.
    const at::Tensor factor = upstream[0];
    if (!factor.is_cpu() || factor.item<double>() != 1.0) {
      for (at::Tensor& gradient : gradients) {
        if (gradient.defined()) gradient = gradient * factor.to(gradient.scalar_type());
      }
    }
    return {gradients[0], gradients[1], {}, {}};
  }
};

}  // namespace

at::Tensor linear_loss(const at::Tensor& hidden, const at::Tensor& weight, LogitLoss& loss) {
  const bool wanted = at::GradMode::is_enabled() && (hidden.requires_grad() || weight.requires_grad());
  return LinearLoss::apply(hidden, weight, &loss, wanted);
}

}  // namespace draftsmith::train
