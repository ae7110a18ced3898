#include "recipes/export/export_model.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/child_process.h"
#include "base/device.h"
#include "base/environment.h"
#include "base/files.h"
#include "base/logging.h"
#include "base/signals.h"
#include "data/tokenizers/tokenizer.h"
#include "model/families/family.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/models/exits.h"
#include "model/transformer/parameters.h"
#include "recipes/export/gguf.h"
#include "recipes/inspection.h"

namespace draftsmith::recipes {

namespace {

namespace fs = std::filesystem;

constexpr const char* kGgufFormat = "gguf";
constexpr const char* kBlockType = "q8_0";  // --dtype of GGUF's blocks

// Returns the type of a directory's weights: the widest one, ignoring fp32 parameters that an fp16 model must keep.
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

at::ScalarType type_for(const ExportOptions& options, at::ScalarType stored) {
  return options.dtype == "stored" ? stored : parse_dtype(options.dtype, "--dtype");
}

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
    problems.add({.where = where,
                  .what = "vLLM runs no encoder-decoder models, neither as drafters nor as targets",
                  .expected = fmt::format("a decoder-only model ({})", decoder_only_families()),
                  .found = config.family,
                  .hint = "--format hf exports it for Transformers"});
  }
  if (!target || target->vocabulary == config.vocabulary) return;
  problems.add({.where = where,
                .what = "vLLM needs a draft model with as many ids as its target, padding included",
                .expected = fmt::format("vocab_size {}, as the target", target->vocabulary),
                .found = fmt::format("{}", config.vocabulary),
                .hint = "use a drafter whose embedding is padded to the target's size, or --format hf"});
}

// Refuses what the format cannot hold, and a model that changed since it was made. Errors: UserError with all problems.
void check_model(const model::ModelDirectory& opened, const ExportOptions& options) {
  const model::TransformerConfig& config = opened.config();
  std::optional<model::TransformerConfig> target;
  if (options.target) target = model::read_settings(*options.target, &model::ordinary_kind()).config;
  Problems problems;
  if (!config.draft_vocabulary.ids.empty()) {
    problems.add({.where = options.model.string(),
                  .what = "other engines know no draft model with a pruned vocabulary",
                  .expected = fmt::format("an embedding and a head of {} rows, one an id", config.vocabulary),
                  .found = fmt::format("{} rows (draft_vocab_size)", config.draft_vocabulary.ids.size()),
                  .hint = "export the drafter from before its vocabulary was pruned. Draftsmith can run this one; the "
                          "format cannot say that the removed rows have logits of minus infinity"});
  }
  if (options.format == "vllm") check_vllm(options, config, target, problems);
  if (options.format == kGgufFormat) check_gguf(options.model.string(), config, problems);
  problems.add_all(verify(options.model));
  problems.throw_if_any();
}

// Refuses a finite value beyond the largest of the type, and a matrix that would be zero. Errors: UserError.
void require_fits(const ExportOptions& options, const std::string& name, const at::Tensor& values,
                  at::ScalarType type) {
  const at::Tensor largest = values.detach().abs().max();
  const at::Tensor stored = largest.to(type);
  const bool overflows = at::isfinite(largest).item<bool>() && !at::isfinite(stored).item<bool>();
  const bool vanishes = values.dim() > 1 && largest.item<double>() > 0 && stored.item<double>() == 0;
  if (!overflows && !vanishes) return;
  throw UserError({.where = options.model.string(),
                   .what = fmt::format("the model cannot be held in {}: values of {} {}", options.dtype, name,
                                       overflows ? "overflow" : "vanish"),
                   .expected = "values that the type can hold",
                   .found = fmt::format("{:g}", largest.item<double>()),
                   .hint = options.dtype == "fp16" ? "choose --dtype stored or bf16" : "choose --dtype stored"});
}

