#include "model/transformer/cpu_pass.h"

#include <algorithm>
#include <atomic>

#include "base/signals.h"

namespace draftsmith::model {
namespace {

// Rows that each thread norms for itself: fewer take less time than one more phase.
constexpr int64_t kNormedByAll = 4;

// Returns a number that no other pass of the process has.
uint64_t next_pass() {
  static std::atomic<uint64_t> passes{0};
  return ++passes;
}

// Numbers that a buffer keeps anyway.
constexpr int64_t kKept = 1 << 22;

// Rows that a thread has normed.
struct NormedRows {
  uint64_t pass = 0;
  int64_t key = 0;
  std::vector<float> rows;
};

}  // namespace

void CpuPass::Buffer::fit(int64_t numbers) {
  const bool too_large = size_ > kKept && 0 < numbers && numbers < size_ / 8;
  if (numbers <= size_ && !too_large) return;
  memory_.reset();
  memory_ = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(numbers));
  size_ = numbers;
}

void CpuPass::begin_pass(int64_t rows, int64_t width, std::span<const LayerWeightsView> layers) {
  number_ = next_pass();
  rows_ = rows;
  width_ = width;
  norms_ = 0;
  phases_.clear();
  for (Buffer* buffer : {&buffers_[0], &buffers_[1], &normed_}) buffer->fit(rows * width);
  int64_t projected = 0, context = 0, inner = 0, up = 0;  // of the largest layer
  for (const LayerWeightsView& layer : layers) {
    const int64_t wide = layer.feed_forward.up->outputs();
    projected = std::max(projected, layer.self.input->outputs());
    context = std::max(context, layer.self.inner());
    inner = std::max(inner, wide);
    if (layer.feed_forward.gate != nullptr) up = std::max(up, wide);
  }
  projected_.fit(rows * projected);
  context_.fit(rows * context);
  inner_.fit(rows * inner);
  up_.fit(rows * up);
}

CpuPass::Input CpuPass::normed(Input input) {
  if (input.count <= kNormedByAll) {
    input.key = ++norms_;
    return input;
  }
  phases_.push_back({.work = Work::kNorm, .items = input.count, .input = input, .output = normed_.data()});
  return {.rows = normed_.data(), .count = input.count};
}

void CpuPass::add_product(const Input& input, const PackedWeights& weights, const float* residual, float* output) {
  phases_.push_back({.work = Work::kProduct,
                     .items = weights.panels(),
                     .input = input,
                     .weights = &weights,
                     .residual = residual,
                     .output = output});
}

void CpuPass::add_feed_forward(const FeedForwardWeightsView& weights, const float* input, const float* residual,
                               float* output) {
  phases_.push_back({.work = Work::kFeedForward,
                     .items = weights.up->panels(),
                     .input = normed(all_rows(input, &weights.norm)),
                     .feed_forward = &weights});
  add_product(all_rows(inner_.data()), *weights.down, residual, output);
}

void CpuPass::run() {
  Team::current().run(*this);
}

void CpuPass::run_part() {
  run();
  phases_.clear();
  number_ = next_pass();  // what was kept for a phase is found by its number
  work_point();
}

void CpuPass::run(int64_t phase, int64_t begin, int64_t end) const {
  const Phase& found = phases_[static_cast<size_t>(phase)];
  switch (found.work) {
    case Work::kNorm:
      return normalize(found.input, begin, end, found.output);
    case Work::kProduct:
      return multiply(found, begin, end);
    case Work::kFeedForward:
      return feed_forward(found, begin, end);
    default:
      return compute(found, begin, end);
  }
}

void CpuPass::normalize(const Input& input, int64_t begin, int64_t end, float* to) const {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t from = input.picked.empty() ? row : input.picked[static_cast<size_t>(row)];
    float* out = to + row * width_;
    normalize_rows(*input.norm, input.rows + from * width_, 1, width_, out);
    if (input.scale != 1) {
      for (int64_t i = 0; i < width_; ++i) out[i] *= input.scale;
    }
  }
}

const float* CpuPass::rows_of(const Input& input) const {
  if (input.norm == nullptr) return input.rows;
  static thread_local NormedRows kept;
  if (kept.pass != number_ || kept.key != input.key) {
    kept.rows.resize(std::max(kept.rows.size(), static_cast<size_t>(input.count * width_)));
    normalize(input, 0, input.count, kept.rows.data());
    kept.pass = number_;
    kept.key = input.key;
  }
  return kept.rows.data();
}

uint64_t CpuPass::number_of(const Phase& phase) const {
  constexpr int kBits = 16;  // of a phase: models have fewer layers
  return number_ << kBits | static_cast<uint64_t>(&phase - phases_.data());
}

void CpuPass::multiply(const Phase& phase, int64_t begin, int64_t end) const {
  phase.weights->run({begin, end},
                     {rows_of(phase.input), phase.residual, phase.input.count, phase.output, number_of(phase)},
                     PackedWeights::Finish::kNone);
}

void CpuPass::feed_forward(const Phase& phase, int64_t begin, int64_t end) const {
  const FeedForwardWeightsView& weights = *phase.feed_forward;
  const bool gated = weights.gate != nullptr;
  const bool relu = weights.activation == PostOp::kRelu;
  const PackedWeights& first = gated ? *weights.gate : *weights.up;
  const float* rows = rows_of(phase.input);
  first.run({begin, end}, {rows, nullptr, rows_, inner_.data(), number_of(phase)},
            relu ? PackedWeights::Finish::kRelu : PackedWeights::Finish::kNone);
  if (gated)
    weights.up->run({begin, end}, {rows, nullptr, rows_, up_.data(), number_of(phase)}, PackedWeights::Finish::kNone);
  if (relu && !gated) return;
  const int64_t from = begin * kPanel, to = std::min(end * kPanel, first.outputs());
  for (int64_t row = 0; row < rows_; ++row) {
    const int64_t at = row * first.outputs() + from;
    if (!relu) activate(weights.activation, inner_.data() + at, to - from);
    if (gated) multiply_by(inner_.data() + at, up_.data() + at, to - from);
  }
}

}  // namespace draftsmith::model
