#include "recipes/export/export_model.h"

#include <limits>
#include <memory>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/child_process.h"
#include "base/device.h"
#include "base/environment.h"
#include "base/files.h"
#include "base/logging.h"
#include "base/signals.h"
#include "data/chat/chat_template.h"
#include "data/tokenizers/bpe.h"
#include "data/tokenizers/sentencepiece.h"
#include "data/tokenizers/tokenizer.h"
#include "data/tokenizers/tokenizer_files.h"
#include "model/families/family.h"
#include "model/files/checkpoint.h"
#include "model/layers/rotary.h"
#include "model/models/exits.h"
#include "model/models/feature_drafter.h"
#include "model/transformer/parameters.h"
#include "recipes/inspection.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGgufFormat = "gguf";
constexpr const char* kBlockType = "q8_0";  // --dtype of GGUF's blocks
constexpr int64_t kBlockValues = 32;

std::string decoder_only_families() {
  std::string names;
  for (const model::Family& family : model::families()) {
    if (!family.base.encoder_decoder) names += (names.empty() ? "" : ", ") + family.name;
  }
  return names;
}

// Adds a problem for each reason why vLLM's draft models cannot be this one: they are decoder-only and have as many ids
// as the target (SpeculativeConfig.verify_equal_vocab_size_if_draft_model).
void check_vllm(const ExportOptions& options, const model::TransformerConfig& config,
                const std::optional<model::TransformerConfig>& target, Problems& problems) {
  const std::string where = options.model.string();
  if (config.encoder_decoder) {
    problems.add({where, "vLLM runs no encoder-decoder models, neither as drafters nor as targets",
                  fmt::format("a decoder-only model ({})", decoder_only_families()), config.family,
                  "--format hf exports it for Transformers"});
  }
  if (!target || target->vocabulary == config.vocabulary) return;
  problems.add({where, "vLLM needs a draft model with as many ids as its target, padding included",
                fmt::format("vocab_size {}, as the target", target->vocabulary), fmt::format("{}", config.vocabulary),
                "use a drafter whose embedding is padded to the target's size, or --format hf"});
}

// Refuses what the format cannot hold, and a model that changed since it was made. Errors: UserError with all problems.
void check_model(const model::ModelDirectory& opened, const ExportOptions& options) {
  const model::TransformerConfig& config = opened.config();
  std::optional<model::TransformerConfig> target;
  if (options.target) target = model::read_settings(*options.target, &model::ordinary_kind()).config;
  Problems problems;
  if (!config.draft_vocabulary.ids.empty()) {
    problems.add({options.model.string(), "other engines know no draft model with a pruned vocabulary",
                  fmt::format("an embedding and a head of {} rows, one an id", config.vocabulary),
                  fmt::format("{} rows (draft_vocab_size)", config.draft_vocabulary.ids.size()),
                  "export the drafter from before its vocabulary was pruned. Draftsmith can run this one; the "
                  "format cannot say that the removed rows have logits of minus infinity"});
  }
  if (options.format == "vllm") check_vllm(options, config, target, problems);
  problems.add_all(verify(options.model));
  problems.throw_if_any();
}

std::string card(const fs::path& name, const ExportOptions& options, const model::ModelDirectory& model,
                 const std::string& dtype) {
  const auto& c = model.config();
  std::string text =
      "---\nlibrary_name: transformers\ntags:\n- draftsmith\n- speculative-decoding\n- draft-model\n---\n\n";
  text += fmt::format(
      "# {}\n\nA draft model for speculative decoding{}: {} ({}), {:.1f} M parameters, {} token ids, stored as {}.\n",
      name.string(), options.target ? fmt::format(", drafter of `{}`", options.target->string()) : "",
      model.family().architecture, model.family().name, static_cast<double>(model::count_numbers(c)) / 1e6,
      c.vocabulary, dtype);
  text += fmt::format(
      "\n```python\n"
      "from transformers import {0}\n\n"
      "drafter = {0}.from_pretrained(\"{1}\")\n"
      "target = {0}.from_pretrained(\"TARGET\")\n"
      "target.generate(**inputs, assistant_model=drafter)\n```\n\n",
      c.encoder_decoder ? "AutoModelForSeq2SeqLM" : "AutoModelForCausalLM", name.string());
  if (options.format == "vllm") text += fmt::format("```\n{}\n```\n\n", vllm_command("TARGET", name));
  return text + fmt::format("Written by `draftsmith export --format {} --dtype {}`, Draftsmith {} (commit {}).\n",
                            options.format, options.dtype, version(), git_commit());
}

