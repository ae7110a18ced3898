// kind = "teacher-outputs" writes the target's outputs for calibration inputs, the corpus of prediction alignment (BiLD
// §3.4: the small model learns the large one's predictions), corpus.h5. kind = "teacher-logits" stores the teacher's
// next-token distributions for a corpus's targets, so that students are distilled without running the teacher,
// and its states: teacher_logits.h5 (data/teacher/teacher_cache.h). Both go on with the missing shards.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/device.h"
#include "base/device_tensors.h"
#include "base/error.h"
#include "base/files.h"
#include "base/logging.h"
#include "base/signals.h"
#include "data/corpus/corpus.h"
#include "data/hdf5/shards.h"
#include "data/teacher/teacher_cache.h"
#include "data/tokenizers/tokenizer.h"
#include "distributed/process_group.h"
#include "infer/generator.h"
#include "model/files/model_directory.h"
#include "model/models/feature_drafter.h"
#include "recipes/stage.h"
#include "recipes/stages/data_stages.h"
#include "train/teacher/cached_teacher.h"
#include "train/training_step.h"

namespace draftsmith::recipes {
namespace {

// Hint of an Interrupted while a file of shards is made.
constexpr const char* kShardsSaved = "whole shards are saved; run it again to continue";

// Returns the leader's ranges: another process may have looked while there were more or fewer files.
std::vector<data::ShardRange> leaders(ProcessGroup& world, const std::vector<data::ShardRange>& own) {
  nlohmann::json told = nlohmann::json::array();
  for (const data::ShardRange& range : own) told.push_back(nlohmann::json::array({range.first, range.last}));
  std::vector<data::ShardRange> ranges;
  for (const auto& one : nlohmann::json::parse(world.from_leader("finding the missing shards", told.dump()))) {
    ranges.push_back({one.at(0).get<int64_t>(), one.at(1).get<int64_t>()});
  }
  return ranges;
}

// Writes the missing shards, which the processes divide among themselves: all call it, and it returns when all shards
// are written; the leader's ranges count. A process alone shows progress in `write`, several show whole shards, each of
// `size`. Errors: those of `write`, Interrupted, and as ProcessGroup::gather().
void write_missing(const StageContext& run, data::Shards& shards, const std::vector<data::ShardRange>& missing,
                   Progress& progress, const std::function<void(const data::ShardRange&)>& write,
                   const std::function<int64_t(const data::ShardRange&)>& size) {
  ProcessGroup& world = *run.execution.world;
  const std::vector<data::ShardRange> ranges = leaders(world, missing);
  world.gather_parts("the shards of " + run.directory.filename().string(), [&]() -> nlohmann::json {
    for (size_t i = 0; i < ranges.size(); ++i) {
      if (!world.has(static_cast<int64_t>(i))) continue;
      throw_if_stop_requested(kShardsSaved);
      const LongWork work(kShardsSaved, [&] { progress.tick(); });
      write(ranges[i]);
      if (world.is_alone()) continue;
      const size_t end = std::min(ranges.size(), i + static_cast<size_t>(world.size()));
      for (size_t k = i; k < end; ++k) progress.advance(size(ranges[k]));
    }
    return true;
  });
  for (const data::ShardRange& range : ranges) shards.add(range);
  progress.finish();
}

struct TeacherOutputsOptions : DecodingOptions {
  int64_t shard_examples = 512;
  static Fields<TeacherOutputsOptions> fields();
};

Fields<TeacherOutputsOptions> TeacherOutputsOptions::fields() {
  using T = TeacherOutputsOptions;
  return Fields<T>("teacher outputs stage (kind = \"teacher-outputs\"): makes corpus.h5")
      .inherit<DecodingOptions>()
      .add("shard_examples", &T::shard_examples, Range{1}, Unit{"examples"}, NoResult{},
           "Number of outputs written at once; a killed run loses at most these. Outputs of a shard are decoded "
           "together, so in bf16 and fp16 another number may change a token where two are almost equally likely.");
}

// Returns the hash of the input that input_name() names.
std::string hash_of(const StageContext& run, const std::string& name) {
  const auto input = run.inputs.find(name.substr(0, name.starts_with('@') ? name.find('/') : std::string::npos));
  return input == run.inputs.end() ? "unknown" : input->second;
}

data::CorpusInfo output_info(const data::Corpus& inputs, const TeacherOutputsOptions& options,
                             const StageContext& run) {
  const std::string teacher = input_name(run, "model", options.model);
  const std::string sources = input_name(run, "corpus", options.corpus);
  data::CorpusInfo info;
  info.tokenizer_hash = inputs.info().tokenizer_hash;
  info.vocabulary = inputs.info().vocabulary;
  info.provenance = options.provenance();
  info.provenance.merge(
      std::map<std::string, std::string>{{data::kJob, run.identity},
                                         {"teacher", teacher},
                                         {"teacher_hash", hash_of(run, teacher)},
                                         {"calibration_inputs", sources},
                                         {"calibration_inputs_hash", hash_of(run, sources)},
                                         {"prompts", data::continues_prompts(inputs.info()) ? "true" : "false"},
                                         {"max_new_tokens", fmt::format("{}", options.max_new_tokens)}});
  if (data::is_plain_text(inputs.info())) info.provenance["prompt_tokens"] = fmt::format("{}", options.prompt_tokens);
  return info;
}

// Makes the one file of a stage's shards, unless it was made before, and removes them.
void merge_shards(data::Shards& shards, const std::function<void()>& merge) {
  Progress work({.title = "merging shards"}, kShardsSaved);
  if (!shards.merged()) merge();
  shards.remove();
}

// Decodes the sources of a range with the teacher and adds them with their outputs.
class OutputWriter {
 public:
  OutputWriter(const TeacherOutputsOptions& options, const StageContext& run, const data::Corpus& inputs)
      : limit_(options.max_new_tokens),
        vocabulary_(inputs.info().vocabulary),
        tokenizer_(load_model_tokenizer(options.model, inputs.info().tokenizer_hash, options)),
        teacher_(model::load_model(
            options.model, {.device = choose_device(run.execution.device), .dtype = parse_dtype(options.dtype)})),
        settings_(options.settings(tokenizer_.get())),
        generator_({.target = teacher_.get(), .generation = settings_, .target_tokenizer = tokenizer_.get()},
                   options.decoding(infer::baseline_method(options.temperature).name)),
        sources_(inputs, teacher_->info(), tokenizer_.get(), options.prompt_tokens) {
    options.require_languages(inputs, tokenizer_.get());
    sources_.require_fit(generator_, options.count(inputs));
  }

