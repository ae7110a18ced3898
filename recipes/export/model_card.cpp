#include "recipes/export/model_card.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/environment.h"
#include "base/table.h"
#include "evaluate/report/task_order.h"
#include "metrics/registry.h"
#include "model/kinds/exits.h"
#include "recipes/export/card_front_matter.h"
#include "recipes/export/measurements.h"
#include "recipes/export/provenance.h"

namespace draftsmith::recipes {

namespace {

namespace fs = std::filesystem;

// Returns text of the user's for a line or a table's cell, which it may not end.
std::string cell(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '|' || c == '\n' || c == '\r' || c == '`'; }, ' ');
  return text;
}

std::string what_it_is(const CardInputs& inputs) {
  const auto& c = inputs.model.config;
  const std::string layers = c.encoder_decoder
                                 ? fmt::format("{} encoder and {} decoder layers", c.encoder_layers, c.decoder_layers)
                                 : fmt::format("{} layers", c.decoder_layers);
  std::string text = fmt::format(
      "## What it is\n\n"
      "A draft model for speculative decoding: {} ({}), {:.1f} M parameters, {}, width {}, {} heads of {}, "
      "feed-forward "
      "width {}, {} token ids; stored as {}.\n",
      inputs.model.architecture, c.encoder_decoder ? "encoder-decoder" : "decoder-only",
      static_cast<double>(inputs.model.parameters) / 1e6, layers, c.width, c.heads, c.head_width, c.ff_width,
      c.vocabulary, inputs.summary.dtype);
  if (!inputs.model.tokenizer_file.empty()) {
    text += fmt::format("\nTokenizer: `{}`, SHA-256 `{}`. Its target must have the same one.\n",
                        inputs.model.tokenizer_file, inputs.model.tokenizer_hash);
  }
  return text;
}

// Returns the section on the exits that the model has, which were exported with it.
std::string its_exits(const CardInputs& inputs) {
  const fs::path exits = model::exits_directory(inputs.options.model);
  if (!model::holds_exits(exits)) return "";
  const model::ExitConfig config = model::load_exit_config(exits);
  std::string layers;
  for (const model::ExitShape& exit : config.exits) {
    layers += fmt::format("{}{}", layers.empty() ? "" : ", ", exit.layer);
  }
  return fmt::format(
      "## Exits\n\n"
      "The directory `draftsmith/exits` holds exits of layers {} of {} (trained as `{}`), which predict the next token "
      "early: with them Draftsmith drafts from inside this model (`draftsmith generate --method early-exit`, `calm` or "
      "`ppd`). Transformers and vLLM read the files beside this card alone: to them it is the model without exits.\n\n",
      layers, inputs.model.config.decoder_layers, cell(config.trained_as));
}

std::string options_block(const Done& stage) {
  return fmt::format("\n```json\n{}\n```\n", stage.options.dump(2));
}

std::string how_it_was_made(const CardInputs& inputs) {
  const auto from = find_provenance(inputs.options.model);
  if (!from) {
    return "## How it was trained\n\nNot known: it was not exported from the directory of a Draftsmith stage.\n";
  }
  const Done& stage = from->made_by;
  std::string text = fmt::format(
      "## How it was trained\n\n"
      "By the stage `{}` (kind {}, version {}) of a Draftsmith recipe, finished {}. Stage hash `{}`. Its options:\n",
      stage.stage, stage.kind, stage.version, stage.finished, stage.hash);
  text += options_block(stage);
  if (!from->behind.empty()) {
    Table stages({{"stage", Align::kLeft}, {"kind", Align::kLeft}, {"hash", Align::kLeft}});
    for (const Done& done : from->behind) stages.add_row({cell(done.stage), done.kind, "`" + done.hash + "`"});
    text += "\nMade from these stages:\n\n" + stages.markdown();
  }
  text += "\n### Data\n\n";
  const bool synthetic =
      std::any_of(from->behind.begin(), from->behind.end(), [](const Done& done) { return done.kind == "language"; });
  if (from->data.empty()) {
    return text +
           (synthetic ? "No data files: the text is of a synthetic language.\n" : "These stages name no data files.\n");
  }
  Table files({{"file", Align::kLeft}, {"SHA-256", Align::kLeft}});
  for (const auto& [file, hash] : from->data) files.add_row({cell(file), "`" + hash + "`"});
  return text + files.markdown();
}

