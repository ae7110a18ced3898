#include "bench/support/shapes.h"

#include <charconv>
#include <cmath>

#include "base/error.h"
#include "infer/costs/step_work.h"
#include "model/transformer/parameters.h"
#include "tests/support/models.h"

namespace draftsmith::bench {

namespace {

using model::ModelSizes;
using model::TransformerConfig;

struct Shape {
  std::string name;
  TransformerConfig config;
};

TransformerConfig t5(const ModelSizes& sizes) {
  TransformerConfig config = model::t5_config(sizes);
  config.tied_head = true;
  config.output_scale = 1 / std::sqrt(static_cast<double>(sizes.width));
  return config;
}

TransformerConfig mt5(const ModelSizes& sizes) {
  TransformerConfig config = model::t5_config(sizes);
  config.family = "mt5";
  config.gated = true;
  config.activation = model::Activation::kGeluTanh;
  return config;
}

TransformerConfig llama(const ModelSizes& sizes, bool tied_head) {
  TransformerConfig config = model::llama_config(sizes);
  config.tied_head = tied_head;
  config.max_positions = 8192;
  return config;
}

std::vector<Shape> shapes() {
  const ModelSizes tiny{.vocabulary = 96, .width = 32, .heads = 2, .head_width = 16, .ff_width = 64};
  ModelSizes half = tiny;
  half.width = 16;
  half.ff_width = 32;
  half.decoder_layers = 1;
  return {{"t5-small", t5({32128, 512, 8, 0, 64, 2048, 6, 6})},
          {"t5-base", t5({32128, 768, 12, 0, 64, 3072, 12, 12})},
          {"t5-large", t5({32128, 1024, 16, 0, 64, 4096, 24, 24})},
          {"mt5-large", mt5({250112, 1024, 16, 0, 64, 2816, 24, 24})},
          {"llama-1b", llama({128256, 2048, 32, 8, 64, 8192, 0, 16}, true)},
          {"llama-8b", llama({128256, 4096, 32, 8, 128, 14336, 0, 32}, false)},
          {"tiny-t5", t5(tiny)},
          {"tiny-t5-drafter", t5(half)},
          {"tiny-llama", llama(tiny, true)}};
}

}  // namespace

TransformerConfig shape_config(const std::string& name) {
  std::string known;
  for (Shape& shape : shapes()) {
    if (shape.name == name) {
      shape.config.eos = {};
      return shape.config;
    }
    known += (known.empty() ? "" : ", ") + shape.name;
  }
  throw UserError({"--shapes", "unknown shape", known, "'" + name + "'", ""});
}

double training_flops(const TransformerConfig& config, int64_t rows, int64_t source, int64_t target) {
  const double read = static_cast<double>(config.encoder_decoder ? source : 0);
  const double written = static_cast<double>(config.encoder_decoder ? target : source + target);
  double forward = 0;  // of one row
  for (const model::ParameterSpec& spec : model::expected_parameters(config)) {
    if (spec.shape.size() != 2 || spec.name.ends_with("relative_bias.weight")) continue;
    const bool of_source = spec.name.starts_with("encoder.") || spec.name.ends_with(".cross_attention.key.weight") ||
                           spec.name.ends_with(".cross_attention.value.weight");
    const bool of_target = spec.name.starts_with("decoder.") || spec.name == model::head_parameter(config);
    const double tokens = of_source ? read : of_target ? written : 0;
    forward += 2 * tokens * static_cast<double>(c10::multiply_integers(spec.shape));
  }
  const auto decoder_layers = static_cast<double>(config.decoder_layers);
  forward += static_cast<double>(config.encoder_layers) * infer::attention_operations(config, read, read);
  forward += decoder_layers * (infer::attention_operations(config, written, written) +
                               infer::attention_operations(config, written, read));
  return 3 * static_cast<double>(rows) * forward;
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

std::vector<int64_t> split_numbers(const std::string& text, const std::string& where) {
  std::vector<int64_t> numbers;
  for (const std::string& word : split_list(text)) {
    int64_t number = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc() || stop != word.data() + word.size() || number < 1) {
      throw UserError({where, "not a list of numbers", "positive numbers such as 1,4,16", "'" + text + "'", ""});
    }
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace draftsmith::bench
