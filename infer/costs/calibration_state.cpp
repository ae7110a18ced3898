#include "infer/costs/calibration_state.h"

#include <algorithm>

#include "base/random.h"
#include "infer/loop/rows.h"

namespace draftsmith::infer {

model::TokenBatch equal_rows(const model::LanguageModel& model, std::span<const int64_t> tokens, int64_t rows) {
  std::vector<int64_t> flat;
  for (int64_t row = 0; row < rows; ++row) flat.insert(flat.end(), tokens.begin(), tokens.end());
  return {to_device(flat, {rows, std::ssize(tokens)}, model.info().device),
          std::vector<int64_t>(static_cast<size_t>(rows), std::ssize(tokens))};
}

CalibrationState state_after(model::LanguageModel& model, std::span<const int64_t> source,
                             std::span<const int64_t> tokens, const CalibrationSize& size,
                             const std::vector<int64_t>& hidden_layers) {
  CalibrationState prepared;
  if (model.info().encoder_decoder) {
    prepared.encoder = model.encode(equal_rows(model, source, size.rows));
    prepared.state = model.begin(prepared.encoder, size.capacity);
  } else {
    prepared.state = model.begin(size.rows, size.capacity);
  }
  if (tokens.empty()) return prepared;
  const model::TokenBatch batch = equal_rows(model, tokens, size.rows);
  prepared.output = model.step({batch.tokens, batch.lengths, model::Logits::kNone, hidden_layers}, *prepared.state);
  return prepared;
}

std::vector<std::vector<int64_t>> random_sources(int64_t rows, int64_t tokens, int64_t vocabulary) {
  RandomSequence random{CounterRandom(1, "bench sources")};
  const int64_t first = std::min<int64_t>(3, vocabulary - 1);  // ids below it control the model
  std::vector<std::vector<int64_t>> sources(static_cast<size_t>(rows));
  for (auto& source : sources) {
    for (int64_t t = 0; t < tokens; ++t) {
      source.push_back(first + static_cast<int64_t>(random.below(static_cast<uint64_t>(vocabulary - first))));
    }
  }
  return sources;
}

CalibrationContext random_context(const model::ModelInfo& model, const ContextSize& size) {
  CalibrationContext context;
  context.rows = size.rows;
  if (model.encoder_decoder) context.source = random_sources(1, size.source, model.vocabulary).front();
  context.prefix = random_sources(1, size.length, model.vocabulary).front();
  return context;
}

}  // namespace draftsmith::infer
