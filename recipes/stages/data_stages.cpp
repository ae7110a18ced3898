#include "recipes/stages/data_stages.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "base/error.h"
#include "base/logging.h"
#include "data/corpus/prepare.h"
#include "data/ngrams/ngram_table.h"
#include "data/synthetic/synthetic.h"
#include "data/text/readers.h"
#include "data/tokenizers/sentencepiece.h"
#include "infer/load_models.h"
#include "model/files/model_directory.h"

namespace draftsmith::recipes {

std::string input_name(const StageContext& run, const std::string& option, const std::filesystem::path& path) {
  return run.options.contains(option) ? run.options.at(option).get<std::string>() : path.string();
}

void require_same_tokenizer(const std::string& expected, const std::string& found, const std::filesystem::path& where,
                            const std::string& hint) {
  if (found == expected) return;
  throw UserError({where.string(), "it was made with another tokenizer", "tokenizer " + expected.substr(0, 16),
                   "tokenizer " + found.substr(0, 16), hint});
}

std::unique_ptr<data::Tokenizer> load_model_tokenizer(const std::filesystem::path& model, const std::string& expected,
                                                      const data::Languages& languages) {
  const bool speaks = !languages.source_language.empty() || !languages.target_language.empty();
  if (!data::has_tokenizer(model) && !speaks) {
    log_warning("  {} has no tokenizer, so its token ids cannot be compared with the corpus's", model.string());
    return nullptr;
  }
  auto tokenizer = data::load_tokenizer(model, languages);
  require_same_tokenizer(expected, tokenizer->hash(), model,
                         "prepare tokenizer and corpora of the recipe with this model's own tokenizer");
  return tokenizer;
}

DecodedSources::DecodedSources(const data::Corpus& corpus, const model::ModelInfo& model,
                               const data::Tokenizer* tokenizer, int64_t prompt_tokens)
    : corpus_(corpus), prompt_tokens_(model.encoder_decoder ? 0 : prompt_tokens) {
  if (tokenizer != nullptr) before_ = tokenizer->frame().before;
  throw_problems_of(data::check_form, corpus, model.encoder_decoder);
}

std::vector<int32_t> DecodedSources::operator()(int64_t example) const {
  const auto source = corpus_.source(example);
  const auto text = corpus_.target(example);
  const auto most = static_cast<int64_t>(text.size()) - 1;  // not the EOS
  const int64_t count = std::min(prompt_tokens_, most);
  if (!source.empty() || count <= 0) return {source.begin(), source.end()};
  std::vector<int32_t> prompt = before_;
  prompt.insert(prompt.end(), text.begin(), text.begin() + count);
  return prompt;
}

std::vector<std::vector<int64_t>> DecodedSources::of_range(int64_t first, int64_t last) const {
  std::vector<std::vector<int64_t>> sources;
  for (int64_t i = first; i < last; ++i) {
    const std::vector<int32_t> source = (*this)(i);
    sources.emplace_back(source.begin(), source.end());
  }
  return sources;
}

void DecodedSources::require_fit(const infer::Generator& generator, int64_t count) const {
  constexpr int64_t kAtOnce = 4096;
  for (int64_t first = 0; first < count; first += kAtOnce) {
    try {
      generator.fit(of_range(first, std::min(count, first + kAtOnce)), static_cast<uint64_t>(first));
    } catch (const UserError& error) {
      Problem problem = error.problems().front();
      problem.where = corpus_.file().string() + ", " + problem.where;
      if (problem.hint.find("--long-prompts") != std::string::npos) {
        problem.hint =
            data::is_plain_text(corpus_.info()) ? "lower prompt_tokens" : "give the corpus max_source and too_long";
      }
      throw UserError(problem);
    }
  }
}

Fields<DecodingOptions> DecodingOptions::fields() {
  using D = DecodingOptions;
  return Fields<D>("decoding of a corpus")
      .add("model", &D::model, Required{}, "Model directory of the target.")
      .add("corpus", &D::corpus, Required{}, "Corpus whose sources to decode.")
      .add("limit", &D::limit, Range{0}, Unit{"examples"}, "Number of sources to decode, from the first; 0: all.")
      .add("prompt_tokens", &D::prompt_tokens, Range{0, 1 << 20}, Unit{"tokens"},
           "Decoder-only models: number of first tokens of plain text that become its prompt, which is the example's "
           "source. 0: outputs begin with the start token, for sampled ones only.")
      .add("max_new_tokens", &D::max_new_tokens, Range{1}, Unit{"tokens"},
           "Length of the longest output; longer ones are cut.")
      .add("temperature", &D::temperature, Range{0, 1000}, "Temperature of sampling; 0: greedy outputs.")
      .add("seed", &D::seed, "Seed of sampling.")
      .add("dtype", &D::dtype, Choices{"fp32", "bf16", "fp16", "fp64"}, "Number type of the models.")
      .add("batch_size", &D::batch_size, Range{1, 4096}, Unit{"rows"}, "Sources decoded together, sorted by length.")
      .inherit<data::Languages>();
}

int64_t DecodingOptions::count(const data::Corpus& inputs) const {
  return limit > 0 ? std::min(limit, inputs.size()) : inputs.size();
}

infer::DecodeOptions DecodingOptions::decoding(const std::string& method) const {
  infer::DecodeOptions decode;
  decode.method = method;
  decode.temperature = temperature;
  decode.top_k = 0;
  decode.top_p = 1;
  decode.min_p = 0;
  decode.seed = seed;
  decode.max_new_tokens = max_new_tokens;
  decode.batch_size = batch_size;
  return decode;
}

std::map<std::string, std::string> DecodingOptions::provenance() const {
  std::map<std::string, std::string> entries{
      {"temperature", fmt::format("{}", temperature)}, {"seed", fmt::format("{}", seed)}, {"dtype", dtype}};
  if (!source_language.empty()) entries["source_language"] = source_language;
  if (!target_language.empty()) entries["target_language"] = target_language;
  return entries;
}

void DecodingOptions::require_prompts(const data::Corpus& inputs) const {
  if (!data::is_plain_text(inputs.info()) || prompt_tokens > 0 || temperature > 0) return;
  throw UserError({"prompt_tokens",
                   "from plain text without prompts, greedy decoding would write the same output for every example",
                   "1 token or more, or a temperature above 0",
                   fmt::format("0, and {} without sources", inputs.file().string()), ""});
}

void DecodingOptions::require_languages(const data::Corpus& inputs, const data::Tokenizer* tokenizer) const {
  if (tokenizer == nullptr) return;
  const data::LanguageFrames frames = tokenizer->frames();
  const bool in_sources = !target_language.empty() && !frames.forced_bos;
  if (source_language.empty() && !in_sources) return;
  const std::vector<int32_t>& before = frames.source.before;
  for (int64_t i = 0; i < count(inputs); ++i) {
    const auto source = inputs.source(i);
    const bool begins = source.size() >= before.size() && std::equal(before.begin(), before.end(), source.begin());
    if (source.empty() || begins) continue;
    throw UserError({fmt::format("{}: example {}", inputs.file().string(), i),
                     "the source has no token of the language that is asked for",
                     fmt::format("{} first", tokenizer->piece(before.front())), tokenizer->piece(source.front()),
                     "prepare the corpus with the same source_language and target_language"});
  }
}

model::GenerationConfig DecodingOptions::settings(const data::Tokenizer* tokenizer) const {
  model::GenerationConfig settings = model::read_settings(model).generation;
  if (tokenizer != nullptr) infer::force_target_language(*tokenizer, settings);
  return settings;
}

namespace {

struct CorpusOptions : data::TextInput, data::TextPolicies, data::PrepareOptions, data::Languages {
  std::filesystem::path tokenizer;