// Transformers' LlamaTokenizer, which write_tokenizer() names, takes every SentencePiece model for one of type bpe.
void write_unigram_json(const fs::path& directory) {
  const fs::path model = directory / "tokenizer.model", settings = directory / "tokenizer_config.json";
  if (!fs::exists(model) || !fs::exists(settings) || fs::exists(directory / "tokenizer.json")) return;
  auto words = load_json(settings);
  if (words.value("tokenizer_class", "") != "LlamaTokenizer") return;
  const nlohmann::ordered_json json = data::sentencepiece_json(model);
  if (json.is_null()) return;
  write_json(directory / "tokenizer.json", json);
  words["tokenizer_class"] = "PreTrainedTokenizerFast";
  write_json(settings, words);
}

// Writes the model, its tokenizer and its settings of generation.
void write_model(const fs::path& directory, const model::TransformerModel& model, const model::ModelDirectory& opened,
                 const ExportOptions& options, at::ScalarType dtype) {
  model::SaveOptions save;
  save.dtype = dtype;
  save.shard_bytes = static_cast<uint64_t>(options.shard_megabytes) * 1'000'000;
  save.generation = opened.generation();
  if (data::has_tokenizer(options.model)) save.tokenizer = data::load_tokenizer(options.model)->file();
  model::write_model_files(directory, model, save);
  write_unigram_json(directory);
  // Copied as it is, with keys that only other programs read.
  const fs::path settings = options.model / "generation_config.json";
  if (fs::exists(settings)) write_file_atomic(directory / settings.filename(), read_file(settings));
}

ExportSummary export_directory(const model::ModelDirectory& opened, const ExportOptions& options) {
  const fs::path out = model::require_free_place(options.out);
  const at::ScalarType dtype = type_for(options, stored_type(opened));
  const auto model = load_whole(opened, stored_type(opened));
  ExportSummary summary{.dtype = model::stored_dtype_name(dtype), .parameters = model->parameters().size()};
  for (const auto& [name, parameter] : model->parameters()) {
    work_point();
    require_fits(options, name, parameter, model::parameter_dtype(opened.config(), name, dtype));
  }
  work_point();
  model::write_new_directory(out, [&](const fs::path& temporary) {
    write_model(temporary, *model, opened, options, dtype);
    const model::ModelDirectory written(temporary);  // checks it
    write_file_atomic(temporary / "README.md", card(out.filename(), options, written, summary.dtype));
    work_point();
  });
  return summary;
}

// Returns how much slower each pair of a head turns than without Llama 3's scaling, [K/2]; empty: it is not scaled so.
std::vector<float> rotation_factors(const model::RotaryConfig& rotary) {
  if (rotary.scaling != model::RotaryScaling::kLlama3) return {};
  model::RotaryConfig plain = rotary;
  plain.scaling = model::RotaryScaling::kNone;
  const at::Tensor factors =
      model::rotary_frequencies(plain).div(model::rotary_frequencies(rotary)).to(at::kFloat).contiguous();
  return {factors.const_data_ptr<float>(), factors.const_data_ptr<float>() + factors.numel()};
}

// Adds byte pair encoding as its files say. Returns the SentencePiece model that it was made of; empty: none. Such a
// model lies beside the BPE with bytes of a Llama 2, Mistral or Phi-3.
fs::path add_bpe(const fs::path& file, nlohmann::ordered_json& request) {
  const data::BpeParts parts = file.filename() == "vocab.json"
                                   ? data::read_gpt2_files(file, file.parent_path() / "merges.txt")
                                   : data::read_tokenizer_json(file);
  request["pieces"] = parts.model.pieces;
  request["merges"] = parts.model.merges;
  request["byte_level"] = parts.model.byte_level;
  request["ignore_merges"] = parts.model.ignore_merges;
  request["added"] = nlohmann::ordered_json::array();
  for (const data::AddedToken& token : parts.added) {
    request["added"].push_back({token.content, token.id, token.special});
  }
  const fs::path beside = file.parent_path() / "tokenizer.model";
  return !parts.model.byte_level && fs::exists(beside) && data::is_sentencepiece(beside) ? beside : fs::path();
}

