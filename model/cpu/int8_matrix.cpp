#include "model/cpu/int8_matrix.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "base/error.h"
#include "base/vector_math.h"

namespace draftsmith::model {
namespace {

constexpr int64_t kStep = 4;                // inputs whose weights lie together
constexpr int64_t kInt8Rows = 6;            // rows at a time: 24 sums, 4 weights and a factor fill 32 registers
constexpr int64_t kInt8Prefetch = 1 << 10;  // bytes ahead
constexpr int64_t kInt8PerTask = 1 << 19;   // multiplications; a second thread costs about as much as these
constexpr int32_t kOffset = 128;            // of stored weights
constexpr float kLargest = 127;

int64_t steps_of(int64_t inputs) {
  return (inputs + kStep - 1) / kStep;
}

// Rows of inputs in int8, each with the numbers of its groups.
struct QuantizedRows {
  int64_t width = 0;  // bytes of a row, a multiple of kStep
  int64_t groups = 0;
  std::vector<int8_t> values;    // [rows,width]
  std::vector<float> scales;     // [rows,groups]
  std::vector<int32_t> offsets;  // [rows,groups]: what kOffset adds to the sums of products, negated

  void resize(int64_t rows, int64_t inputs) {
    width = steps_of(inputs) * kStep;
    groups = (inputs + kInt8Group - 1) / kInt8Group;
    values.resize(static_cast<size_t>(rows * width));
    scales.resize(static_cast<size_t>(rows * groups));
    offsets.resize(static_cast<size_t>(rows * groups));
  }
};

// Rounds `count` inputs to int8, half to even. Returns their scale: NaN if one is not finite.
DRAFTSMITH_INLINE float quantize(const float* x, int64_t count, int8_t* to) {
  // Without signs, floats are ordered as integers are, NaN above all.
  uint32_t highest = 0;
  for (int64_t i = 0; i < count; ++i) highest = std::max(highest, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffU);
  const auto largest = std::bit_cast<float>(highest);
  const bool finite = largest <= std::numeric_limits<float>::max();
  const float factor = finite && largest > 0 ? kLargest / largest : 0.0F;
  // Denormal inputs may have an infinite factor: they count as zeros.
  const float usable = factor <= std::numeric_limits<float>::max() ? factor : 0.0F;
  constexpr float kRounding = 12582912.0F;  // 1.5 * 2^23: the sum's last bits are the rounded number
  for (int64_t i = 0; i < count; ++i) {
    const float shifted = (finite ? x[i] : 0.0F) * usable + kRounding;
    to[i] = static_cast<int8_t>(std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRounding));
  }
  return !finite ? std::numeric_limits<float>::quiet_NaN() : usable > 0 ? largest / kLargest : 0.0F;
}

DRAFTSMITH_VECTOR_CODE void quantize_row(const float* x, int64_t inputs, int64_t row, QuantizedRows& rows) {
  int8_t* to = rows.values.data() + row * rows.width;
  for (int64_t group = 0; group < rows.groups; ++group) {
    const int64_t first = group * kInt8Group;
    const int64_t count = std::min(kInt8Group, inputs - first);
    rows.scales[static_cast<size_t>(row * rows.groups + group)] = quantize(x + first, count, to + first);
    int32_t sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += to[first + i];
    rows.offsets[static_cast<size_t>(row * rows.groups + group)] = -kOffset * sum;
  }
  std::fill(to + inputs, to + rows.width, int8_t{0});
}

// Returns the rows in int8: memory of this thread, until its next call.
const QuantizedRows& quantized(const float* x, int64_t rows, int64_t inputs) {
  static thread_local QuantizedRows kept;
  kept.resize(rows, inputs);
  for (int64_t row = 0; row < rows; ++row) quantize_row(x + row * inputs, inputs, row, kept);
  return kept;
}

// The weights of one panel and group for some rows of inputs. Adds the products, times the inputs' scale, to sums.
struct GroupTask {
  const uint8_t* weights;  // [steps,64,4]
  int64_t steps;
  const int8_t* x;  // [rows,width], of the group's first input
  int64_t width;
  const float* scales;     // [rows,groups], of the group
  const int32_t* offsets;  // likewise
  int64_t groups;
  float (*sums)[kPanel];  // [rows,64]
};

DRAFTSMITH_VECTOR_CODE void multiply_group_portably(int64_t rows, const GroupTask& task) {
  for (int64_t row = 0; row < rows; ++row) {
    int32_t sums[kPanel] = {};
    const int8_t* x = task.x + row * task.width;
    const uint8_t* weights = task.weights;
    for (int64_t step = 0; step < task.steps; ++step, x += kStep, weights += kStep * kPanel) {
      for (int64_t o = 0; o < kPanel; ++o) {
        for (int64_t i = 0; i < kStep; ++i) sums[o] += static_cast<int32_t>(weights[o * kStep + i]) * x[i];
      }
    }
    const float scale = task.scales[row * task.groups];
    for (int64_t o = 0; o < kPanel; ++o) {
      const int32_t sum = sums[o] + task.offsets[row * task.groups];
      task.sums[row][o] = std::fma(static_cast<float>(sum), scale, task.sums[row][o]);
    }
  }
}

#ifdef __x86_64__

template <int Rows>
__attribute__((target("avx512f,avx512bw,avx512vnni"))) void multiply_group(const GroupTask& task) {
  __m512i sums[Rows][4];
  for (int row = 0; row < Rows; ++row) {
    for (int v = 0; v < 4; ++v) sums[row][v] = _mm512_set1_epi32(task.offsets[row * task.groups]);
  }
  const uint8_t* weights = task.weights;
  for (int64_t step = 0; step < task.steps; ++step, weights += kStep * kPanel) {
    __m512i weight[4];
    for (int v = 0; v < 4; ++v) {
      _mm_prefetch(reinterpret_cast<const char*>(weights + kInt8Prefetch + 64 * v), _MM_HINT_T0);
      weight[v] = _mm512_loadu_si512(weights + 64 * v);
    }
    for (int row = 0; row < Rows; ++row) {
      int32_t four;
      __builtin_memcpy(&four, task.x + row * task.width + step * kStep, sizeof(four));
      const __m512i factors = _mm512_set1_epi32(four);
      for (int v = 0; v < 4; ++v) sums[row][v] = _mm512_dpbusd_epi32(sums[row][v], weight[v], factors);
    }
  }
  for (int row = 0; row < Rows; ++row) {
    const __m512 scale = _mm512_set1_ps(task.scales[row * task.groups]);
    for (int v = 0; v < 4; ++v) {
      float* to = task.sums[row] + 16 * v;
      // (The conversion without a mask sets off a false warning of g++ 12.)
      _mm512_storeu_ps(to, _mm512_fmadd_ps(_mm512_maskz_cvtepi32_ps(0xffff, sums[row][v]), scale, _mm512_loadu_ps(to)));
    }
  }
}

void multiply_group_with_vnni(int64_t rows, const GroupTask& task) {
  switch (rows) {
    case 1:
      return multiply_group<1>(task);
    case 2:
      return multiply_group<2>(task);
    case 3:
      return multiply_group<3>(task);
    case 4:
      return multiply_group<4>(task);
    case 5:
      return multiply_group<5>(task);
    default:
      return multiply_group<6>(task);
  }
}

bool has_vnni() {
  return __builtin_cpu_supports("avx512vnni") != 0 && __builtin_cpu_supports("avx512bw") != 0;
}

#else

void multiply_group_with_vnni(int64_t, const GroupTask&) {}

bool has_vnni() {
  return false;
}

#endif

// Outputs of a panel for some rows.
struct Outputs {
  const float* scales;    // [64]
  const float* bias;      // [64], or null
  const float* residual;  // like out, or null
  float* out;             // [rows,valid] of `stride` floats a row
  int64_t stride;
  int64_t valid;
  bool relu;
};

DRAFTSMITH_VECTOR_CODE void finish_rows(int64_t rows, const float (*sums)[kPanel], const Outputs& to) {
  for (int64_t row = 0; row < rows; ++row) {
    float* out = to.out + row * to.stride;
    for (int64_t o = 0; o < to.valid; ++o) {
      float y = sums[row][o] * to.scales[o];
      if (to.bias != nullptr) y += to.bias[o];
      if (to.residual != nullptr) y += to.residual[row * to.stride + o];
      out[o] = to.relu && y < 0 ? 0.0F : y;  // keeps NaN
    }
  }
}

// Writes the weights of one output, w + 128, every kStep numbers kStep * kPanel bytes apart. Returns their scale.
template <class T>
float quantize_output(const T* weights, int64_t inputs, uint8_t* to) {
  float largest = 0;
  for (int64_t i = 0; i < inputs; ++i) {
    const auto size = std::abs(static_cast<float>(weights[i]));
    if (!(size <= std::numeric_limits<float>::max())) {
      throw RunError({.where = "int8 weights", .what = "a weight is not finite", .hint = "the checkpoint is damaged"});
    }
    largest = std::max(largest, size);
  }
  const float factor = largest > 0 ? kLargest / largest : 0.0F;
  const float usable = factor <= std::numeric_limits<float>::max() ? factor : 0.0F;
  for (int64_t i = 0; i < inputs; ++i) {
    const auto rounded = static_cast<int32_t>(std::nearbyint(static_cast<float>(weights[i]) * usable));
    to[i / kStep * kStep * kPanel + i % kStep] = static_cast<uint8_t>(rounded + kOffset);
  }
  return usable > 0 ? largest / kLargest : 0.0F;
}

template <class T>
void fill_panels(const at::Tensor& weight, uint8_t* panels, float* scales) {
  const int64_t outputs = weight.size(0), inputs = weight.size(1);
  const T* rows = weight.const_data_ptr<T>();
  const int64_t bytes = steps_of(inputs) * kStep * kPanel;  // of a panel
  const int64_t count = (outputs + kPanel - 1) / kPanel;
  std::fill_n(scales, count * kPanel, 0.0F);
  at::parallel_for(0, count, std::max<int64_t>(1, kInt8PerTask / bytes), [&](int64_t begin, int64_t end) {
    std::fill(panels + begin * bytes, panels + end * bytes, static_cast<uint8_t>(kOffset));
    for (int64_t o = begin * kPanel; o < std::min(outputs, end * kPanel); ++o) {
      scales[o] = quantize_output(rows + o * inputs, inputs, panels + o / kPanel * bytes + o % kPanel * kStep);
    }
  });
}

}  // namespace