  static Fields<CorpusOptions> fields() {
    return Fields<CorpusOptions>("corpus stage (kind = \"corpus\"): makes corpus.h5")
        .add("tokenizer", &CorpusOptions::tokenizer, Required{}, "Tokenizer file, or a directory with one.")
        .inherit<data::TextInput>()
        .inherit<data::TextPolicies>()
        .inherit<data::PrepareOptions>()
        .inherit<data::Languages>()
        .check([](const CorpusOptions& options, const std::string& where, Problems& problems) {
          if (options.dataset.empty()) data::check_text(options, where, problems);
        });
  }
};

void run_corpus(const CorpusOptions& options, const StageContext& run) {
  const auto tokenizer = data::load_tokenizer(options.tokenizer, options);
  const data::TextInput input = data::with_template_of(options.tokenizer, options);
  const auto stream = data::open_text(input, options, options.prompts);
  data::PrepareOptions prepare = options;
  prepare.prompts = prepare.prompts || !input.messages.empty();
  Progress progress({.title = "tokenizing",
                     .unit = "examples",
                     .total = input.separator.empty() ? data::count_lines(stream->files().front()) : 0},
                    "the corpus was not written");
  const auto report = data::prepare_corpus(*stream, *tokenizer, prepare, run.directory / "corpus.h5",
                                           [&](int64_t examples) { progress.advance(examples); });
  progress.finish();
  std::string text = fmt::format("{} examples, {} source and {} target tokens", report.written, report.source_tokens,
                                 report.target_tokens);
  for (const auto& [name, count] : report.counts) text += fmt::format("\n  {}: {}", name, count);
  log_info("  {}", text);
}

void run_language(const data::SyntheticOptions& options, const StageContext& run) {
  Progress work({.title = "writing the language"}, "run the recipe again to write it from the beginning");
  data::write_synthetic(options, run.directory);
}

struct NgramStageOptions : data::NgramOptions {
  std::filesystem::path corpus;