// Returns what the script cannot read of a directory's tokenizer by itself; null: there is none.
nlohmann::ordered_json describe_tokenizer(const model::ModelDirectory& opened) {
  const fs::path& directory = opened.path();
  if (!data::has_tokenizer(directory)) return nullptr;
  const auto tokenizer = data::load_tokenizer(directory);
  model::require_vocabulary_fits(opened.config(), tokenizer->vocabulary(), directory.string());
  const data::TextFrame frame = tokenizer->frame();
  const auto chat = data::find_chat_template(directory);
  nlohmann::ordered_json request = {{"file", tokenizer->file().string()},
                                    {"ids",
                                     {{"bos", tokenizer->bos()},
                                      {"eos", tokenizer->eos()},
                                      {"unknown", tokenizer->unk()},
                                      {"padding", tokenizer->pad()}}},
                                    {"ends", opened.generation().eos_ids},
                                    {"add_bos_token", !frame.before.empty()},
                                    {"add_eos_token", !frame.after.empty()},
                                    {"chat_template", chat ? chat->text : ""}};
  fs::path sentencepiece = tokenizer->file();
  if (!data::is_sentencepiece(sentencepiece)) sentencepiece = add_bpe(tokenizer->file(), request);
  if (sentencepiece.empty()) return request;
  request["sentencepiece"] = sentencepiece.string();
  request["pieces"] = nlohmann::ordered_json::array();
  for (int32_t id = 0; id < tokenizer->vocabulary(); ++id) {
    const bool control = tokenizer->text_piece(id).kind == data::TextPiece::Kind::kNothing;
    request["pieces"].push_back({tokenizer->piece(id), control});
  }
  return request;
}

void require_new_file(const fs::path& file) {
  if (!fs::exists(file)) return;
  throw UserError({file.string(), "exists already, and an export overwrites nothing", "the name of a new file", "",
                   "choose another name, or remove it"});
}

// Starts the script, which refuses settings and a tokenizer that the file cannot hold.
std::unique_ptr<PythonScript> begin_file(const model::ModelDirectory& opened, const ExportOptions& options,
                                         const std::string& dtype) {
  const model::TransformerConfig& config = opened.config();
  auto script = std::make_unique<PythonScript>(export_texts(),
                                               ScriptMessages{options.model.string(), "GGUF is not written", "gguf"});
  script->ask({{"family", config.family},
               {"settings", model::write_config(opened.family(), config)},
               {"window", config.window_layers.empty() ? 0 : config.window},
               {"rotation", rotation_factors(config.rotary)},
               {"type", dtype},
               {"name", options.out.stem().string()},
               {"description", fmt::format("Exported by Draftsmith {} ({})", version(), git_commit())},
               {"tokenizer", config.encoder_decoder ? nlohmann::ordered_json()  // such families are refused
                                                    : describe_tokenizer(opened)}});
  return script;
}

// The script checks settings and tokenizer before weights are read, and takes the weights from a directory that is
// removed in the end.
ExportSummary export_file(const model::ModelDirectory& opened, const ExportOptions& options) {
  require_new_file(options.out);
  const at::ScalarType stored = stored_type(opened) == at::kDouble ? at::kFloat : stored_type(opened);
  const bool blocks = options.dtype == kBlockType;
  const at::ScalarType type = blocks ? at::kHalf : type_for(options, stored);
  AtomicPath out(options.out);
  const AtomicPath whole(options.out.string() + ".model");
  const std::string dtype = blocks ? "Q8_0" : model::stored_dtype_name(type);
  const auto script = begin_file(opened, options, dtype);
  auto model = load_whole(opened, at::kFloat);
  for (const auto& [name, values] : model->parameters()) {
    work_point();
    if (values.dim() < 2 || name == "decoder.positions.weight") continue;  // stay fp32
    // A block's factor is fp16, and each of its numbers at most 127 times it.
    require_fits(options, name, blocks && values.size(-1) % kBlockValues == 0 ? values.div(127) : values, type);
  }
  make_directories(whole.temporary());
  model::SaveOptions save;
  save.dtype = stored;
  save.shard_bytes = std::numeric_limits<uint64_t>::max();  // one file
  model::write_model_files(whole.temporary(), *model, save);
  const ExportSummary summary{.dtype = dtype, .parameters = model->parameters().size()};
  model.reset();  // the script needs memory of its own
  script->ask({{"weights", (whole.temporary() / "model.safetensors").string()}, {"file", out.temporary().string()}});
  out.commit();
  return summary;
}

void check_options(const ExportOptions& options, const std::string& where, Problems& problems) {
  if (options.format == kGgufFormat && options.shard_megabytes != ExportOptions().shard_megabytes) {
    problems.add({where, "a GGUF is one file, which --shard-megabytes does not cut",
                  "another --format, or no --shard-megabytes",
                  fmt::format("--shard-megabytes {}", options.shard_megabytes), ""});
  }
  if (options.dtype != kBlockType || options.format == kGgufFormat) return;
  problems.add({where, "--dtype q8_0 is a type of GGUF files", "--format gguf together with it",
                "--format " + options.format, ""});
}

}  // namespace

