// Training speed of distillation from a live teacher and from stored caches, beside cross entropy: the shapes of
// recipes/multi30k_distill.toml (student 4+1 layers, teacher 4+6, both d 256, V 4,000) with random weights.
//
//   bench_distillation_speed [--steps 10] [--rows 64] [--tokens 20] [--vocabulary 4000] [--k 32] [--threads 2]
//
// Prints JSON: labels per second of each, in turns in one process, the first round left out, and the ratios to the live
// teacher's.
#include <iostream>
#include <map>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/device.h"
#include "base/files.h"
#include "base/random.h"
#include "base/timing.h"
#include "tests/support/models.h"
#include "train/memory.h"
#include "train/teacher/cached_teacher.h"
#include "train/training_step.h"

namespace {

using namespace draftsmith;

struct Settings {
  int64_t steps = 10;
  int64_t rows = 64;
  int64_t tokens = 20;
  int64_t vocabulary = 4000;
  int64_t k = 32;
  int64_t threads = 2;
};

model::TransformerConfig shape(const Settings& settings, int64_t decoder_layers) {
  return model::t5_config({.vocabulary = settings.vocabulary,
                           .width = 256,
                           .heads = 8,
                           .head_width = 32,
                           .ff_width = 1024,
                           .encoder_layers = 4,
                           .decoder_layers = decoder_layers});
}

void write_random_corpus(const std::filesystem::path& file, const Settings& settings) {
  data::CorpusInfo info;
  info.tokenizer_hash = "none";
  info.vocabulary = settings.vocabulary;
  data::CorpusWriter writer(file, info);
  RandomSequence random{CounterRandom(1, "bench")};
  const auto row = [&] {
    std::vector<int32_t> ids;
    for (int64_t t = 0; t < settings.tokens; ++t) {
      ids.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(settings.vocabulary))));
    }
    return ids;
  };
  for (int64_t i = 0; i < settings.rows; ++i) writer.add(row(), row());
  writer.finish();
}

data::TeacherCache make_cache(const std::filesystem::path& file, model::TransformerModel& teacher,
                              const data::Corpus& corpus, int64_t k) {
  const train::StoredRows rows =
      train::TeacherLogits(teacher, corpus, {.k = k}, 4096).rows(0, corpus.size(), [](int64_t) {});
  data::TeacherCacheWriter writer(file, {.k = k,
                                         .vocabulary = teacher.info().vocabulary,
                                         .positions = corpus.info().target_tokens,
                                         .tokenizer_hash = "none",
                                         .corpus_hash = data::corpus_hash(corpus)});
  for (const data::TeacherRows& example : train::by_example(rows, corpus, 0, corpus.size())) writer.add(example);
  writer.finish();
  return data::TeacherCache(file);
}

nlohmann::json measure(const Settings& settings) {
  const TemporaryDirectory folder;
  write_random_corpus(folder / "corpus.h5", settings);
  const data::Corpus corpus(folder / "corpus.h5");
  model::TransformerModel student(shape(settings, 1), 1), teacher(shape(settings, 6), 2);
  student.requires_grad(true);
  teacher.pack();
  train::PlainTrainable trainable(student);
  train::LiveTeacher live(teacher);
  train::CachedTeacher cached(make_cache(folder / "k.h5", teacher, corpus, settings.k)),
      whole(make_cache(folder / "whole.h5", teacher, corpus, settings.vocabulary));
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < settings.rows; ++i) rows.push_back(i);

  std::map<std::string, std::unique_ptr<train::Objective>> objectives;
  objectives["cross_entropy"] = train::make_objective({});
  const train::ObjectiveOptions distill{.name = "distill"};
  objectives["live"] = train::make_objective(distill, {&trainable, &corpus, &live});
  objectives["cache"] = train::make_objective(distill, {&trainable, &corpus, &cached});
  objectives["whole_cache"] = train::make_objective(distill, {&trainable, &corpus, &whole});
  std::map<std::string, double> seconds;
  for (int64_t step = 0; step <= settings.steps; ++step) {
    for (const auto& [name, objective] : objectives) {
      const Stopwatch watch;
      train::accumulate_gradients(trainable, *objective, corpus, {rows}, {.dropout = 0.1});
      if (step > 0) seconds[name] += watch.seconds();
      for (const auto& [parameter, value] : student.parameters()) at::Tensor(value).mutable_grad().reset();
    }
  }
  nlohmann::json result;
  for (const auto& [name, spent] : seconds) {
    result[name] = {{"labels_per_second", static_cast<double>(settings.steps * corpus.info().target_tokens) / spent},
                    {"times_live", seconds.at("live") / spent}};
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Distillation from a live teacher and from caches");
  app.add_option("--steps", settings.steps);
  app.add_option("--rows", settings.rows);
  app.add_option("--tokens", settings.tokens);
  app.add_option("--vocabulary", settings.vocabulary);
  app.add_option("--k", settings.k);
  app.add_option("--threads", settings.threads);
  CLI11_PARSE(app, argc, argv);
  train::keep_freed_memory();
  set_threads(settings.threads);
  std::cout << measure(settings).dump(2) << "\n";
}