std::unique_ptr<model::TransformerModel> load_whole(const model::ModelDirectory& opened, at::ScalarType stored) {
  return model::load_model(opened, {.dtype = stored == at::kDouble ? at::kDouble : at::kFloat, .pack = false});
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

// Writes the model, its tokenizer and its settings of generation.
void write_model(const fs::path& directory, const model::TransformerModel& model, const model::ModelDirectory& opened,
                 const ExportOptions& options, at::ScalarType dtype) {
  model::SaveOptions save;
  save.dtype = dtype;
  save.shard_bytes = static_cast<uint64_t>(options.shard_megabytes) * 1'000'000;
  save.generation = opened.generation();
  if (data::has_tokenizer(options.model)) save.tokenizer = data::load_tokenizer(options.model)->file();
  model::write_model_files(directory, model, save);
  // Copied as they are, with keys that only other programs read.
  for (const char* name : {"generation_config.json", "chat_template.jinja"}) {
    if (fs::exists(options.model / name)) write_file_atomic(directory / name, read_file(options.model / name));
  }
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

GgufType gguf_type(const ExportOptions& options, at::ScalarType stored) {
  if (options.dtype == kBlockType) return GgufType::kQ8_0;
  const at::ScalarType type = type_for(options, stored);
  return type == at::kHalf ? GgufType::kF16 : type == at::kBFloat16 ? GgufType::kBF16 : GgufType::kF32;
}

ExportSummary export_file(const model::ModelDirectory& opened, const ExportOptions& options) {
  if (fs::exists(options.out)) {
    throw UserError({.where = options.out.string(),
                     .what = "exists already, and an export overwrites nothing",
                     .expected = "the name of a new file",
                     .hint = "choose another name, or remove it"});
  }
  const GgufType type = gguf_type(options, stored_type(opened));
  const auto model = load_whole(opened, at::kFloat);
  const std::vector<GgufTensor> tensors = gguf_tensors(opened.config(), type);
  for (const GgufTensor& tensor : tensors) {
    work_point();
    const at::Tensor values = to_gguf(tensor, *model);
    // A block's factor is fp16, and each of its numbers at most 127 times it.
    if (tensor.type == GgufType::kQ8_0) require_fits(options, tensor.name, values.div(127), at::kHalf);
    if (tensor.type != GgufType::kQ8_0) require_fits(options, tensor.name, values, scalar_type_of(tensor.type));
  }
  GgufValues description = gguf_settings(opened.config(), options.out.stem().string(), type);
  description.emplace_back("general.description",
                           fmt::format("Exported by Draftsmith {} ({})", version(), git_commit()));
  std::ranges::move(gguf_tokenizer(options.model, opened.config().vocabulary), std::back_inserter(description));
  write_gguf(options.out, description, tensors, [&](const GgufTensor& tensor) {
    work_point();
    return to_gguf(tensor, *model);
  });
  return {.dtype = gguf_type_name(type), .parameters = model->parameters().size()};
}

void check_options(const ExportOptions& options, const std::string& where, Problems& problems) {
  if (options.dtype != kBlockType || options.format == kGgufFormat) return;
  problems.add({.where = where,
                .what = "--dtype q8_0 is a type of GGUF files",
                .expected = "--format gguf together with it",
                .found = "--format " + options.format});
}

}  // namespace

Fields<ExportOptions> ExportOptions::fields() {
  using T = ExportOptions;
  return Fields<T>("export: flags of draftsmith export")
      .add("format", &T::format, Choices{"hf", "vllm", kGgufFormat},
           "What loads it. hf: Transformers; vllm: the same, checked for vLLM's draft models; gguf: one file for "
           "llama.cpp.")
      .add("dtype", &T::dtype, Choices{"stored", "fp32", "bf16", "fp16", kBlockType},
           "Type of the weights in the files; stored: unchanged; q8_0: gguf's blocks of 8-bit integers.")
      .add("target", &T::target, "Model directory of the target, for vllm's check, the card and the printed command.")
      .add("shard_megabytes", &T::shard_megabytes, Range{1, 1'000'000}, Unit{"MB"}, "Largest weight file.")
      .check(check_options);
}

std::string vllm_command(const fs::path& target, const fs::path& drafter) {
  const std::string name =
      nlohmann::json(drafter.string()).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const std::string settings =
      fmt::format(R"({{"method": "draft_model", "model": {}, "num_speculative_tokens": 5}})", name);
  return fmt::format("vllm serve {} --speculative-config {}", shell_word(target.string()), shell_word(settings));
}

std::map<std::string, std::string> export_refusals(const fs::path& model) {
  std::map<std::string, std::string> refusals;
  for (const std::string format : {kGgufFormat, "hf", "vllm"}) {
    std::string& refusal = refusals[format];
    try {
      const model::ModelDirectory opened(model);
      check_model(opened, {.model = model, .format = format});
      if (format == kGgufFormat) gguf_tokenizer(model, opened.config().vocabulary);
    } catch (const UserError& error) {
      refusal = error.problems().front().what;
    }
  }
  return refusals;
}

ExportSummary export_model(const ExportOptions& options) {
  const TimedWork work("exporting", "nothing was exported");
  const model::ModelDirectory opened(options.model);
  check_model(opened, options);
  if (fs::exists(model::exits_directory(options.model))) {
    log_info("{}: its exits, which no other engine reads, are not exported", options.model.string());
  }
  return options.format == kGgufFormat ? export_file(opened, options) : export_directory(opened, options);
}

}  // namespace draftsmith::recipes
