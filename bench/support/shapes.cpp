#include "bench/support/shapes.h"

#include <charconv>
#include <cmath>

#include "base/error.h"
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
