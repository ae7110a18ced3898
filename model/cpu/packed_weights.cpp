#include "model/cpu/packed_weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <numeric>
#include <type_traits>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/util.h"
#include "model/cpu/team.h"

namespace draftsmith::model {
namespace {

constexpr size_t kHugePage = size_t{1} << 21;
constexpr size_t kSmallestBlock = size_t{1} << 25;
constexpr size_t kArenaAlignment = 64;

size_t rounded(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

at::Tensor WeightArena::take(at::IntArrayRef shape, at::ScalarType type) {
  const size_t bytes =
      rounded(static_cast<size_t>(c10::multiply_integers(shape)) * c10::elementSize(type), kArenaAlignment);
  if (used_ + bytes > size_) {
    size_ = rounded(std::max(bytes, kSmallestBlock), kHugePage);
    used_ = 0;
    block_.reset(static_cast<std::byte*>(std::aligned_alloc(kHugePage, size_)), [](std::byte* p) { std::free(p); });
    if (block_ == nullptr) {
      throw std::bad_alloc();
    }
    // A hint to the kernel: if it refuses, small pages are used. Pages that are never written take no memory.
    madvise(block_.get(), size_, MADV_HUGEPAGE);
  }
  std::byte* begin = block_.get() + used_;
  used_ += bytes;
  return at::from_blob(
      begin, shape, [block = block_](void*) {}, type);
}

at::Tensor PackedWeights::multiply(const at::Tensor& x, Finish finish, const at::Tensor& residual) const {
  const at::Tensor input = x.contiguous();
  const at::Tensor added = residual.defined() ? residual.contiguous() : residual;
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = outputs_;
  const at::Tensor y = at::empty(sizes, input.options());
  const Rows rows{input.const_data_ptr<float>(), added.defined() ? added.const_data_ptr<float>() : nullptr,
                  y.numel() / outputs_, y.mutable_data_ptr<float>()};
  if (panels() * inputs_ * kPanel * rows.count <= products_) {
    run({0, panels()}, rows, finish);
  } else {
    in_pieces(panels(), [&](int64_t begin, int64_t end) { run({begin, end}, rows, finish); });
  }
  return y;
}

at::ScalarType number_type(at::ScalarType type, at::Device device) {
  const bool narrow = type == at::kChar || (type == at::kBFloat16 && device.is_cpu());
  return narrow ? at::kFloat : type;
}

namespace {

// Returns the bias [out] in panels, padded with zeros: fp32 [panels,64]; undefined if `bias` is.
at::Tensor bias_panels(const at::Tensor& bias, int64_t outputs) {
  if (!bias.defined()) return {};
  const int64_t panels = (outputs + kPanel - 1) / kPanel;
  at::Tensor padded = at::zeros({panels, kPanel}, at::kFloat);
  padded.view(-1).narrow(0, 0, outputs).copy_(bias.detach());
  return padded;
}

// Returns the numbers of a bias or of scales; null if there are none.
const float* numbers_or_null(const at::Tensor& numbers) {
  return numbers.defined() ? numbers.const_data_ptr<float>() : nullptr;
}

// Returns where the weights of each output begin, in contiguous parts [out,in] one behind the other.
template <class T>
std::vector<const T*> rows_of(at::TensorList parts) {
  std::vector<const T*> rows;
  for (const at::Tensor& part : parts) {
    const T* first = part.const_data_ptr<T>();
    for (int64_t o = 0; o < part.size(0); ++o) rows.push_back(first + o * part.size(1));
  }
  return rows;
}

int64_t outputs_of(at::TensorList parts) {
  return std::accumulate(parts.begin(), parts.end(), int64_t{0},
                         [](int64_t sum, const at::Tensor& part) { return sum + part.size(0); });
}

// ---- fp32 and bf16

constexpr int64_t kChunk = 1 << 13;            // bytes of weights that passes and tiles share in the first cache
constexpr int64_t kProductsPerTask = 1 << 17;  // multiplications; a second thread costs about as much as these

// Returns the place of an output in a panel's line.
template <class Stored>
int64_t place(int64_t output) {
  return std::is_same_v<Stored, float> ? output : bf16_place(output);
}

// Fills a panel [in,64] from the rows of up to 64 outputs [in], line by line of the cache on both sides.
template <class T, class Stored>
void fill_panel(const T* const* rows, int64_t valid, int64_t inputs, Stored* panel) {
  constexpr int64_t kLine = 16;
  const auto converted = [](T weight) {
    if constexpr (std::is_same_v<T, Stored>) return weight;
    return static_cast<Stored>(static_cast<float>(weight));
  };
  for (int64_t begin = 0; begin < inputs; begin += kLine) {
    const int64_t end = std::min(inputs, begin + kLine);
    for (int64_t row = 0; row < kPanel; ++row) {
      Stored* to = panel + place<Stored>(row);
      for (int64_t i = begin; i < end; ++i) {
        to[i * kPanel] = row < valid ? converted(rows[row][i]) : Stored(0.0F);
      }
    }
  }
}

// Stored: float or at::BFloat16.
template <class Stored>
class FloatMatrix final : public PackedWeights {
 public:
  FloatMatrix(at::TensorList parts, const at::Tensor& bias, WeightArena& arena, Instructions instructions)
      : PackedWeights(parts[0].size(1), outputs_of(parts), kProductsPerTask),
        panels_(arena.take({panels(), inputs_, kPanel}, c10::CppTypeToScalarType<Stored>::value)),
        bias_(bias_panels(bias, outputs_)),
        kernels_(float_kernels<Number>(instructions)) {
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, parts[0].scalar_type(), "float_matrix",
                                    [&] { fill(rows_of<scalar_t>(parts)); });
  }

  void run(PanelRange panels, const Rows& rows, Finish finish) const override {
    const auto* weights = static_cast<const Number*>(panels_.const_data_ptr());
    const float* bias = numbers_or_null(bias_);
    const PanelOutputs outputs{nullptr, nullptr, rows.residual, rows.y, outputs_, kPanel, finish == Finish::kRelu};
    run_panels(panels, rows.count, outputs, [&](int64_t panel, int64_t row, int64_t count, float(*sums)[kPanel]) {
      for (int64_t r = 0; r < count; ++r) {
        if (bias == nullptr) std::fill_n(sums[r], kPanel, 0.0F);
        if (bias != nullptr) std::copy_n(bias + panel * kPanel, kPanel, sums[r]);
      }
      add_products(weights + panel * inputs_ * kPanel, rows.x + row * inputs_, count, sums);
    });
  }

 private:
  using Number = std::conditional_t<std::is_same_v<Stored, float>, float, uint16_t>;

  // Fills the panels from the rows of all outputs.
  template <class T>
  void fill(const std::vector<const T*>& rows) {
    auto* to = panels_.mutable_data_ptr<Stored>();
    const int64_t numbers = inputs_ * kPanel;  // of a panel
    const auto task = [&](int64_t begin, int64_t end) {
      for (int64_t panel = begin; panel < end; ++panel) {
        const int64_t first = panel * kPanel;
        fill_panel(rows.data() + first, std::min(kPanel, outputs_ - first), inputs_, to + panel * numbers);
      }
    };
    at::parallel_for(0, panels(), std::max<int64_t>(1, kProductsPerTask / numbers), task);
  }

  // Adds the products of a panel's weights [in,64] and rows [rows,in] to their sums.
  void add_products(const Number* panel, const float* x, int64_t rows, float (*sums)[kPanel]) const {
    constexpr auto kSize = static_cast<int64_t>(sizeof(Number));
    const RowPasses passes(rows);
    const int64_t chunk = rows == 1 ? inputs_ : kChunk / kPanel / kSize;
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

  at::Tensor
      panels_;       // [panels,in,64]: 64 outputs side by side, bf16 by bf16_place(); the last panel padded with zeros
  at::Tensor bias_;  // fp32 [panels,64], padded likewise; undefined: none
  PanelKernels<FloatTask<Number>> kernels_;
};

// ---- int8

// Rows from which tiles are faster than products of bytes.
constexpr int64_t kFewestTileRows = 2;
constexpr int64_t kInt8PerTask = 1 << 19;  // multiplications; a second thread costs about as much as these
constexpr int64_t kMostInt8Rows = 1024;    // that a thread keeps in int8
constexpr int32_t kOffset = 128;           // of stored weights
constexpr float kLargest = 127;

int64_t steps_of(int64_t inputs) {
  return (inputs + kInt8Step - 1) / kInt8Step;
}

// Rows of inputs in int8, each with the numbers of its groups.
struct QuantizedRows {
  uint64_t number = 0;  // of the inputs (PackedWeights::Rows); 0: none
  int64_t parts = 1;    // Int8Kernels'
  int64_t width = 0;    // bytes of a row
  int64_t groups = 0;
  std::vector<int8_t> values;    // [rows,width]
  std::vector<float> scales;     // [rows,groups]
  std::vector<int32_t> offsets;  // [rows,groups]: what kOffset adds to the sums of products, negated

  void resize(int64_t rows, int64_t inputs) {
    groups = (inputs + kInt8Group - 1) / kInt8Group;
    width = groups * kInt8Group * parts;
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

// Writes a group's inputs in words, the even ones and behind them the odd ones.
DRAFTSMITH_INLINE void widen(const int8_t* bytes, int8_t* to) {
  int16_t words[2][kInt8Group / 2];
  for (int64_t i = 0; i < kInt8Group / 2; ++i) {
    int16_t pair;
    std::memcpy(&pair, bytes + 2 * i, sizeof(pair));
    words[0][i] = static_cast<int8_t>(pair);
    words[1][i] = static_cast<int16_t>(pair >> 8);
  }
  std::memcpy(to, words, sizeof(words));
}

DRAFTSMITH_VECTOR_CODE void quantize_row(const float* x, int64_t inputs, int64_t row, QuantizedRows& rows) {
  int8_t* to = rows.values.data() + row * rows.width;
  for (int64_t group = 0; group < rows.groups; ++group, to += kInt8Group * rows.parts) {
    const int64_t first = group * kInt8Group;
    const int64_t count = std::min(kInt8Group, inputs - first);
    int8_t bytes[kInt8Group] = {};
    rows.scales[static_cast<size_t>(row * rows.groups + group)] = quantize(x + first, count, bytes);
    int32_t sum = 0;
    for (const int8_t byte : bytes) sum += byte;
    rows.offsets[static_cast<size_t>(row * rows.groups + group)] = -kOffset * sum;
    rows.parts == 1 ? void(std::memcpy(to, bytes, sizeof(bytes))) : widen(bytes, to);
  }
}

// Returns the rows in int8, in so many parts: memory of this thread, until its next call.
const QuantizedRows& quantized(const PackedWeights::Rows& rows, int64_t inputs, int64_t parts) {
  static thread_local QuantizedRows kept;
  if (rows.number != 0 && rows.number == kept.number && parts == kept.parts) return kept;
  kept.parts = parts;
  kept.resize(rows.count, inputs);
  for (int64_t row = 0; row < rows.count; ++row) quantize_row(rows.x + row * inputs, inputs, row, kept);
  kept.number = rows.number;
  return kept;
}

// Rounds the rows of all outputs to int8, by code without fused products on all processors, so that weights are the
// same everywhere. Panels hold w + 128, kInt8Step numbers of an output side by side.
template <class T>
void fill_panels(const std::vector<const T*>& rows, int64_t inputs, uint8_t* panels, float* scales) {
  const auto outputs = static_cast<int64_t>(rows.size());
  const int64_t bytes = steps_of(inputs) * kInt8Step * kPanel;  // of a panel
  const int64_t count = (outputs + kPanel - 1) / kPanel;
  std::fill_n(scales, count * kPanel, 0.0F);
  at::parallel_for(0, count, std::max<int64_t>(1, kInt8PerTask / bytes), [&](int64_t begin, int64_t end) {
    std::vector<float> weights(static_cast<size_t>(inputs));
    std::vector<int8_t> integers(static_cast<size_t>(steps_of(inputs) * kInt8Step));
    if (end * kPanel > outputs) std::fill_n(panels + (end - 1) * bytes, bytes, static_cast<uint8_t>(kOffset));
    for (int64_t o = begin * kPanel; o < std::min(outputs, end * kPanel); ++o) {
      const T* row = rows[static_cast<size_t>(o)];
      std::transform(row, row + inputs, weights.begin(), [](T weight) { return static_cast<float>(weight); });
      scales[o] = quantize(weights.data(), inputs, integers.data());
      if (std::isnan(scales[o])) {
        throw RunError(
            {.where = "int8 weights", .what = "a weight is not finite", .hint = "the checkpoint is damaged"});
      }
      uint8_t* to = panels + o / kPanel * bytes + o % kPanel * kInt8Step;
      for (int64_t step = 0; step < steps_of(inputs); ++step, to += kInt8Step * kPanel) {
        for (int64_t i = 0; i < kInt8Step; ++i) {
          to[i] = static_cast<uint8_t>(integers[static_cast<size_t>(step * kInt8Step + i)] + kOffset);
        }
      }
    }
  });
}

class Int8Matrix final : public PackedWeights {
 public:
  Int8Matrix(at::TensorList parts, const at::Tensor& bias, WeightArena& arena, Instructions instructions)
      : PackedWeights(parts[0].size(1), outputs_of(parts), kInt8PerTask),
        panels_(arena.take({panels(), steps_of(inputs_), kPanel, kInt8Step}, at::kByte)),
        scales_(at::empty({panels(), kPanel}, at::kFloat)),
        bias_(bias_panels(bias, outputs_)),
        kernels_(int8_kernels(instructions)),
        tiles_(instructions == Instructions::kAmx && kernels_.parts == 1) {
    auto* to = panels_.mutable_data_ptr<uint8_t>();
    auto* scales = scales_.mutable_data_ptr<float>();
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, parts[0].scalar_type(), "int8_matrix",
                                    [&] { fill_panels(rows_of<scalar_t>(parts), inputs_, to, scales); });
  }

  // In blocks, as each thread keeps the int8 numbers of one.
  void run(PanelRange panels, const Rows& rows, Finish finish) const override {
    for (int64_t first = 0; first < rows.count; first += kMostInt8Rows) {
      const int64_t to = first * outputs_;
      run_block(panels,
                {.x = rows.x + first * inputs_,
                 .residual = rows.residual == nullptr ? nullptr : rows.residual + to,
                 .count = std::min(kMostInt8Rows, rows.count - first),
                 .y = rows.y + to,
                 .number = rows.count <= kMostInt8Rows ? rows.number : 0},
                finish);
    }
  }

 private:
  struct RowRange {
    int64_t begin = 0;
    int64_t count = 0;
  };

  void run_block(PanelRange panels, const Rows& rows, Finish finish) const {
    const QuantizedRows& in = quantized(rows, inputs_, kernels_.parts);
    const PanelOutputs outputs{
        numbers_or_null(scales_), numbers_or_null(bias_), rows.residual, rows.y, outputs_, kPanel,
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

  // Returns the task of a row and those after it: a panel's inputs from group `group` on, `inputs` of them.
  Int8Task task_of(int64_t panel, int64_t group, int64_t inputs, const QuantizedRows& in, int64_t row,
                   float (*sums)[kPanel]) const {
    const int64_t input = group * kInt8Group, number = row * in.groups + group;
    const uint8_t* weights =
        panels_.const_data_ptr<uint8_t>() + (panel * steps_of(inputs_) * kInt8Step + input) * kPanel;
    return {.weights = weights,
            .ahead = weights,
            .steps = steps_of(inputs),
            .x = in.values.data() + row * in.width + input * in.parts,
            .width = in.width,
            .scales = in.scales.data() + number,
            .offsets = in.offsets.data() + number,
            .groups = in.groups,
            .sums = sums};
  }

  // Adds the products of all whole groups.
  void add_by_tiles(int64_t panel, const QuantizedRows& in, RowRange rows, Int8Tiles& tiles,
                    float (*sums)[kPanel]) const {
    const int64_t blocks = (rows.count + Int8Tiles::kRows - 1) / Int8Tiles::kRows;
    const int64_t each = (rows.count + blocks - 1) / blocks;
    const int64_t inputs = inputs_ / kInt8Group * kInt8Group;
    for (int64_t done = 0; done < rows.count; done += each) {
      tiles.multiply(std::min(each, rows.count - done), task_of(panel, 0, inputs, in, rows.begin + done, sums + done));
    }
  }

  void add_group(int64_t panel, int64_t group, const QuantizedRows& in, RowRange rows, float (*sums)[kPanel]) const {
    const RowPasses passes(rows.count);
    const int64_t inputs = std::min(kInt8Group, inputs_ - group * kInt8Group);
    for (int64_t pass = 0; pass < passes.count; ++pass) {
      const int64_t first = pass * passes.each;
      Int8Task task = task_of(panel, group, inputs, in, rows.begin + first, sums + first);
      task.ahead = passes.ahead(task.weights, kInt8Group * kPanel, pass);
      kernels_(passes.count, passes.rows(pass), task);
    }
  }

  at::Tensor panels_;  // uint8 [panels,in/4,64,4]: w + 128 of four inputs of each of 64 outputs; 128 behind the ends
  at::Tensor scales_;  // fp32 [panels,64]
  at::Tensor bias_;    // fp32 [panels,64]; undefined: none
  Int8Kernels kernels_;
  bool tiles_ = false;
};

}  // namespace

std::shared_ptr<const PackedWeights> packed_weights(at::TensorList weights, const at::Tensor& bias, at::ScalarType type,
                                                    WeightArena& arena, Instructions instructions) {
  const at::ScalarType stored = weights[0].scalar_type();
  const bool fits = stored == at::kFloat || stored == at::kBFloat16 || stored == at::kHalf || stored == at::kDouble;
  std::vector<at::Tensor> parts;
  for (const at::Tensor& weight : weights) {
    if (weight.scalar_type() != stored) return packed_weights(at::cat(weights), bias, type, arena, instructions);
    if (!weight.device().is_cpu() || !fits || weight.numel() == 0) return nullptr;
    parts.push_back(weight.detach().contiguous());
  }
  switch (type) {
    case at::kFloat:
      return std::make_shared<FloatMatrix<float>>(parts, bias, arena, instructions);
    case at::kBFloat16:
      return std::make_shared<FloatMatrix<at::BFloat16>>(parts, bias, arena, instructions);
    case at::kChar:
      return std::make_shared<Int8Matrix>(parts, bias, arena, instructions);
    default:
      return nullptr;
  }
}

}  // namespace draftsmith::model