at::ScalarType stored_type(const model::ModelDirectory& opened) {
  std::set<std::string> types;
  std::set<std::string> others;  // without parameters that stay fp32 in fp16
  for (const auto& [parameter, stored] : opened.parameters()) {
    const std::string& dtype = opened.weights().entry(stored.name).dtype;
    types.insert(dtype);
    if (dtype != "F32" || !model::keeps_fp32_in_half(opened.config(), parameter.name)) others.insert(dtype);
  }
  if (others == std::set<std::string>{"F16"}) return at::kHalf;
  if (types.contains("F64")) return at::kDouble;
  if (types.size() == 1) return model::float_type(*types.begin()).value();
  return at::kFloat;
}

std::unique_ptr<model::TransformerModel> load_whole(const model::ModelDirectory& opened, at::ScalarType stored) {
  return model::load_model(opened, {.dtype = stored == at::kDouble ? at::kDouble : at::kFloat, .pack = false});
}

at::ScalarType type_for(const ExportOptions& options, at::ScalarType stored) {
  return options.dtype == "stored" ? stored : parse_dtype(options.dtype, "--dtype");
}

void require_fits(const ExportOptions& options, const std::string& name, const at::Tensor& values,
                  at::ScalarType type) {
  const at::Tensor largest = values.detach().abs().max();
  const at::Tensor stored = largest.to(type);
  const bool overflows = at::isfinite(largest).item<bool>() && !at::isfinite(stored).item<bool>();
  const bool vanishes = values.dim() > 1 && largest.item<double>() > 0 && stored.item<double>() == 0;
  if (!overflows && !vanishes) return;
  throw UserError({options.model.string(),
                   fmt::format("the model cannot be held in {}: values of {} {}", options.dtype, name,
                               overflows ? "overflow" : "vanish"),
                   "values that the type can hold", fmt::format("{:g}", largest.item<double>()),
                   options.dtype == "fp16" ? "choose --dtype stored or bf16" : "choose --dtype stored"});
}

Fields<ExportOptions> ExportOptions::fields() {
  using T = ExportOptions;
  return Fields<T>("export: flags of draftsmith export")
      .add("format", &T::format, Choices{"hf", "vllm", kGgufFormat},
           "What loads it. hf: Transformers; vllm: the same, checked for vLLM's draft models, and features drafters "
           "as EAGLE-3; gguf: one file for llama.cpp.")
      .add("dtype", &T::dtype, Choices{"stored", "fp32", "bf16", "fp16", kBlockType},
           "Type of the weights in the files; stored: unchanged; q8_0: gguf's blocks of 8-bit integers.")
      .add("target", &T::target, "Model directory of the target, for vllm's check, the card and the printed command.")
      .add("shard_megabytes", &T::shard_megabytes, Range{1, 1'000'000}, Unit{"MB"}, "Largest weight file.")
      .check(check_options);
}

std::string vllm_command(const fs::path& target, const fs::path& drafter, int64_t eagle3) {
  const std::string name =
      nlohmann::json(drafter.string()).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const std::string settings = fmt::format(R"({{"method": "{}", "model": {}, "num_speculative_tokens": {}}})",
                                           eagle3 > 0 ? "eagle3" : "draft_model", name, eagle3 > 0 ? eagle3 : 5);
  return fmt::format("vllm serve {} --speculative-config {}", shell_word(target.string()), shell_word(settings));
}

std::map<std::string, std::string> export_refusals(const fs::path& model) {
  const bool features = model::kind_of_directory(model) == model::features_kind();
  std::map<std::string, std::string> refusals;
  for (const std::string format : {kGgufFormat, "hf", "vllm"}) {
    const ExportOptions options{.model = model, .format = format};
    std::string& refusal = refusals[format];
    try {
      const model::ModelDirectory opened(model, features ? model::features_kind() : model::ordinary_kind());
      features ? require_eagle3(options, opened.config()) : check_model(opened, options);
      if (format == kGgufFormat) begin_file(opened, options, "F16");
    } catch (const UserError& error) {
      refusal = error.problems().front().what;
    }
  }
  return refusals;
}

ExportSummary export_model(const ExportOptions& options) {
  Progress work({.title = "exporting"}, "nothing was exported");
  if (model::kind_of_directory(options.model) == model::features_kind()) return export_eagle3(options);
  const model::ModelDirectory opened(options.model);
  check_model(opened, options);
  if (fs::exists(model::exits_directory(options.model))) {
    log_info("{}: its exits, which no other engine reads, are not exported", options.model.string());
  }
  return options.format == kGgufFormat ? export_file(opened, options) : export_directory(opened, options);
}

}  // namespace draftsmith::recipes
