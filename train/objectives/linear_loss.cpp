#include "train/objectives/linear_loss.h"

#include <algorithm>

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/bf16_product.h"
#include "base/device_tensors.h"

namespace draftsmith::train {
namespace {

void bf16_product(const MatrixProduct& product, const at::Tensor& left, const at::Tensor& right, at::Tensor& out) {
  const at::Tensor a = left.contiguous(), b = right.contiguous();
  const auto rows = [](const at::Tensor& tensor) {
    return RowsInMemory<const uint16_t>{static_cast<const uint16_t*>(tensor.const_data_ptr()), tensor.size(1)};
  };
  multiply_bf16(product, rows(a), rows(b), {out.mutable_data_ptr<float>(), product.n});
}

// Returns the type of products that are not rounded: fp64 for fp64 matrices, else fp32.
at::ScalarType wide_type(at::ScalarType matrix) {
  return matrix == at::kDouble ? at::kDouble : at::kFloat;
}

// Writes rows W^T to `out` [C,V], fp32 and contiguous, or adds it: rows and W of one half-precision type, of which
// multiplies_wide() is true.
void wide_product_into(at::Tensor& out, const at::Tensor& rows, const at::Tensor& matrix, bool add) {
  if (matrix.is_cpu()) {
    return bf16_product({.m = rows.size(0), .n = matrix.size(0), .k = rows.size(1), .transpose_b = true, .add = add},
                        rows, matrix, out);
  }
  if (add) {
    out.add_(at::mm(rows, matrix.t(), out.scalar_type()));
  } else {
    at::mm_out(out, rows, matrix.t(), out.scalar_type());
  }
}

}  // namespace

bool multiplies_wide(const at::Tensor& matrix) {
  const at::ScalarType type = matrix.scalar_type();
  if (type != at::kBFloat16 && type != at::kHalf) return false;
  return matrix.is_cuda() || (matrix.is_cpu() && type == at::kBFloat16 && has_bf16_product());
}

void wide_gradient_into(at::Tensor& out, const at::Tensor& slope, const at::Tensor& rows, bool add) {
  bf16_product({.m = slope.size(1), .n = rows.size(1), .k = slope.size(0), .transpose_a = true, .add = add}, slope,
               rows, out);
}

at::Tensor wide_product(const at::Tensor& rows, const at::Tensor& matrix) {
  const at::Tensor own = rows.to(matrix.scalar_type());
  const at::ScalarType type = wide_type(matrix.scalar_type());
  if (type == matrix.scalar_type()) return own.mm(matrix.t());
  if (multiplies_wide(matrix)) {
    at::Tensor out = at::empty({own.size(0), matrix.size(0)}, own.options().dtype(type));
    wide_product_into(out, own, matrix, false);
    return out;
  }
  // A product of fp32 copies is the same.
  return own.to(type).mm(matrix.to(type).t());
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// Logits of a block. Large enough for efficient matrix products, small enough to stay cheap beside the activations.
constexpr int64_t kLossLogitsAtOnce = int64_t{1} << 24;
constexpr int64_t kFewestRows = 64;
// Logits that a loss reads at a time on a CPU: its passes over them stay in the caches.
constexpr int64_t kLogitsInCache = int64_t{1} << 19;

// A product that is part of a sum of logits: rows of one tensor times the transpose of another, by their places in the
// plan.
struct Product {
  size_t rows = 0;    // [P,n]
  size_t matrix = 0;  // [V,n]
};

// The products of a term.
struct PlannedTerm {
  const LossTerm* term = nullptr;
  std::vector<Product> products = {};
  bool wanted = false;  // gradients of one of its tensors
};

// The plan of a LinearLoss: its terms and tensors. A matrix that several terms share appears once.
struct Plan {
  std::vector<PlannedTerm> terms;
  variable_list tensors;

  void add(const LossTerm& term) {
    PlannedTerm planned{.term = &term, .products = {}};
    for (const at::Tensor& rows : term.head.multiplied(term.hidden)) {
      const at::Tensor& matrix = planned.products.empty() ? term.head.weight : term.head.up;
      planned.products.push_back({own(rows), shared(matrix)});
    }
    for (const Product& product : planned.products) {
      const bool trained = tensors[product.rows].requires_grad() || tensors[product.matrix].requires_grad();
      planned.wanted = planned.wanted || (trained && at::GradMode::is_enabled());
    }
    terms.push_back(std::move(planned));
  }

  bool wanted() const {
    return std::any_of(terms.begin(), terms.end(), [](const PlannedTerm& term) { return term.wanted; });
  }

  int64_t vocabulary(const PlannedTerm& term) const { return tensors[term.products[0].matrix].size(0); }
  // The positions of a term that its n-th block holds; none after the last.
  PositionRange block(const PlannedTerm& term, int64_t n) const {
    const int64_t positions = tensors[term.products[0].rows].size(0);
    const int64_t at_once = std::max(kFewestRows, kLossLogitsAtOnce / vocabulary(term));
    return {n * at_once, std::clamp<int64_t>(positions - n * at_once, 0, at_once)};
  }

 private:
  size_t own(const at::Tensor& tensor) {
    tensors.push_back(tensor);
    return tensors.size() - 1;
  }
  size_t shared(const at::Tensor& tensor) {
    const auto same = [&](const at::Tensor& other) { return other.is_same(tensor); };
    const auto found = std::find_if(tensors.begin(), tensors.end(), same);
    return found == tensors.end() ? own(tensor) : static_cast<size_t>(found - tensors.begin());
  }
};

// The tensors in the type that their products are computed in: autocast's, where it is on, else the heads'.
variable_list operands(const Plan& plan) {
  const at::Tensor& head = plan.tensors[plan.terms.front().products[0].matrix];
  const at::DeviceType device = head.device().type();
  const at::ScalarType type =
      at::autocast::is_autocast_enabled(device) ? at::autocast::get_autocast_dtype(device) : head.scalar_type();
  variable_list converted;
  for (const at::Tensor& tensor : plan.tensors) converted.push_back(tensor.detach().to(type));
  return converted;
}

// Gradients of the loss with respect to the plan's tensors, in their types; undefined if not wanted.
class Gradients {
 public:
  Gradients(at::TensorList tensors, bool wanted) : written_(tensors.size(), false) {
    for (const at::Tensor& tensor : tensors) {
      all_.push_back(wanted && tensor.requires_grad() ? at::empty_like(tensor) : at::Tensor());
    }
  }

  // Adds the gradients from that of a block of logits [C,V] of a term, whose first position is `begin`.
  void accumulate(const PlannedTerm& term, const variable_list& in, const at::Tensor& slope, int64_t begin) {
    const int64_t count = slope.size(0);
    for (const Product& product : term.products) {
      if (all_[product.rows].defined()) {
        at::Tensor rows = all_[product.rows].narrow(0, begin, count);
        rows.copy_(slope.mm(in[product.matrix]));
        written_[product.rows] = true;
      }
      if (all_[product.matrix].defined()) {
        add_to_matrix(product.matrix, slope, in[product.rows].narrow(0, begin, count));
      }
    }
  }

  // Without positions, nothing was written.
  variable_list take() {
    for (size_t i = 0; i < all_.size(); ++i) {
      if (all_[i].defined() && !written_[i]) all_[i].zero_();
    }
    return std::move(all_);
  }

 private:
  void add_to_matrix(size_t index, const at::Tensor& slope, const at::Tensor& rows) {
    at::Tensor& gradient = all_[index];
    if (gradient.scalar_type() == rows.scalar_type()) {
      gradient.addmm_(slope.t(), rows, written_[index] ? 1 : 0);
    } else if (gradient.is_cpu() && gradient.scalar_type() == at::kFloat && gradient.is_contiguous() &&
               multiplies_wide(rows)) {
      wide_gradient_into(gradient, slope, rows, written_[index]);
    } else {
      if (!written_[index]) gradient.zero_();
      gradient.add_(slope.t().mm(rows));
    }
    written_[index] = true;
  }

  variable_list all_;
  std::vector<bool> written_;
};

// Writes the logits [C,V] of a block of positions from `begin` on. `matrices`: in the logits' type, where a product of
// the operands themselves would be rounded.
void compute_logits(const PlannedTerm& term, const variable_list& in, const variable_list& matrices, int64_t begin,
                    at::Tensor& logits) {
  for (size_t i = 0; i < term.products.size(); ++i) {
    const at::Tensor rows = in[term.products[i].rows].narrow(0, begin, logits.size(0));
    const at::Tensor matrix = matrices[term.products[i].matrix];
    if (rows.scalar_type() != matrix.scalar_type() || rows.scalar_type() == logits.scalar_type()) {
      const at::Tensor wide = rows.to(logits.scalar_type());
      i == 0 ? at::mm_out(logits, wide, matrix.t()) : logits.addmm_(wide, matrix.t());
    } else {
      wide_product_into(logits, rows, matrix, i > 0);
    }
  }
  const model::HeadWeights& head = term.term->head;
  if (head.bias.defined()) logits.add_(head.bias.detach());
  if (head.cap > 0) logits.div_(head.cap).tanh_().mul_(head.cap);
}

// Returns the tensors for compute_logits(): copies of those that are matrices of a product, unless half-precision
// matrices are multiplied with a wider result.
variable_list wide_matrices(const Plan& plan, const variable_list& in) {
  variable_list matrices = in;
  if (multiplies_wide(in[0])) return matrices;
  for (const PlannedTerm& term : plan.terms) {
    for (const Product& product : term.products) {
      at::Tensor& matrix = matrices[product.matrix];
      matrix = matrix.to(wide_type(in[0].scalar_type()));
    }
  }
  return matrices;
}

// Returns the sum of the losses of a block of a term; replaces its logits [C,V] by the gradient of factor times it,
// before the cap, if wanted.
at::Tensor block_loss(const PlannedTerm& term, at::Tensor& logits, int64_t begin) {
  PositionLoss& loss = *term.term->loss;
  const bool wanted = term.wanted;
  const double cap = term.term->head.cap, factor = term.term->factor;
  const at::Tensor slope = cap > 0 && wanted ? 1 - (logits / cap).square_() : at::Tensor();  // of the cap
  const int64_t count = logits.size(0);
  const int64_t step = logits.is_cpu() ? std::max<int64_t>(1, kLogitsInCache / logits.size(1)) : count;
  at::Tensor sum = at::zeros({}, logits.options());
  loss.begin_block({begin, count});
  for (int64_t first = 0; first < count; first += step) {
    const int64_t rows = std::min(step, count - first);
    at::Tensor slice = logits.narrow(0, first, rows);
    sum += loss.rows(slice, {begin + first, rows}, wanted);
    if (wanted && factor != 1) slice.mul_(factor);
  }
  if (slope.defined()) logits.mul_(slope);
  return sum;
}

class LinearLoss : public torch::autograd::Function<LinearLoss> {
 public:
  // A TensorList: gradients of a std::vector would be dropped.
  static Variable forward(AutogradContext* context, at::TensorList tensors, const Plan* plan) {
    const variable_list in = operands(*plan);
    const PlainArithmetic plain(in[0].device().type());
    const variable_list matrices = wide_matrices(*plan, in);
    const at::TensorOptions wide = in[0].options().dtype(wide_type(in[0].scalar_type()));
    at::Tensor sum = at::zeros({}, wide);
    Gradients gradients(tensors, plan->wanted());
    int64_t largest = 0;
    for (const PlannedTerm& term : plan->terms) {
      largest = std::max(largest, plan->block(term, 0).count * plan->vocabulary(term));
    }
    const at::Tensor buffer = at::empty({largest}, wide);
    bool more = true;
    for (int64_t n = 0; more; ++n) {
      more = false;
      for (const PlannedTerm& term : plan->terms) {
        const PositionRange block = plan->block(term, n);
        if (block.count == 0) continue;
        more = true;
        const int64_t vocabulary = plan->vocabulary(term);
        at::Tensor logits = buffer.narrow(0, 0, block.count * vocabulary).view({block.count, vocabulary});
        compute_logits(term, in, matrices, block.begin, logits);
        sum.add_(block_loss(term, logits, block.begin), term.term->factor);
        if (term.wanted) gradients.accumulate(term, in, logits.to(in[0].scalar_type()), block.begin);
      }
    }
    if (plan->wanted()) context->save_for_backward(gradients.take());
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
    gradients.emplace_back();  // the plan's
    return gradients;
  }
};

}  // namespace

at::Tensor PositionLoss::rows(at::Tensor& logits, const PositionRange& rows, bool gradient) {
  const at::Tensor of_positions = losses(logits, rows, gradient);  // [C]
  if (!weights_.defined()) return of_positions.sum();
  const at::Tensor weights = weights_.narrow(0, rows.begin, rows.count).to(of_positions.scalar_type());
  if (gradient) logits.mul_(weights.unsqueeze(1));
  return of_positions.mul(weights).sum();
}

at::Tensor linear_loss(const std::vector<LossTerm>& terms) {
  Plan plan;
  for (const LossTerm& term : terms) plan.add(term);
  return LinearLoss::apply(at::TensorList(plan.tensors), static_cast<const Plan*>(&plan));
}

}  // namespace draftsmith::train
