#include "model/layers/mixed_products.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/bf16_product.h"
#include "model/cpu/row_operations.h"

namespace draftsmith::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Most numbers of fp32 that a thread keeps between a product and its rounding: they stay in its cache.
constexpr int64_t kMostKept = 1 << 17;
// Fewest rows of a piece of work.
constexpr int64_t kFewestRows = 32;

const uint16_t* words(const at::Tensor& bf16) {
  return static_cast<const uint16_t*>(bf16.const_data_ptr());
}

uint16_t* to_words(const at::Tensor& bf16) {
  return static_cast<uint16_t*>(bf16.mutable_data_ptr());
}

at::Tensor empty_like_rows(const at::Tensor& x, int64_t columns, at::ScalarType type) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = columns;
  return at::empty(shape, x.options().dtype(type).requires_grad(false).memory_format(at::MemoryFormat::Contiguous));
}

std::unique_ptr<float[]> uninitialized(int64_t count) {
  return std::make_unique_for_overwrite<float[]>(static_cast<size_t>(count));
}

int64_t rows_of(const at::Tensor& x) {
  return x.numel() / x.size(-1);
}

// Calls use(begin, rows) for pieces of the rows, by all threads. A piece has at most kMostKept numbers of `columns`;
// eight times as many without tiles, where each piece lays the weights out again.
template <class Use>
void each_piece(int64_t rows, int64_t columns, const Use& use) {
  const int64_t kept = kMostKept * (has_bf16_tiles() ? 1 : 8);
  const int64_t most = std::max(kFewestRows, kept / std::max<int64_t>(1, columns));
  at::parallel_for(0, rows, kFewestRows, [&](int64_t begin, int64_t end) {
    for (; begin < end; begin += most) use(begin, std::min(most, end - begin));
  });
}

// The weights one under the other in bf16, [sum of m,n].
at::Tensor joined_bf16(at::TensorList weights) {
  int64_t rows = 0;
  for (const at::Tensor& weight : weights) rows += weight.size(0);
  const int64_t columns = weights[0].size(1);
  const at::Tensor joined = at::empty({rows, columns}, weights[0].options().dtype(at::kBFloat16).requires_grad(false));
  uint16_t* next = to_words(joined);
  for (const at::Tensor& weight : weights) {
    const at::Tensor dense = weight.contiguous();
    const float* from = dense.const_data_ptr<float>();
    at::parallel_for(0, weight.numel(), 1 << 15,
                     [&](int64_t begin, int64_t end) { round_to_bf16(from + begin, next + begin, end - begin); });
    next += weight.numel();
  }
  return joined;
}

// Layers of one input. The input and the joined weights are bf16.
struct Layers {
  at::Tensor x;                // [...,n], contiguous
  at::Tensor weights;          // [sum of m,n]
  std::vector<int64_t> sizes;  // m of each layer

  int64_t inputs() const { return weights.size(1); }
  int64_t rows() const { return rows_of(x); }
  RowsInMemory<const uint16_t> input_rows(int64_t begin) const { return {words(x) + begin * inputs(), inputs()}; }
  RowsInMemory<const uint16_t> weight_rows(int64_t begin) const {
    return {words(weights) + begin * inputs(), inputs()};
  }
};

