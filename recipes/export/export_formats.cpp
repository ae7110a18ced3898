#include "recipes/export/export_formats.h"

#include <fmt/format.h>

#include "base/child_process.h"
#include "base/json.h"
#include "model/families/family.h"
#include "model/models/shared_encoder.h"
#include "model/models/tandem.h"
#include "recipes/export/gguf.h"

namespace draftsmith::recipes {

namespace {

using Config = model::TransformerConfig;

// All formats need a row for each id of config.json's vocabulary.
void refuse_pruned_vocabulary(const std::string& where, const Config& config, const std::string& reader,
                              Problems& problems) {
  if (config.draft_vocabulary.ids.empty()) return;
  problems.add({.where = where,
                .what = fmt::format("{} knows no draft model with a pruned vocabulary", reader),
                .expected = fmt::format("an embedding and a head of {} rows, one an id", config.vocabulary),
                .found = fmt::format("{} rows (draft_vocab_size)", config.draft_vocabulary.ids.size()),
                .hint = "export the drafter from before its vocabulary was pruned. Draftsmith can run this one; the "
                        "format cannot say that the removed rows have logits of minus infinity"});
}

std::string decoder_only_families() {
  std::string names;
  for (const model::Family& family : model::families()) {
    if (!family.base.encoder_decoder) names += (names.empty() ? "" : ", ") + family.name;
  }
  return names;
}

void check_hf(const std::string& where, const Config& config, const std::optional<Config>&, Problems& problems) {
  refuse_pruned_vocabulary(where, config, "Transformers", problems);
}

void check_vllm(const std::string& where, const Config& config, const std::optional<Config>& target,
                Problems& problems) {
  refuse_pruned_vocabulary(where, config, "vLLM", problems);
  if (config.encoder_decoder) {
    problems.add({.where = where,
                  .what = "vLLM runs no encoder-decoder models, neither as drafters nor as targets",
                  .expected = fmt::format("a decoder-only model ({})", decoder_only_families()),
                  .found = config.family,
                  .hint = "--format hf exports it for Transformers"});
  }
  if (target && target->vocabulary != config.vocabulary) {
    problems.add({.where = where,
                  .what = "vLLM needs a draft model with as many ids as its target, padding included",
                  .expected = fmt::format("vocab_size {}, as the target", target->vocabulary),
                  .found = fmt::format("{}", config.vocabulary),
                  .hint = "use a drafter whose embedding is padded to the target's size, or --format hf"});
  }
}

void check_gguf_format(const std::string& where, const Config& config, const std::optional<Config>&,
                       Problems& problems) {
  refuse_pruned_vocabulary(where, config, "llama.cpp", problems);
  check_gguf(where, config, problems);
}

std::string usage_hf(const std::filesystem::path& directory, const Config& config) {
  const std::string kind = config.encoder_decoder ? "AutoModelForSeq2SeqLM" : "AutoModelForCausalLM";
  return fmt::format(
      "```python\n"
      "from transformers import {0}\n"
      "\n"
      "drafter = {0}.from_pretrained(\"{1}\")\n"
      "target = {0}.from_pretrained(\"TARGET\")\n"
      "target.generate(**inputs, assistant_model=drafter)\n"
      "```\n",
      kind, directory.filename().string());
}

std::vector<std::string> commands_vllm(const std::optional<std::filesystem::path>& target,
                                       const std::filesystem::path& drafter) {
  const std::string name =
      nlohmann::json(drafter.string()).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const std::string settings =
      fmt::format(R"({{"method": "draft_model", "model": {}, "num_speculative_tokens": 5}})", name);
  return {fmt::format("vllm serve {} --speculative-config {}", shell_word(target.value_or("TARGET").string()),
                      shell_word(settings))};
}

std::string usage_vllm(const std::filesystem::path& directory, const Config& config) {
  return fmt::format(
             "```\n"
             "{}\n"
             "```\n"
             "\n"
             "vLLM needs a target and a drafter with equally many ids (this drafter has {}) and computes both in one "
             "type "
             "(`--dtype`).\n"
             "\n",
             commands_vllm(std::nullopt, directory.filename()).front(), config.vocabulary) +
         usage_hf(directory, config);
}

// Returns the commands for the drafter's file and the target's directory, which llama.cpp cannot read: first its
// export.
std::vector<std::string> commands_gguf(const std::optional<std::filesystem::path>& target,
                                       const std::filesystem::path& drafter) {
  const auto server = [&](const std::filesystem::path& file) {
    return fmt::format("llama-server --model {} --model-draft {} --draft-max 5", shell_word(file.string()),
                       shell_word(drafter.string()));
  };
  if (!target) return {server("TARGET.gguf")};
  auto named = std::filesystem::absolute(*target / "").lexically_normal().parent_path();
  if (named.filename() == "model") named = named.parent_path();  // of a stage, which is named better
  auto file = drafter.parent_path() / (named.filename().string() + ".gguf");
  if (file == drafter) file.replace_filename(named.filename().string() + "-target.gguf");
  return {fmt::format("draftsmith export --model {} --format gguf --out {}", shell_word(target->string()),
                      shell_word(file.string())),
          server(file)};
}

}  // namespace

const Registry<ExportFormat>& export_formats() {
  static const Registry<ExportFormat> kFormats(
      "export format",
      {{"hf", "a directory for Transformers: generate, and assistant_model", check_hf, usage_hf},
       {"vllm", "the same, checked for vLLM's draft models (decoder-only)", check_vllm, usage_vllm, commands_vllm},
       {kGgufFormat, "one file for llama.cpp (Llama, GPT-2)", check_gguf_format, {}, commands_gguf}});
  return kFormats;
}

const ExportFormat& export_format_named(const std::string& name) {
  if (const ExportFormat* format = export_formats().find(name)) return *format;
  Problem problem = unknown_name("export format", name, export_formats().names());
  problem.where = "--format";
  problem.expected.clear();
  for (const ExportFormat& format : export_formats()) {
    problem.expected += fmt::format("{}{} ({})", problem.expected.empty() ? "" : "; ", format.name, format.summary);
  }
  if (name == "speculators") {
    problem.hint =
        "its formats describe heads that read the target's hidden states; use --format vllm for draft models";
  }
  throw UserError(problem);
}

void require_standalone(const std::filesystem::path& directory, const std::string& format) {
  if (!std::filesystem::is_directory(directory)) return;  // opening the model reports it
  const nlohmann::json config = load_json(directory / "config.json");
  const model::ModelKind& kind = model::kind_of(config);
  if (kind != model::tandem_kind() && kind != model::shared_encoder_kind()) return;
  throw UserError({.where = directory.string(),
                   .what = fmt::format("{} cannot be exported as {}", kind.name, format),
                   .expected = "a model that runs by itself",
                   .found = config.at("architectures").front(),
                   .hint = "it reads the hidden states of another model, for which neither Transformers nor vLLM has a "
                           "place; Draftsmith runs the pair"});
}

}  // namespace draftsmith::recipes
