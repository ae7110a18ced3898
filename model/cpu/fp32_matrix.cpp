#include "model/cpu/fp32_matrix.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <algorithm>
#include <vector>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

namespace draftsmith::model {
namespace {

constexpr int64_t kRows = 6;                   // rows at a time: 24 sums, 4 weights and a factor fill the 32 registers
constexpr int64_t kPrefetch = 4 * kPanel;      // floats ahead: what reads fastest from memory (2 to 6 panel lines)
constexpr int64_t kProductsPerTask = 1 << 17;  // multiplications; a second thread costs about as much as these

// Sums of one panel for Rows rows: out [Rows,64] of `stride` floats a row; `valid` outputs of the panel exist.
struct PanelTask {
  const float* weights;   // [in,64]
  const float* bias;      // [64], or null
  const float* x;         // [Rows,in]
  const float* residual;  // like out, or null
  float* out;
  int64_t inputs;
  int64_t stride;
  int64_t valid;
  bool relu;
};

#ifdef __x86_64__

template <int Rows>
__attribute__((target("avx512f"))) void multiply_panel(const PanelTask& task) {
  __m512 sums[Rows][4];
  for (auto& row : sums) {
    for (int v = 0; v < 4; ++v) {
      row[v] = task.bias == nullptr ? _mm512_setzero_ps() : _mm512_loadu_ps(task.bias + 16 * v);
    }
  }
  const float* weights = task.weights;
  for (int64_t i = 0; i < task.inputs; ++i, weights += kPanel) {
    __m512 weight[4];
    for (int v = 0; v < 4; ++v) {
      _mm_prefetch(reinterpret_cast<const char*>(weights + kPrefetch + 16 * v), _MM_HINT_T0);
      weight[v] = _mm512_loadu_ps(weights + 16 * v);
    }
    for (int row = 0; row < Rows; ++row) {
      const __m512 factor = _mm512_set1_ps(task.x[row * task.inputs + i]);
      for (int v = 0; v < 4; ++v) {
        sums[row][v] = _mm512_fmadd_ps(weight[v], factor, sums[row][v]);
      }
    }
  }
  for (int row = 0; row < Rows; ++row) {
    for (int v = 0; v < 4; ++v) {
      const int64_t left = std::clamp<int64_t>(task.valid - 16 * v, 0, 16);
      const auto mask = static_cast<__mmask16>((1U << left) - 1U);
      const int64_t at = row * task.stride + 16 * v;
      __m512 sum = sums[row][v];
      if (task.residual != nullptr) {
        sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, task.residual + at));
      }
      if (task.relu) {
        sum = _mm512_maskz_max_ps(mask, _mm512_setzero_ps(), sum);  // returns the second where one is NaN
      }
      _mm512_mask_storeu_ps(task.out + at, mask, sum);
    }
  }
}

void multiply_rows(int64_t rows, const PanelTask& task) {
  switch (rows) {
    case 1:
      return multiply_panel<1>(task);
    case 2:
      return multiply_panel<2>(task);
    case 3:
      return multiply_panel<3>(task);
    case 4:
      return multiply_panel<4>(task);
    case 5:
      return multiply_panel<5>(task);
    default:
      return multiply_panel<6>(task);
  }
}

bool supported() {
  return __builtin_cpu_supports("avx512f") != 0;
}

#else

void multiply_rows(int64_t, const PanelTask&) {}

bool supported() {
  return false;
}

#endif

// A panel [in,64] from the rows of up to 64 outputs [valid,in], line by line of the cache on both sides.
template <class T>
void fill_panel(const T* rows, int64_t valid, int64_t inputs, float* panel) {
  constexpr int64_t kLine = 16;
  for (int64_t begin = 0; begin < inputs; begin += kLine) {
    const int64_t end = std::min(inputs, begin + kLine);
    for (int64_t row = 0; row < kPanel; ++row) {
      for (int64_t i = begin; i < end; ++i) {
        panel[i * kPanel + row] = row < valid ? static_cast<float>(rows[row * inputs + i]) : 0.0F;
      }
    }
  }
}

}  // namespace

std::shared_ptr<const Fp32Matrix> Fp32Matrix::pack(const at::Tensor& weight, const at::Tensor& bias,
                                                   WeightArena& arena) {
  const at::ScalarType type = weight.scalar_type();
  const bool fits = type == at::kFloat || type == at::kBFloat16 || type == at::kHalf || type == at::kDouble;
  if (!supported() || !weight.device().is_cpu() || !fits || weight.numel() == 0) return nullptr;
  return std::shared_ptr<const Fp32Matrix>(new Fp32Matrix(weight, bias, arena));
}

Fp32Matrix::Fp32Matrix(const at::Tensor& weight, const at::Tensor& bias, WeightArena& arena)
    : PackedWeights(weight.size(1), weight.size(0), kProductsPerTask), bias_(bias_panels(bias, weight.size(0))) {
  panels_ = arena.take({panels(), inputs_, kPanel}, at::kFloat);
  const at::Tensor source = weight.detach().contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, source.scalar_type(), "packed_matrix",
                                  [&] { fill(source.const_data_ptr<scalar_t>()); });
}

template <class T>
void Fp32Matrix::fill(const T* rows) {
  auto* to = panels_.mutable_data_ptr<float>();
  const int64_t numbers = inputs_ * kPanel;  // of a panel
  const auto task = [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
      fill_panel(rows + panel * numbers, std::min(kPanel, outputs_ - panel * kPanel), inputs_, to + panel * numbers);
    }
  };
  at::parallel_for(0, panels(), std::max<int64_t>(1, kProductsPerTask / numbers), task);
}

void Fp32Matrix::run(PanelRange panels, const Rows& rows, Finish finish) const {
  const float* weights = panels_.const_data_ptr<float>();
  const float* bias = bias_.defined() ? bias_.const_data_ptr<float>() : nullptr;
  for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
    for (int64_t row = 0; row < rows.count; row += kRows) {
      const int64_t offset = row * outputs_ + panel * kPanel;
      multiply_rows(
          std::min(kRows, rows.count - row),
          {weights + panel * inputs_ * kPanel, bias == nullptr ? nullptr : bias + panel * kPanel,
           rows.x + row * inputs_, rows.residual == nullptr ? nullptr : rows.residual + offset, rows.y + offset,
           inputs_, outputs_, std::min(kPanel, outputs_ - panel * kPanel), finish == Finish::kRelu});
    }
  }
}

}  // namespace draftsmith::model
