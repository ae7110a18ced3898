#include "model/cpu/float_matrix.h"

#include <algorithm>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

namespace draftsmith::model {
namespace {

constexpr int64_t kChunk = 1 << 14;            // bytes of weights that several passes share in a cache
constexpr int64_t kProductsPerTask = 1 << 17;  // multiplications; a second thread costs about as much as these

// Returns the place of an output in a panel's line.
template <class Stored>
int64_t place(int64_t output) {
  return std::is_same_v<Stored, float> ? output : bf16_place(output);
}

// Fills a panel [in,64] from the rows of up to 64 outputs [valid,in], line by line of the cache on both sides.
template <class T, class Stored>
void fill_panel(const T* rows, int64_t valid, int64_t inputs, Stored* panel) {
  constexpr int64_t kLine = 16;
  for (int64_t begin = 0; begin < inputs; begin += kLine) {
    const int64_t end = std::min(inputs, begin + kLine);
    for (int64_t row = 0; row < kPanel; ++row) {
      Stored* to = panel + place<Stored>(row);
      for (int64_t i = begin; i < end; ++i) {
        to[i * kPanel] = row < valid ? static_cast<Stored>(static_cast<float>(rows[row * inputs + i])) : Stored(0.0F);
      }
    }
  }
}

}  // namespace

template <class Stored>
std::shared_ptr<const FloatMatrix<Stored>> FloatMatrix<Stored>::pack(const at::Tensor& weight, const at::Tensor& bias,
                                                                     WeightArena& arena, Instructions instructions) {
  if (!packs_on_cpu(weight)) return nullptr;
  return std::shared_ptr<const FloatMatrix>(new FloatMatrix(weight, bias, arena, instructions));
}

template <class Stored>
FloatMatrix<Stored>::FloatMatrix(const at::Tensor& weight, const at::Tensor& bias, WeightArena& arena,
                                 Instructions instructions)
    : PackedWeights(weight.size(1), weight.size(0), kProductsPerTask),
      bias_(bias_panels(bias, weight.size(0))),
      kernels_(float_kernels<Number>(instructions)) {
  panels_ = arena.take({panels(), inputs_, kPanel}, c10::CppTypeToScalarType<Stored>::value);
  const at::Tensor source = weight.detach().contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, source.scalar_type(), "float_matrix",
                                  [&] { fill(source.const_data_ptr<scalar_t>()); });
}

template <class Stored>
template <class T>
void FloatMatrix<Stored>::fill(const T* rows) {
  auto* to = panels_.mutable_data_ptr<Stored>();
  const int64_t numbers = inputs_ * kPanel;  // of a panel
  const auto task = [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
      fill_panel(rows + panel * numbers, std::min(kPanel, outputs_ - panel * kPanel), inputs_, to + panel * numbers);
    }
  };
  at::parallel_for(0, panels(), std::max<int64_t>(1, kProductsPerTask / numbers), task);
}

template <class Stored>
void FloatMatrix<Stored>::run(PanelRange panels, const Rows& rows, Finish finish) const {
  const auto* weights = static_cast<const Number*>(panels_.const_data_ptr());
  const float* bias = bias_.defined() ? bias_.const_data_ptr<float>() : nullptr;
  const PanelOutputs outputs{nullptr, nullptr, rows.residual, rows.y, outputs_, kPanel, finish == Finish::kRelu};
  run_panels(panels, rows.count, outputs, [&](int64_t panel, int64_t row, int64_t count, float(*sums)[kPanel]) {
    for (int64_t r = 0; r < count; ++r) {
      if (bias == nullptr) std::fill_n(sums[r], kPanel, 0.0F);
      if (bias != nullptr) std::copy_n(bias + panel * kPanel, kPanel, sums[r]);
    }
    add_products(weights + panel * inputs_ * kPanel, rows.x + row * inputs_, count, sums);
  });
}

template <class Stored>
void FloatMatrix<Stored>::add_products(const Number* panel, const float* x, int64_t rows, float (*sums)[kPanel]) const {
  constexpr auto kSize = static_cast<int64_t>(sizeof(Number));
  const RowPasses passes(rows);
  const int64_t chunk = passes.count == 1 ? inputs_ : kChunk / kPanel / kSize;
  for (int64_t begin = 0; begin < inputs_; begin += chunk) {
    const Number* weights = panel + begin * kPanel;
    for (int64_t pass = 0; pass < passes.count; ++pass) {
      const int64_t first = pass * passes.each;
      kernels_(passes.count, passes.rows(pass),
               {weights, passes.ahead(weights, chunk * kPanel, pass), x + first * inputs_ + begin, inputs_,
                std::min(chunk, inputs_ - begin), sums + first});
    }
  }
}

template class FloatMatrix<float>;
template class FloatMatrix<at::BFloat16>;

}  // namespace draftsmith::model
