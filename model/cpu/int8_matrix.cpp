#include "model/cpu/int8_matrix.h"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "base/error.h"
#include "base/util.h"

namespace draftsmith::model {
namespace {

// Rows from which tiles are faster than products of bytes.
constexpr int64_t kFewestTileRows = 2;
constexpr int64_t kInt8PerTask = 1 << 19;  // multiplications; a second thread costs about as much as these
constexpr int32_t kOffset = 128;           // of stored weights
constexpr float kLargest = 127;

int64_t steps_of(int64_t inputs) {
  return (inputs + kInt8Step - 1) / kInt8Step;
}

}  // namespace

// Rows of inputs in int8, each with the numbers of its groups.
struct QuantizedRows {
  uint64_t number = 0;  // of the inputs (PackedWeights::Rows); 0: none
  int64_t width = 0;    // bytes of a row, a multiple of kInt8Step
  int64_t groups = 0;
  std::vector<int8_t> values;    // [rows,width]
  std::vector<float> scales;     // [rows,groups]
  std::vector<int32_t> offsets;  // [rows,groups]: what kOffset adds to the sums of products, negated

  void resize(int64_t rows, int64_t inputs) {
    width = steps_of(inputs) * kInt8Step;
    groups = (inputs + kInt8Group - 1) / kInt8Group;
    values.resize(static_cast<size_t>(rows * width));
    scales.resize(static_cast<size_t>(rows * groups));
    offsets.resize(static_cast<size_t>(rows * groups));
  }
};

namespace {

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
const QuantizedRows& quantized(const PackedWeights::Rows& rows, int64_t inputs) {
  static thread_local QuantizedRows kept;
  if (rows.number != 0 && rows.number == kept.number) return kept;
  kept.resize(rows.count, inputs);
  for (int64_t row = 0; row < rows.count; ++row) quantize_row(rows.x + row * inputs, inputs, row, kept);
  kept.number = rows.number;
  return kept;
}

// Writes the weights of one output, w + 128, every kInt8Step numbers kInt8Step * kPanel bytes apart. Returns their
// scale.
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
    to[i / kInt8Step * kInt8Step * kPanel + i % kInt8Step] = static_cast<uint8_t>(rounded + kOffset);
  }
  return usable > 0 ? largest / kLargest : 0.0F;
}

template <class T>
void fill_panels(const at::Tensor& weight, uint8_t* panels, float* scales) {
  const int64_t outputs = weight.size(0), inputs = weight.size(1);
  const T* rows = weight.const_data_ptr<T>();
  const int64_t bytes = steps_of(inputs) * kInt8Step * kPanel;  // of a panel
  const int64_t count = (outputs + kPanel - 1) / kPanel;
  std::fill_n(scales, count * kPanel, 0.0F);
  at::parallel_for(0, count, std::max<int64_t>(1, kInt8PerTask / bytes), [&](int64_t begin, int64_t end) {
    std::fill(panels + begin * bytes, panels + end * bytes, static_cast<uint8_t>(kOffset));
    for (int64_t o = begin * kPanel; o < std::min(outputs, end * kPanel); ++o) {
      scales[o] = quantize_output(rows + o * inputs, inputs, panels + o / kPanel * bytes + o % kPanel * kInt8Step);
    }
  });
}

}  // namespace

std::shared_ptr<const Int8Matrix> Int8Matrix::pack(const at::Tensor& weight, const at::Tensor& bias, WeightArena& arena,
                                                   Instructions instructions) {
  if (!packs_on_cpu(weight)) return nullptr;
  return std::shared_ptr<const Int8Matrix>(new Int8Matrix(weight, bias, arena, instructions));
}

Int8Matrix::Int8Matrix(const at::Tensor& weight, const at::Tensor& bias, WeightArena& arena, Instructions instructions)
    : PackedWeights(weight.size(1), weight.size(0), kInt8PerTask),
      bias_(bias_panels(bias, weight.size(0))),
      kernels_(int8_kernels(instructions)),
      tiles_(instructions == Instructions::kAmx) {
  panels_ = arena.take({panels(), steps_of(inputs_), kPanel, kInt8Step}, at::kByte);
  scales_ = at::empty({panels(), kPanel}, at::kFloat);
  const at::Tensor source = weight.detach().contiguous();
  auto* to = panels_.mutable_data_ptr<uint8_t>();
  auto* scales = scales_.mutable_data_ptr<float>();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, source.scalar_type(), "int8_matrix",
                                  [&] { fill_panels<scalar_t>(source, to, scales); });
}

void Int8Matrix::run(PanelRange panels, const Rows& rows, Finish finish) const {
  const QuantizedRows& in = quantized(rows, inputs_);
  const PanelOutputs outputs{scales_.const_data_ptr<float>(),
                             bias_.defined() ? bias_.const_data_ptr<float>() : nullptr,
                             rows.residual,
                             rows.y,
                             outputs_,
                             kPanel,
                             finish == Finish::kRelu};
  Int8Tiles tiles;
  run_panels(panels, rows.count, outputs, [&](int64_t panel, int64_t row, int64_t count, float(*sums)[kPanel]) {
    std::fill_n(sums[0], count * kPanel, 0.0F);
    int64_t group = 0;
    if (tiles_ && count >= kFewestTileRows) {
      group = inputs_ / kInt8Group;
      add_by_tiles(panel, in, {row, count}, tiles, sums);
    }
    for (; group < in.groups; ++group) add_group(panel, group, in, {row, count}, sums);
  });
}

void Int8Matrix::add_by_tiles(int64_t panel, const QuantizedRows& in, RowRange rows, Int8Tiles& tiles,
                              float (*sums)[kPanel]) const {
  const int64_t blocks = (rows.count + kTileRows - 1) / kTileRows;
  const int64_t each = (rows.count + blocks - 1) / blocks;
  for (int64_t done = 0; done < rows.count; done += each) {
    const int64_t row = rows.begin + done;
    tiles.multiply({.weights = weights_of(panel),
                    .groups = inputs_ / kInt8Group,
                    .x = in.values.data() + row * in.width,
                    .width = in.width,
                    .rows = std::min(each, rows.count - done),
                    .scales = in.scales.data() + row * in.groups,
                    .offsets = in.offsets.data() + row * in.groups,
                    .of_row = in.groups,
                    .sums = sums + done});
  }
}

void Int8Matrix::add_group(int64_t panel, int64_t group, const QuantizedRows& in, RowRange rows,
                           float (*sums)[kPanel]) const {
  const RowPasses passes(rows.count);
  const int64_t input = group * kInt8Group;
  const uint8_t* chunk = weights_of(panel) + input * kPanel;
  for (int64_t pass = 0; pass < passes.count; ++pass) {
    const int64_t first = pass * passes.each, row = rows.begin + first;
    const int64_t number = row * in.groups + group;
    kernels_(passes.count, passes.rows(pass),
             {chunk, passes.ahead(chunk, kInt8Group * kPanel, pass), steps_of(std::min(kInt8Group, inputs_ - input)),
              in.values.data() + row * in.width + input, in.width, in.scales.data() + number,
              in.offsets.data() + number, in.groups, sums + first});
  }
}

const uint8_t* Int8Matrix::weights_of(int64_t panel) const {
  return panels_.const_data_ptr<uint8_t>() + panel * steps_of(inputs_) * kInt8Step * kPanel;
}

}  // namespace draftsmith::model
