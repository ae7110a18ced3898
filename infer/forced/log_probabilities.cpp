#include "infer/forced/log_probabilities.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>

#include "infer/loop/rows.h"
#include "infer/sampling/sampling.h"

namespace draftsmith::infer {

namespace {

// Returns the outputs' tokens [first, first + count), padded with 0: [B,L].
at::Tensor tokens_at(std::span<const std::vector<int64_t>> outputs, int64_t first, int64_t count, at::Device device) {
  std::vector<int64_t> tokens;
  for (const auto& output : outputs) {
    for (int64_t j = first; j < first + count; ++j) {
      tokens.push_back(j < std::ssize(output) ? output[static_cast<size_t>(j)] : 0);
    }
  }
  return to_device(tokens, {std::ssize(outputs), count}, device);
}

}  // namespace

std::vector<std::vector<double>> log_probabilities(model::LanguageModel& model, const ForcedBatch& texts) {
  const at::NoGradGuard no_gradients;
  std::vector<std::vector<double>> found(texts.outputs.size());
  if (std::ranges::all_of(texts.outputs, &std::vector<int64_t>::empty)) return found;
  TeacherForcing forcing(model, texts);
  for (int64_t first = 0; first < forcing.longest();) {
    const int64_t count = std::min(forcing.positions_at_once(), forcing.longest() - first);
    const at::Tensor tokens = tokens_at(texts.outputs, first, count, model.info().device);
    const at::Tensor values = token_log_probability(forcing.next(count), tokens).to(at::kCPU, at::kDouble).contiguous();
    const double* value = values.const_data_ptr<double>();
    for (size_t b = 0; b < found.size(); ++b, value += count) {
      const int64_t own = std::clamp<int64_t>(std::ssize(texts.outputs[b]) - first, 0, count);
      found[b].insert(found[b].end(), value, value + own);
    }
    first += count;
  }
  return found;
}

}  // namespace draftsmith::infer