std::shared_ptr<const Int8Matrix> Int8Matrix::pack(const at::Tensor& weight, const at::Tensor& bias, WeightArena& arena,
                                                   bool portable) {
  const at::ScalarType type = weight.scalar_type();
  const bool fits = type == at::kFloat || type == at::kBFloat16 || type == at::kHalf || type == at::kDouble;
  if (!weight.device().is_cpu() || !fits || weight.numel() == 0) return nullptr;
  return std::shared_ptr<const Int8Matrix>(new Int8Matrix(weight, bias, arena, portable));
}

Int8Matrix::Int8Matrix(const at::Tensor& weight, const at::Tensor& bias, WeightArena& arena, bool portable)
    : PackedWeights(weight.size(1), weight.size(0), kInt8PerTask),
      bias_(bias_panels(bias, weight.size(0))),
      portable_(portable || !has_vnni()) {
  panels_ = arena.take({panels(), steps_of(inputs_), kPanel, kStep}, at::kByte);
  scales_ = at::empty({panels(), kPanel}, at::kFloat);
  const at::Tensor source = weight.detach().contiguous();
  auto* to = panels_.mutable_data_ptr<uint8_t>();
  auto* scales = scales_.mutable_data_ptr<float>();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, source.scalar_type(), "int8_matrix",
                                  [&] { fill_panels<scalar_t>(source, to, scales); });
}