  // Returns whether an output reached max_new_tokens without an end.
  bool is_cut(std::span<const int32_t> ids) const {
    if (static_cast<int64_t>(ids.size()) < limit_) return false;
    const auto& ends = settings_.eos_ids;
    return std::find(ends.begin(), ends.end(), ids.back()) == ends.end();
  }

  void add(const data::ShardRange& range, data::CorpusWriter& shard, const infer::OnTokens& on_tokens) {
    const auto results = generator_.generate(sources_.of_range(range.first, range.last),
                                             static_cast<uint64_t>(range.first), {}, on_tokens);
    infer::throw_if_failed(results);
    for (int64_t i = range.first; i < range.last; ++i) {
      const auto& output = results[static_cast<size_t>(i - range.first)].ids;
      std::vector<int32_t> ids(output.begin(), output.end());
      foreign_ += static_cast<int64_t>(std::erase_if(ids, [&](int32_t id) { return id >= vocabulary_; }));
      shard.add(sources_(i), ids);
    }
  }

  // Returns the ids of this process's outputs that the corpus's tokenizer does not have, which are omitted.
  int64_t foreign() const { return foreign_; }

 private:
  int64_t limit_;
  int64_t vocabulary_;
  std::unique_ptr<data::Tokenizer> tokenizer_;  // null if the directory has none
  std::unique_ptr<model::TransformerModel> teacher_;
  model::GenerationConfig settings_;
  infer::Generator generator_;
  DecodedSources sources_;
  int64_t foreign_ = 0;
};

void run_teacher_outputs(const TeacherOutputsOptions& options, const StageContext& run) {
  const data::Corpus inputs(options.corpus);
  options.require_prompts(inputs);
  OutputWriter outputs(options, run, inputs);
  const int64_t count = options.count(inputs);
  data::CorpusInfo info = output_info(inputs, options, run);
  const std::filesystem::path file = run.directory / "corpus.h5";
  data::Shards shards(file, count, run.identity, [](const std::filesystem::path& part) {
    const data::Corpus corpus(part);
    return data::Shards::Content{corpus.info().provenance, corpus.size()};
  });
  Progress progress({.title = "teacher outputs", .unit = "outputs", .total = count, .done_before = shards.safe()});
  const bool alone = run.execution.world->is_alone();
  const auto count_ended = [&](auto, const auto&, bool ended) {
    if (alone && ended) progress.advance(1);
  };
  const auto write = [&](const data::ShardRange& range) {
    data::CorpusWriter shard(shards.place(range), info);
    outputs.add(range, shard, count_ended);
    shard.finish();
  };
  write_missing(run, shards, shards.missing(options.shard_examples), progress, write,
                [](const data::ShardRange& range) { return range.size(); });
  if (outputs.foreign() > 0) log_warning("  {} ids that the tokenizer does not have were omitted", outputs.foreign());
  if (!run.execution.world->leads()) return;
  int64_t cut = 0;
  for (const std::filesystem::path& part : shards.parts()) {
    const data::Corpus corpus(part);
    for (int64_t i = 0; i < corpus.size(); ++i) cut += outputs.is_cut(corpus.target(i)) ? 1 : 0;
  }
  info.provenance["count: outputs cut at max_new_tokens"] = fmt::format("{}", cut);
  merge_shards(shards, [&] { data::merge_corpora(shards.parts(), file, info); });
  if (cut > 0) log_warning("  {} outputs reached max_new_tokens = {}", cut, options.max_new_tokens);
}

// Limit of a shard, which stays in memory until it is written. Whole distributions of large vocabularies reach it.
constexpr uint64_t kMostShardBytes = uint64_t{256} << 20;

struct TeacherLogitsOptions {
  std::filesystem::path model;
  std::filesystem::path corpus;
  int64_t k = 32;
  double temperature = 1.0;
  bool states = false;
  std::vector<int64_t> layers;
  std::string dtype = "fp32";
  int64_t batch_tokens = 4096;
  int64_t shard_examples = 2048;
  static Fields<TeacherLogitsOptions> fields();
};

Fields<TeacherLogitsOptions> TeacherLogitsOptions::fields() {
  using T = TeacherLogitsOptions;
  return Fields<T>("teacher logits stage (kind = \"teacher-logits\"): makes teacher_logits.h5")
      .add("model", &T::model, Required{}, "Model directory of the teacher.")
      .add("corpus", &T::corpus, Required{}, "Corpus that students will be trained on.")
      .add(
          "k", &T::k, Range{0}, Unit{"ids"},
          "Number of most likely ids to store for each target token, beside the token itself and the mass of the rest: "
          "6k + 4 bytes a token. 0: the whole vocabulary V, 2V bytes a token.")
      .add(
          "temperature", &T::temperature, Range{0.01, 100},
          "Temperature T of the stored probabilities, softmax(logits / T). If k is below V, it must be the objective's "
          "temperature, since the mass of the rest fits one temperature only; whole distributions fit every one.")
      .add("states", &T::states,
           "Also store, in bf16, the teacher's hidden states that features drafters read: for each token that its "
           "decoder reads, prompts included, 2 bytes times width and layers; of encoder-decoders the encoder's, too.")
      .add("layers", &T::layers, Range{0},
           "Layers of those states, which `features` of the train stage reads (implies `states`). Absent: a low one, "
           "the middle and the last.")
      .add("dtype", &T::dtype, Choices{"fp32", "bf16", "fp16", "fp64"}, "Number type of the teacher.")
      .add("batch_tokens", &T::batch_tokens, Range{1, 1 << 24}, Unit{"tokens"},
           "Most tokens that the teacher reads at once, with padding; a shard's examples are sorted by length.")
      .add("shard_examples", &T::shard_examples, Range{1}, Unit{"examples"},
           "Number of examples written at once; a killed run loses at most these. A shard takes at most 256 MB.");
}

data::TeacherCacheInfo cache_info(const TeacherLogitsOptions& options, const data::Corpus& corpus,
                                  const model::TransformerConfig& teacher, const StageContext& run) {
  data::StateForm states{.width = teacher.width};
  if (options.states || !options.layers.empty()) {
    states.layers = model::feature_config(teacher, {.layers = options.layers}, "layers").features.layers;
  }
  return {.k = options.k == 0 ? teacher.vocabulary : options.k,
          .vocabulary = teacher.vocabulary,
          .temperature = options.temperature,
          .tokenizer_hash = corpus.info().tokenizer_hash,
          .teacher_hash = model::model_hash(options.model),
          .corpus_hash = data::corpus_hash(corpus),
          .provenance = {{data::kJob, run.identity},
                         {"teacher", input_name(run, "model", options.model)},
                         {"corpus", input_name(run, "corpus", options.corpus)},
                         {"dtype", options.dtype}},
          .states = std::move(states)};
}

int64_t target_tokens(const data::Corpus& corpus, const data::ShardRange& range) {
  int64_t tokens = 0;
  for (int64_t i = range.first; i < range.last; ++i) tokens += static_cast<int64_t>(corpus.target(i).size());
  return tokens;
}

// Logs the size of the cache. Throws UserError if it does not fit on the disk beside the shards that are not missing.
void announce(const data::TeacherCacheInfo& info, const data::Corpus& corpus, const std::filesystem::path& directory,
              const train::TeacherLogits& logits, const std::vector<data::ShardRange>& missing) {
  const uint64_t bytes = logits.bytes(0, corpus.size());
  uint64_t wanted = bytes;  // of the merged file and the missing shards
  for (const data::ShardRange& shard : missing) wanted += logits.bytes(shard.first, shard.last);
  log_info("  {} of {} ids for each of {} target tokens: {} bytes a token", info.k, info.vocabulary,
           corpus.info().target_tokens, info.bytes_per_position());
  if (info.states.any()) {
    log_info("  states of layers {}: {} bytes for each token that the decoder reads, {} for one of an encoder",
             fmt::join(info.states.layers, ", "), 2 * info.states.columns(), 2 * info.states.width);
  }
  log_info("  {} in all, and as much again while shards are merged", human_bytes(bytes));
  if (const uint64_t free = disk_free(directory); wanted > free) {
    throw UserError({.where = directory.string(),
                     .what = "the teacher cache does not fit on this disk",
                     .expected = fmt::format("{}, of which {} stay", human_bytes(wanted), human_bytes(bytes)),
                     .found = human_bytes(free) + " free",
                     .hint = "store fewer ids (k) or layers of states, or put --work on another disk"});
  }
}

// Cuts the missing ranges into shards that are no longer than the limit, of one example at least.
std::vector<data::ShardRange> shards_to_write(const train::TeacherLogits& logits,
                                              const std::vector<data::ShardRange>& missing) {
  std::vector<data::ShardRange> shards;
  for (const data::ShardRange& range : missing) {
    uint64_t bytes = 0;
    for (int64_t i = range.first; i < range.last; ++i) {
      const uint64_t more = logits.bytes(i, i + 1);
      if (i == range.first || bytes + more > kMostShardBytes) {
        shards.push_back({i, i});
        bytes = 0;
      }
      shards.back().last = i + 1;
      bytes += more;
    }
  }
  return shards;
}

void write_shards(model::TransformerModel& teacher, const TeacherLogitsOptions& options, const data::Corpus& corpus,
                  const data::TeacherCacheInfo& info, const StageContext& run, data::Shards& shards) {
  train::TeacherLogits logits(teacher, corpus, info, options.batch_tokens);
  const auto missing = shards_to_write(logits, shards.missing(options.shard_examples));
  int64_t done = corpus.info().target_tokens;
  for (const data::ShardRange& shard : missing) done -= target_tokens(corpus, shard);
  announce(info, corpus, run.directory, logits, missing);
  Progress progress(
      {.title = "teacher logits", .unit = "tokens", .total = corpus.info().target_tokens, .done_before = done});
  const bool alone = run.execution.world->is_alone();
  const auto on_positions = [&](int64_t positions) {
    if (alone) progress.advance(positions);
  };
  const auto write = [&](const data::ShardRange& shard) {
    const train::StoredRows rows = logits.rows(shard.first, shard.last, on_positions);
    data::write_teacher_cache(shards.place(shard), info, rows.by_example(corpus, shard.first, shard.last));
  };
  write_missing(run, shards, missing, progress, write,
                [&](const data::ShardRange& shard) { return target_tokens(corpus, shard); });
}

void run_teacher_logits(const TeacherLogitsOptions& options, const StageContext& run) {
  const data::Corpus corpus(options.corpus);
  load_model_tokenizer(options.model, corpus.info().tokenizer_hash);
  const at::Device device = choose_device(run.execution.device);
  // Whole texts are faster by the products of training than by packed weights, which are for steps.
  const bool by_pairs = options.dtype == "bf16" && train::trains_in_bf16("auto", device);
  const at::ScalarType dtype = by_pairs ? at::kFloat : parse_dtype(options.dtype);
  const auto teacher = model::load_model(options.model, {.device = device, .dtype = dtype, .pack = !by_pairs});
  const AutocastScope products(device.type(), by_pairs);
  const data::TeacherCacheInfo info = cache_info(options, corpus, teacher->config(), run);
  const std::filesystem::path file = run.directory / "teacher_logits.h5";
  data::Shards shards(file, corpus.size(), run.identity, [](const std::filesystem::path& part) {
    const data::TeacherCache cache(part);
    return data::Shards::Content{cache.info().provenance, cache.info().examples};
  });
  if (!shards.merged()) write_shards(*teacher, options, corpus, info, run, shards);
  if (!run.execution.world->leads()) return;
  merge_shards(shards, [&] { data::merge_teacher_caches(shards.parts(), file, info); });
}

std::string short_hash(const std::string& hash) {
  return hash.substr(0, 16);
}

std::string named(const data::TeacherCacheInfo& info, const char* key) {
  const auto found = info.provenance.find(key);
  return found == info.provenance.end() ? "one that the cache does not name" : found->second;
}

}  // namespace

data::TeacherCache open_teacher_cache(const std::filesystem::path& file, const data::Corpus& corpus,
                                      const std::optional<std::filesystem::path>& teacher) {
  data::TeacherCache cache(file);
  const data::TeacherCacheInfo& info = cache.info();
  Problems problems;
  const auto add = [&](const char* what, std::string expected, std::string found, const char* hint) {
    problems.add({file.string(), what, std::move(expected), std::move(found), hint});
  };
  if (info.tokenizer_hash != corpus.info().tokenizer_hash) {
    add("the teacher cache was made with another tokenizer than the corpus",
        fmt::format("tokenizer {} of {}", short_hash(corpus.info().tokenizer_hash), corpus.file().string()),
        "tokenizer " + short_hash(info.tokenizer_hash),
        "make the cache from this corpus, with a teacher that has the corpus's tokenizer");
  }
  if (const std::string hash = data::corpus_hash(corpus); info.corpus_hash != hash) {
    add("the teacher cache was made from another corpus",
        fmt::format("{} ({}, {} target tokens)", corpus.file().string(), short_hash(hash), corpus.info().target_tokens),
        fmt::format("{} ({}, {} positions)", named(info, "corpus"), short_hash(info.corpus_hash), info.positions),
        "set `corpus` of the teacher-logits stage to the training corpus");
  }
  if (teacher) require_teacher(cache, *teacher, problems);
  problems.throw_if_any();
  const int64_t most = std::min(info.examples, corpus.size());
  int64_t fitting = 0;
  while (fitting < most && cache.positions(fitting) == std::ssize(corpus.target(fitting))) ++fitting;
  if (info.examples == corpus.size() && fitting == corpus.size()) return cache;
  throw UserError({file.string(), "the teacher cache is damaged: its positions are not those of the corpus",
                   fmt::format("{} examples", corpus.size()), fmt::format("the first {} alone fit", fitting),
                   "remove the stage's directory, and run the recipe again"});
}

void require_teacher(const data::TeacherCache& cache, const std::filesystem::path& teacher, Problems& problems) {
  const data::TeacherCacheInfo& info = cache.info();
  const std::string hash = model::model_hash(teacher);
  if (info.teacher_hash == hash) return;
  problems.add({cache.file().string(), "the teacher cache was made by another teacher",
                fmt::format("{} ({})", teacher.string(), short_hash(hash)),
                fmt::format("{} ({})", named(info, "teacher"), short_hash(info.teacher_hash)),
                "set `teacher` to the model of the teacher-logits stage, or omit it"});
}

std::vector<StageKind> teacher_stages() {
  return {make_stage_kind<TeacherOutputsOptions>("teacher-outputs", 1, run_teacher_outputs, Processes::kAll),
          make_stage_kind<TeacherLogitsOptions>("teacher-logits", 1, run_teacher_logits, Processes::kAll)};
}

}  // namespace draftsmith::recipes