  static Fields<NgramStageOptions> fields() {
    return Fields<NgramStageOptions>("ngram stage (kind = \"ngram\"): makes ngram.h5")
        .add("corpus", &NgramStageOptions::corpus, Required{}, "Corpus whose targets to count.")
        .inherit<data::NgramOptions>();
  }
};

// Starts from the beginning after an interruption, since counting takes seconds.
void run_ngram(const NgramStageOptions& options, const StageContext& run) {
  Progress progress({.title = "counting", .unit = "examples", .total = data::read_corpus_info(options.corpus).examples},
                    "run the recipe again to count from the beginning");
  const auto report = data::build_ngram_table(options.corpus, options, run.directory / "ngram.h5",
                                              [&](int64_t examples) { progress.advance(examples); });
  progress.finish();
  log_info("  {}", report);
}

struct TokenizerStageOptions : data::TokenizerOptions {
  std::vector<std::filesystem::path> input;
  std::vector<std::filesystem::path> jsonl;
  std::vector<std::string> fields_of_jsonl;

  static Fields<TokenizerStageOptions> fields() {
    return Fields<TokenizerStageOptions>("tokenizer stage (kind = \"tokenizer\"): makes spiece.model")
        .add("input", &TokenizerStageOptions::input, "Text files to train on, one sentence a line.")
        .add("jsonl", &TokenizerStageOptions::jsonl, "jsonl files to train on, in addition to or in place of `input`.")
        .add("fields", &TokenizerStageOptions::fields_of_jsonl, "Fields of the jsonl objects that contain text.")
        .inherit<data::TokenizerOptions>()
        .check([](const TokenizerStageOptions& options, const std::string& where, Problems& problems) {
          if (options.input.empty() && options.jsonl.empty()) {
            problems.add({where, "no text to train on", "`input`, or `jsonl` and `fields`", "", ""});
          }
          if (!options.jsonl.empty() && options.fields_of_jsonl.empty()) {
            problems.add({where, "jsonl without the names of its text fields", "`fields`", "", ""});
          }
        });
  }
};

void add_lines(const std::string& text, std::vector<std::string>& lines) {
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
}

std::vector<std::string> all_lines(const TokenizerStageOptions& options) {
  std::vector<std::string> lines = data::read_lines(options.input);
  for (const auto& file : options.jsonl) {
    const data::JsonFields fields{.source = "", .targets = options.fields_of_jsonl, .separator = "\n"};
    const auto stream = data::open_jsonl(file, fields, {.empty = "keep"});
    for (data::Example example; stream->next(example);) {
      for (const std::string& text : example.targets) add_lines(text, lines);
    }
  }
  return lines;
}

void run_tokenizer(const TokenizerStageOptions& options, const StageContext& run) {
  Progress work({.title = "training the tokenizer"}, "run the recipe again to train the tokenizer from the beginning");
  const auto report = data::train_tokenizer(all_lines(options), options, run.directory / "spiece.model");
  log_info("  {} pieces from {} lines", report.vocabulary, report.lines);
  for (const auto& [name, count] : report.unused) log_info("  {}: {}", name, count);
}

}  // namespace

std::vector<StageKind> data_stages() {
  return {make_stage_kind<data::SyntheticOptions>("language", 1, run_language),
          make_stage_kind<TokenizerStageOptions>("tokenizer", 2, run_tokenizer),
          make_stage_kind<CorpusOptions>("corpus", 3, run_corpus),
          make_stage_kind<NgramStageOptions>("ngram", 2, run_ngram)};
}

}  // namespace draftsmith::recipes