void Int8Matrix::run(PanelRange panels, const Rows& rows, Finish finish) const {
  const QuantizedRows& in = quantized(rows.x, rows.count, inputs_);
  const int64_t bytes = steps_of(inputs_) * kStep * kPanel;  // of a panel
  const auto* weights = panels_.const_data_ptr<uint8_t>();
  const auto* scales = scales_.const_data_ptr<float>();
  const float* bias = bias_.defined() ? bias_.const_data_ptr<float>() : nullptr;
  const auto multiply = portable_ ? &multiply_group_portably : &multiply_group_with_vnni;
  for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
    for (int64_t row = 0; row < rows.count; row += kInt8Rows) {
      const int64_t count = std::min(kInt8Rows, rows.count - row);
      alignas(64) float sums[kInt8Rows][kPanel] = {};
      for (int64_t group = 0; group < in.groups; ++group) {
        const int64_t first = group * kInt8Group;
        multiply(count,
                 {weights + panel * bytes + first * kPanel, steps_of(std::min(kInt8Group, inputs_ - first)),
                  in.values.data() + row * in.width + first, in.width, in.scales.data() + row * in.groups + group,
                  in.offsets.data() + row * in.groups + group, in.groups, sums});
      }
      const int64_t offset = row * outputs_ + panel * kPanel;
      finish_rows(count, sums,
                  {scales + panel * kPanel, bias == nullptr ? nullptr : bias + panel * kPanel,
                   rows.residual == nullptr ? nullptr : rows.residual + offset, rows.y + offset, outputs_,
                   std::min(kPanel, outputs_ - panel * kPanel), finish == Finish::kRelu});
    }
  }
}

}  // namespace draftsmith::model
