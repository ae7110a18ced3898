#include "model/transformer/cpu_decoder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <stdexcept>

#include <ATen/Dispatch.h>

#include "base/device_tensors.h"
#include "model/transformer/cpu_step.h"

namespace draftsmith::model {
namespace {

template <class T>
void add_rows(const at::Tensor& table, const std::vector<int64_t>& rows, bool first, float* to) {
  const int64_t width = table.size(1);
  const T* from = table.const_data_ptr<T>();
  for (const int64_t row : rows) {
    const T* numbers = from + row * width;
    for (int64_t i = 0; i < width; ++i) to[i] = static_cast<float>(numbers[i]) + (first ? 0.0F : to[i]);
    to += width;
  }
}

// Writes rows of a table [N,D] to `to`, or adds them.
void gather(const at::Tensor& table, const std::vector<int64_t>& rows, bool first, float* to) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, table.scalar_type(), "embed",
                                  [&] { add_rows<scalar_t>(table, rows, first, to); });
}

bool fits(const RowNorm& norm) {
  return norm.weight != nullptr;
}

// Sets `rows` to the rows of a step's tokens that get logits: each row's last new token, or all.
void pick_rows(const StepLayout& layout, Logits logits, std::vector<int64_t>& rows) {
  rows.clear();
  for (size_t b = 0; b < layout.base.size(); ++b) {
    const int64_t first = static_cast<int64_t>(b) * layout.tokens;
    if (logits == Logits::kLast) {
      rows.push_back(first + std::max<int64_t>(0, layout.new_tokens[b] - 1));
      continue;
    }
    for (int64_t j = 0; j < layout.tokens; ++j) rows.push_back(first + j);
  }
}

}  // namespace

bool CpuDecoder::takes_steps() const {
  const auto stored = [](const at::Tensor& table) { return table.is_cpu() && table.is_contiguous(); };
  return !parts_.decoder.packed_views().empty() && parts_.head.own_weights() != nullptr &&
         fits(parts_.decoder.final_row_norm()) && stored(parts_.embedding) &&
         (!parts_.embedding_norm || fits(parts_.embedding_norm->row_norm())) &&
         (!parts_.positions.defined() || stored(parts_.positions));
}

void CpuDecoder::embed(const at::Tensor& tokens, const StepLayout& layout, float* to) const {
  static thread_local std::vector<int64_t> rows;
  const at::Tensor ids = tokens.contiguous();
  const auto* id = ids.const_data_ptr<int64_t>();
  rows.clear();
  for (int64_t i = 0; i < ids.numel(); ++i) {
    if (id[i] < 0 || id[i] >= parts_.config.vocabulary) throw std::logic_error("a token is outside the vocabulary");
    rows.push_back(parts_.vocabulary_rows.row_of(id[i]));
  }
  gather(parts_.embedding, rows, true, to);
  if (parts_.positions.defined()) {
    rows.clear();
    for (const int64_t base : layout.base) {
      for (int64_t j = 0; j < layout.tokens; ++j) {
        rows.push_back(std::min(base + (layout.siblings ? 0 : j), parts_.positions.size(0) - 1));
      }
    }
    gather(parts_.positions, rows, false, to);
  }
  if (parts_.embedding_norm) {
    const int64_t width = parts_.config.width;
    normalize_rows(parts_.embedding_norm->row_norm(), to, ids.numel(), width, to);
  }
}

void CpuDecoder::begin(const StepLayout& layout, DecoderState& state, LayerRange layers) const {
  for (int64_t i = layers.begin; i < layers.end; ++i) state.make_room(i, layout);
  CpuStep::of_thread().begin(layout, state, parts_.config.width, parts_.decoder.packed_views());
}

StepOutput CpuDecoder::run(const StepPart& part, const StepLayout& layout, DecoderState& state) const {
  const auto views = parts_.decoder.packed_views();
  const std::array<int64_t, 3> shape{state.rows(), layout.tokens, parts_.config.width};
  begin(layout, state, part.layers);
  CpuStep& step = CpuStep::of_thread();
  StepOutput output;
  output.hidden.resize(part.hidden_layers.size());
  // Returns memory for the output of a layer if it is wanted, else null.
  const auto wanted = [&](int64_t layer) -> float* {
    const auto found = std::find(part.hidden_layers.begin(), part.hidden_layers.end(), layer);
    if (found == part.hidden_layers.end()) return nullptr;
    at::Tensor& tensor = output.hidden[static_cast<size_t>(found - part.hidden_layers.begin())];
    tensor = host_empty(shape, at::kFloat);
    return tensor.mutable_data_ptr<float>();
  };
  float* first = wanted(part.layers.begin);
  if (first == nullptr) first = step.input();
  if (part.hidden.defined()) {
    const at::Tensor given = part.hidden.contiguous();
    std::memcpy(first, given.const_data_ptr<float>(), static_cast<size_t>(given.numel()) * sizeof(float));
  } else {
    embed(part.tokens, layout, first);
  }
  step.set_input(first);
  for (int64_t i = part.layers.begin; i < part.layers.end; ++i) {
    step.add_layer(views[static_cast<size_t>(i)], i, wanted(i + 1));
  }
  static thread_local std::vector<int64_t> rows;
  if (part.logits != Logits::kNone) {
    pick_rows(layout, part.logits, rows);
    const int64_t picked = part.logits == Logits::kLast ? 1 : layout.tokens;
    output.logits = state.logits_of({state.rows(), picked, parts_.head.own_weights()->outputs()});
    step.add_head({.norm = parts_.decoder.final_row_norm(),
                   .scale = static_cast<float>(parts_.config.output_scale),
                   .head = parts_.head.own_weights(),
                   .rows = rows,
                   .logits = output.logits.mutable_data_ptr<float>()});
  }
  step.run();
  if (output.logits.defined() && parts_.vocabulary_rows.pruned()) {
    output.logits = parts_.vocabulary_rows.spread(output.logits, -std::numeric_limits<double>::infinity());
  }
  return output;
}

}  // namespace draftsmith::model