// Outputs of the layers, in bf16; of the one layer with a residual, in fp32 with the residual added. Rounds `wide`, if
// it is defined, to the layers' input.
variable_list multiply(const Layers& layers, const at::Tensor& wide, bool relu, const at::Tensor& residual) {
  const int64_t inputs = layers.inputs();
  const bool adds = residual.defined();
  variable_list out;
  for (const int64_t size : layers.sizes) {
    out.push_back(empty_like_rows(layers.x, size, adds ? at::kFloat : at::kBFloat16));
  }
  each_piece(layers.rows(), layers.weights.size(0), [&](int64_t begin, int64_t rows) {
    const int64_t first = begin * inputs;
    if (wide.defined()) {
      round_to_bf16(wide.const_data_ptr<float>() + first, to_words(layers.x) + first, rows * inputs);
    }
    int64_t above = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      const int64_t size = layers.sizes[i];
      const auto kept = uninitialized(adds ? 0 : rows * size);
      float* const sums = adds ? out[i].mutable_data_ptr<float>() + begin * size : kept.get();
      if (adds) {
        std::memcpy(sums, residual.const_data_ptr<float>() + begin * size,
                    static_cast<size_t>(rows * size) * sizeof(float));
      }
      multiply_bf16({.m = rows, .n = size, .k = inputs, .transpose_b = true, .add = adds}, layers.input_rows(begin),
                    layers.weight_rows(above), {sums, size});
      if (!adds) round_to_bf16(sums, to_words(out[i]) + begin * size, rows * size, relu);
      above += size;
    }
  });
  return out;
}

// A layer's gradient of its outputs in bf16, made of the one that autograd gave.
struct Slope {
  at::Tensor given;   // fp32 or bf16, contiguous; undefined: no gradient
  at::Tensor output;  // of ReLU, bf16; undefined: none
  at::Tensor bf16;    // [...,m]; `given` itself where that will do

  void prepare(const at::Tensor& gradient) {
    given = gradient.defined() ? gradient.contiguous() : gradient;
    const bool usable = given.defined() && given.scalar_type() == at::kBFloat16 && !output.defined();
    if (given.defined()) bf16 = usable ? given : empty_like_rows(given, given.size(-1), at::kBFloat16);
  }

  // Fills bf16's elements.
  void fill(int64_t begin, int64_t count) const {
    if (bf16.is_same(given)) return;
    uint16_t* const to = to_words(bf16) + begin;
    if (given.scalar_type() == at::kFloat) {
      round_to_bf16(given.const_data_ptr<float>() + begin, to, count);
    } else {
      std::memcpy(to, words(given) + begin, static_cast<size_t>(count) * sizeof(uint16_t));
    }
    if (!output.defined()) return;
    keep_where(words(output) + begin, to, count);
  }

  RowsInMemory<const uint16_t> rows(int64_t begin) const {
    return {words(bf16) + begin * bf16.size(-1), bf16.size(-1)};
  }
};

// Gradient of the input, in `type`: the sum over layers of their slopes times their weights. Fills the slopes.
at::Tensor input_gradient(const Layers& layers, const std::vector<Slope>& slopes, at::ScalarType type) {
  const int64_t inputs = layers.inputs();
  const at::Tensor out = empty_like_rows(layers.x, inputs, type);
  each_piece(layers.rows(), inputs, [&](int64_t begin, int64_t rows) {
    const bool wide = type == at::kFloat;
    const auto kept = uninitialized(wide ? 0 : rows * inputs);
    float* const sums = wide ? out.mutable_data_ptr<float>() + begin * inputs : kept.get();
    int64_t above = 0;
    bool first = true;
    for (size_t i = 0; i < slopes.size(); ++i) {
      const int64_t size = layers.sizes[i];
      if (slopes[i].given.defined()) {
        slopes[i].fill(begin * size, rows * size);
        multiply_bf16({.m = rows, .n = inputs, .k = size, .add = !first}, slopes[i].rows(begin),
                      layers.weight_rows(above), {sums, inputs});
        first = false;
      }
      above += size;
    }
    if (!wide) round_to_bf16(sums, to_words(out) + begin * inputs, rows * inputs);
  });
  return out;
}