// Returns a number as text; a dash where nothing was measured.
std::string number(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "–";
}

std::vector<std::string> setting_row(const evaluate::SettingResult& setting, const metrics::Metric& metric) {
  const auto* score = setting.quality.find(metric.leading_score());
  return {cell(setting.name), number(score == nullptr ? NAN : score->value, metric.digits()),
          number(setting.speed.speedup.value, 2), number(setting.acceptance.alpha, 3),
          number(setting.acceptance.tokens_per_target_run, 2)};
}

std::string task_table(const evaluate::TaskResult& task) {
  const auto metric = metrics::make_metric(task.metric_options());
  const std::string score = metric->leading_score();
  Table table(
      {{"run", Align::kLeft}, {score.empty() ? "quality" : score}, {"speedup"}, {"alpha"}, {"tokens per target run"}});
  if (!task.baseline.name.empty()) table.add_row(setting_row(task.baseline, *metric));
  for (const auto& setting : task.settings) {
    if (!setting.repeats) table.add_row(setting_row(setting, *metric));
  }
  return table.markdown();
}

std::string where_it_was_measured(const evaluate::Results* results) {
  const std::string heading = "## Where it was measured\n\n";
  if (!results)
    return heading + "No evaluation was given to the export (`draftsmith export --results results.json`).\n";
  const evaluate::Results& measured = *results;
  const auto text_of = [&](const char* key) {
    const auto found = measured.environment.find(key);
    if (found == measured.environment.end()) return std::string("unknown");
    return found->is_string() ? found->get<std::string>() : found->dump();
  };
  std::string text = heading + fmt::format("On {} ({}, {} threads), Draftsmith {} (commit {}), {}.\n",
                                           text_of("device"), text_of("dtype"), text_of("threads"),
                                           text_of("draftsmith"), text_of("commit"), text_of("date"));
  for (const evaluate::TaskResult* task : evaluate::page_order(measured)) {
    text += "\n" + cell(evaluate::task_heading(*task)) + ":\n\n" + task_table(*task);
  }
  return text;
}

std::string proof(const ExportOptions& options, const ExportSummary& summary) {
  std::string text = fmt::format(
      "## That it arrived whole\n\n"
      "This directory was loaded again before it got its name: {} parameters equal bit for bit as {}, logits on probe "
      "inputs {}.",
      summary.tensors, summary.dtype, equality(summary));
  if (summary.before && summary.after && options.target) {
    text += fmt::format(
        " Against the target `{}`, on {} ({} positions): alpha at temperature 1 {:.4f} before and {:.4f} after, greedy "
        "agreement {:.4f} and {:.4f}.",
        cell(options.target->string()), cell(summary.alpha_text), summary.after->positions, summary.before->alpha,
        summary.after->alpha, summary.before->agreement, summary.after->agreement);
  }
  return text +
         " `draftsmith verify` on this directory asks again (`draftsmith/export.json` holds what was written).\n";
}

}  // namespace

std::string model_card(const CardInputs& inputs) {
  const fs::path name = inputs.options.out.has_filename() ? inputs.options.out : inputs.options.out.parent_path();
  const ExportFormat& format = export_format_named(inputs.options.format);
  std::optional<evaluate::Results> measured;
  if (inputs.options.results) measured = measurements_of(*inputs.options.results, inputs.options.model);
  const evaluate::Results* results = measured ? &*measured : nullptr;
  return card_front_matter(inputs.options, inputs.model, results) + "\n# " + name.filename().string() + "\n\n" +
         what_it_is(inputs) + "\n## How it is used\n\n" + format.usage(name, inputs.model.config) + "\n" +
         its_exits(inputs) + how_it_was_made(inputs) + "\n" + where_it_was_measured(results) + "\n" +
         proof(inputs.options, inputs.summary) +
         fmt::format("\nWritten by Draftsmith {} (commit {}), {}.\n", version(), git_commit(), now_utc());
}

}  // namespace draftsmith::recipes
