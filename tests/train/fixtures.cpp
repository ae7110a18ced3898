#include "tests/train/fixtures.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <iomanip>
#include <sstream>
#include <stdexcept>

#include <ATen/core/grad_mode.h>

#include "base/random.h"
#include "tests/support/models.h"
#include "tests/support/paths.h"
#include "tests/support/tensors.h"

namespace draftsmith::train {

model::TransformerConfig tiny_config() {
  model::TransformerConfig config = model::t5_config({.vocabulary = kTestVocabulary, .head_width = 6, .ff_width = 24});
  config.embedding_std = 0.1;
  return config;
}

void write_reversal_corpus(const std::filesystem::path& file, int64_t examples, uint64_t seed) {
  data::CorpusInfo info;
  info.tokenizer_hash = "none";
  info.vocabulary = kTestVocabulary;
  data::CorpusWriter writer(file, info);
  RandomSequence random{CounterRandom(seed, "reversal corpus")};
  for (int64_t i = 0; i < examples; ++i) {
    std::vector<int32_t> source;
    const uint64_t length = 1 + random.below(8);
    for (uint64_t t = 0; t < length; ++t) source.push_back(static_cast<int32_t>(3 + random.below(kTestVocabulary - 3)));
    std::vector<int32_t> target(source.rbegin(), source.rend());
    source.push_back(1);
    target.push_back(1);
    writer.add(source, target);
  }
  writer.finish();
}

TrainOptions tiny_options() {
  TrainOptions options;
  options.length = "2 epochs";
  options.accumulate = 2;
  options.dropout = 0.1;
  options.batches.token_budget = 60;
  options.batches.bucket_window = 4;
  options.optimizer.lr = 3e-3;
  options.schedule.name = "linear";
  options.schedule.warmup = "10 %";
  options.checkpoint_every = "3 steps";
  options.log_every = 2;
  return options;
}

TrainResult train_tiny(const std::filesystem::path& directory, const TrainOptions& options) {
  model::TransformerModel model(tiny_config(), 5);
  const data::Corpus corpus(directory.parent_path() / "train.h5");
  PlainTrainable trainable(model);
  return Trainer(TrainerInputs{.trainable = trainable, .corpus = corpus}, options, directory).run();
}

TrainResult train_tiny_validated(const std::filesystem::path& directory, const TrainOptions& options) {
  model::TransformerModel model(tiny_config(), 5);
  const data::Corpus corpus(directory.parent_path() / "train.h5");
  const data::Corpus validation(directory.parent_path() / "validation.h5");
  PlainTrainable trainable(model);
  return Trainer(TrainerInputs{.trainable = trainable, .corpus = corpus, .validation = &validation}, options, directory)
      .run();
}

std::string differences(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b,
                        double tolerance) {
  std::string names;
  for (const auto& [name, tensor] : a) {
    const at::Tensor& other = b.at(name);
    const double change = difference(tensor, other);
    if (change > tolerance * std::max(1e-12, largest(other))) {
      names += name + " (" + std::to_string(change) + ") ";
    }
  }
  return names;
}

at::Tensor numeric_gradient(at::Tensor x, const std::function<double()>& f) {
  const at::NoGradGuard no_grad;
  constexpr double kStep = 1e-5;
  at::Tensor gradient = at::zeros_like(x);
  auto* value = x.data_ptr<double>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double before = value[i];
    value[i] = before + kStep;
    const double above = f();
    value[i] = before - kStep;
    const double below = f();
    value[i] = before;
    gradient.data_ptr<double>()[i] = (above - below) / (2 * kStep);
  }
  return gradient;
}

std::optional<std::string> peers_python() {
  const std::string python = test::peers_python().string();
  if (!std::filesystem::exists(python)) return std::nullopt;
  return python;
}

std::string run_python(const std::string& script, const std::vector<std::string>& arguments) {
  std::ostringstream line;
  line << std::quoted(peers_python().value()) << ' '
       << std::quoted((test::source_dir() / "tests/train" / script).string());
  for (const std::string& argument : arguments) line << ' ' << std::quoted(argument);
  const std::string command = line.str();
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) throw std::runtime_error("cannot run " + command);
  std::string output;
  std::array<char, 4096> buffer{};
  while (const size_t count = fread(buffer.data(), 1, buffer.size(), pipe)) output.append(buffer.data(), count);
  if (pclose(pipe) != 0) throw std::runtime_error("failed: " + command);
  return output;
}

}  // namespace draftsmith::train