// Gradients of the weights, fp32, of those layers alone that have a slope.
variable_list weight_gradients(const Layers& layers, const std::vector<Slope>& slopes) {
  const int64_t inputs = layers.inputs(), rows = layers.rows();
  variable_list out(slopes.size());
  for (size_t i = 0; i < slopes.size(); ++i) {
    if (!slopes[i].given.defined()) continue;
    const int64_t size = layers.sizes[i];
    out[i] = at::empty({size, inputs}, layers.x.options().dtype(at::kFloat).requires_grad(false));
  }
  // A piece is some outputs of all layers: each reads all rows of the input and its columns of the slopes.
  const int64_t pieces = at::get_num_threads();
  at::parallel_for(0, pieces, 1, [&](int64_t begin, int64_t end) {
    for (size_t i = 0; i < slopes.size(); ++i) {
      if (!out[i].defined()) continue;
      const int64_t size = layers.sizes[i], from = size * begin / pieces, to = size * end / pieces;
      const RowsInMemory<const uint16_t> slope{words(slopes[i].bf16) + from, size};
      multiply_bf16({.m = to - from, .n = inputs, .k = rows, .transpose_a = true}, slope, layers.input_rows(0),
                    {out[i].mutable_data_ptr<float>() + from * inputs, inputs});
    }
  });
  return out;
}

// Returns the input in bf16 and, where that is still to be filled, the fp32 numbers.
std::pair<at::Tensor, at::Tensor> narrow_input(const at::Tensor& x) {
  const at::Tensor dense = x.contiguous();
  if (dense.scalar_type() == at::kBFloat16) return {dense, {}};
  return {empty_like_rows(dense, dense.size(-1), at::kBFloat16), dense};
}

// The layers of one input and, of a single layer, a residual: a list of none or one.
class MixedProducts : public torch::autograd::Function<MixedProducts> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& x, at::TensorList weights,
                               at::TensorList residual, bool relu) {
    const auto [narrow, wide] = narrow_input(x);
    Layers layers{narrow, joined_bf16(weights), {}};
    for (const at::Tensor& weight : weights) layers.sizes.push_back(weight.size(0));
    variable_list out = multiply(layers, wide, relu, residual.empty() ? at::Tensor() : residual[0].contiguous());
    variable_list kept{layers.x, layers.weights};
    if (relu) kept.insert(kept.end(), out.begin(), out.end());
    context->save_for_backward(kept);
    context->saved_data["sizes"] = layers.sizes;
    context->saved_data["type"] = static_cast<int64_t>(x.scalar_type());
    context->saved_data["adds"] = !residual.empty();
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& given) {
    const variable_list kept = context->get_saved_variables();
    const Layers layers{kept[0], kept[1], context->saved_data["sizes"].toIntVector()};
    std::vector<Slope> slopes(layers.sizes.size());
    for (size_t i = 0; i < slopes.size(); ++i) {
      if (kept.size() > 2) slopes[i].output = kept[2 + i];
      slopes[i].prepare(given[i]);
    }
    const auto type = static_cast<at::ScalarType>(context->saved_data["type"].toInt());
    variable_list gradients{input_gradient(layers, slopes, type)};
    for (at::Tensor& weight : weight_gradients(layers, slopes)) gradients.push_back(std::move(weight));
    if (context->saved_data["adds"].toBool()) gradients.push_back(given[0]);  // the residual's
    gradients.emplace_back();                                                 // relu's
    return gradients;
  }
};

}  // namespace

bool multiplies_mixed(const at::Tensor& x, const at::Tensor& weight) {
  const at::ScalarType type = x.scalar_type();
  return x.is_cpu() && at::GradMode::is_enabled() && at::autocast::is_autocast_enabled(at::kCPU) &&
         at::autocast::get_autocast_dtype(at::kCPU) == at::kBFloat16 && has_bf16_product() &&
         (x.requires_grad() || weight.requires_grad()) && (type == at::kFloat || type == at::kBFloat16) &&
         weight.scalar_type() == at::kFloat && x.numel() > 0;
}

std::vector<at::Tensor> mixed_products(const at::Tensor& x, const std::vector<at::Tensor>& weights, bool relu) {
  return MixedProducts::apply(x, at::TensorList(weights), at::TensorList(), relu);
}

at::Tensor mixed_product_added(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& weight) {
  return MixedProducts::apply(x, at::TensorList(weight), at::TensorList(residual), /*relu=*/false).front();
}

}  // namespace draftsmith::model
