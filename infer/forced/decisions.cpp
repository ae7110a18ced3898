#include "infer/forced/decisions.h"

#include <algorithm>

#include "infer/loop/processors.h"
#include "model/transformer/transformer_parts.h"

namespace draftsmith::infer {
namespace {

// Returns the rows of the outputs as decoding has them before the next token. Without a limit of its own, decoding may
// go on for long.
std::vector<Row> rows_of(const Generator& generator, const GenerationModels& models, const ForcedBatch& texts) {
  constexpr int64_t kNoLimit = int64_t{1} << 40;
  const model::ModelInfo& info = models.target->info();
  const std::optional<int64_t> bos = models.settings().bos;
  std::vector<Row> rows;
  for (size_t b = 0; b < texts.sources.size(); ++b) {
    std::vector<int64_t> source = texts.sources[b];
    if (source.empty() && bos && !info.encoder_decoder) source = {*bos};
    Row& row = rows.emplace_back(row_before_output(source, info.encoder_decoder, info.decoder_start));
    row.tokens.insert(row.tokens.end(), texts.outputs[b].begin(), texts.outputs[b].end());
    row.limit = generator.options().max_new_tokens.value_or(kNoLimit);
  }
  return rows;
}

// Returns each text's logits behind its output [B,V].
at::Tensor next_logits(const GenerationModels& models, const std::vector<Row>& rows) {
  std::vector<std::vector<int64_t>> sources;
  std::vector<std::vector<int64_t>> outputs;  // with one token more, whose logits are wanted
  for (const Row& row : rows) {
    const auto input = row.input();
    sources.emplace_back(input.begin(), input.end());
    outputs.emplace_back(row.tokens.begin() + row.prefix, row.tokens.end()).push_back(0);
  }
  TeacherForcing forcing(*models.target, {sources, outputs, {}, model::Logits::kLast});
  return forcing.next(forcing.longest()).squeeze(1).clone();  // a model may reuse the memory of its logits
}

// Returns decision_logits() in the model's number type, on its device.
at::Tensor processed_logits(const Generator& generator, const GenerationModels& models, const ForcedBatch& texts) {
  const model::DecodingGuard guard;
  const std::vector<Row> rows = rows_of(generator, models, texts);
  const at::Tensor logits = next_logits(models, rows);
  generator.settings().process(logits, {rows});
  return logits;
}

at::Tensor fp64_on_host(const at::Tensor& numbers) {
  return numbers.to(at::kCPU, at::kDouble);
}

// Returns the distance from 1 to the next number of a type.
double unit_of(at::ScalarType type) {
  if (type == at::kDouble) return 0x1p-52;
  if (type == at::kFloat) return 0x1p-23;
  return type == at::kHalf ? 0x1p-10 : 0x1p-7;
}

// Returns the largest absolute value of the finite numbers; 0 without any.
double largest_finite(const at::Tensor& numbers) {
  return numbers.masked_fill(numbers.isfinite().logical_not(), 0).abs().max().item<double>();
}

// Returns the rounding error of one text's logits in steps of `width` tokens.
double text_rounding(model::LanguageModel& model, const ForcedBatch& text, int64_t width) {
  TeacherForcing single(model, text);
  TeacherForcing several(model, text);
  double most = 0;
  for (int64_t done = 0; done < several.longest(); done += width) {
    const at::Tensor logits_of_block = several.next(width);
    const double unit = unit_of(logits_of_block.scalar_type());
    const at::Tensor block =
        fp64_on_host(logits_of_block).clone();  // [1,L,V] a model may reuse the memory of its logits
    for (int64_t j = 0; j < block.size(1); ++j) {
      const at::Tensor logits = fp64_on_host(single.next(1).select(1, 0));  // [1,V]
      most = std::max({most, unit * largest_finite(logits), largest_finite(logits - block.select(1, j))});
    }
  }
  return most;
}

}  // namespace

at::Tensor decision_logits(const Generator& generator, const GenerationModels& models, const ForcedBatch& texts) {
  return fp64_on_host(processed_logits(generator, models, texts));
}

at::Tensor decision_probabilities(const Generator& generator, const GenerationModels& models,
                                  const ForcedBatch& texts) {
  const model::DecodingGuard guard;
  return fp64_on_host(warp(processed_logits(generator, models, texts), generator.settings().warping));
}

double logit_rounding(model::LanguageModel& model, const ForcedBatch& texts, std::span<const int64_t> widths) {
  const model::DecodingGuard guard;
  double most = 0;
  for_each_batch(texts, 1, [&](const ForcedBatch& text) {
    for (const int64_t width : widths) most = std::max(most, text_rounding(model, text, width));
  });
  return most;
}

}  // namespace draftsmith::infer
