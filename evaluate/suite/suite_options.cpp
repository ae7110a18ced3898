#include "evaluate/suite/suite_options.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace draftsmith::evaluate {

Fields<EngagementTable> EngagementTable::fields() {
  using E = EngagementTable;
  return Fields<E>("engagement of the large model")
      .add("name", &E::name, "Name in files and results, where there are several.")
      .add("task", &E::task, "Task that is decoded and scored; empty: the first.")
      .add("drafter", &E::drafter, Required{}, "Small model whose tokens the suite's model replaces.")
      .add("oracle", &E::oracle, Range{0, 1},
           "Thresholds of the oracle: the large model decides where it gives the small one's token a lower "
           "probability; 0: never.")
      .add("fallback", &E::fallback, Range{0, 1},
           "Thresholds of fallback: the large model decides where the small one's largest probability is lower.")
      .add("lines", &E::lines, Range{0}, Unit{"lines"}, "First lines of the task; 0: all.");
}

Fields<MatchRateTable> MatchRateTable::fields() {
  using E = MatchRateTable;
  return Fields<E>("match rates of early predictions")
      .add("name", &E::name, "Name in files and results, where there are several.")
      .add("task", &E::task, "Task whose prompts are decoded; empty: the first.")
      .add("model", &E::model, "Model that decodes and predicts: \"target\", or a drafter's name.")
      .add("exits", &E::exits, "Directory of its exits; empty: its own, if it has any.")
      .add("layers", &E::layers, Range{1}, Unit{"layers"}, "Layers that predict; empty: all but the last.")
      .add("candidates", &E::candidates, Range{1}, Unit{"tokens"}, "Most likely tokens k that count as predicted.")
      .add("decoding", &E::decoding, Choices(E().decoding),
           "How outputs are made: greedy decoding, sampling among 3 tokens or from a mass of 0.95.")
      .add("positions", &E::bin, Range{1}, Unit{"tokens"}, "New tokens in a bin of positions.")
      .add("bins", &E::bins, Range{1, 8}, "Bins; what comes after them is one more.")
      .add("prompts", &E::prompts, Range{1}, Unit{"lines"}, "First lines of the task.")
      .check([](const E& rates, const std::string& where, Problems& problems) {
        const std::string dot = where.empty() ? "" : where + ".";
        if (std::ranges::adjacent_find(rates.layers, std::greater_equal()) != rates.layers.end()) {
          problems.add({dot + "layers", "layers are given twice or out of order", "rising layers",
                        fmt::format("[{}]", fmt::join(rates.layers, ", ")), ""});
        }
        if (!rates.candidates.empty() && !rates.decoding.empty()) return;
        problems.add({where, "there is nothing to count", "candidates and decodings", "none", ""});
      });
}

infer::MatchRateOptions MatchRateTable::options() const {
  infer::MatchRateOptions options = *this;
  std::erase_if(options.decodings, [&](const infer::MatchDecoding& one) {
    return std::find(decoding.begin(), decoding.end(), one.name) == decoding.end();
  });
  return options;
}

Fields<TaskOptions> TaskOptions::fields() {
  return Fields<TaskOptions>("evaluation task")
      .add("name", &TaskOptions::name, Required{}, "Name of the task in results and file names.")
      .add("dataset", &TaskOptions::dataset,
           "Data set by name, instead of files: \"multi30k/test_2016_flickr\". It gives the task its name, its files "
           "and "
           "its metric, unless they are here.")
      .add("direction", &TaskOptions::direction, "With a data set of parallel text: source and target, \"de-en\".")
      .add("categories", &TaskOptions::categories,
           "Take only jsonl objects whose field `category` is one of these; empty: all. Of a data set each "
           "of them becomes a task.")
      .add("source", &TaskOptions::source, "Text file of sources or prompts, one a line.")
      .add("separator", &TaskOptions::separator,
           "Line that separates the prompts of source, where they are longer than a line; empty: every line is one.")
      .add("references", &TaskOptions::references, "Text files of references, parallel to source.")
      .add("jsonl", &TaskOptions::jsonl, "File of JSON objects, one a line, instead of text files.")
      .add("source_field", &TaskOptions::source_field,
           "Field of the jsonl objects that holds the source; turns[0] is the first element of a list.")
      .add(
          "messages", &TaskOptions::messages,
          "Field of the jsonl objects with a conversation, a list of messages with role and content. The target's chat "
          "template makes the prompt of it; where the assistant has the last word, that is the reference.")
      .add("chat", &TaskOptions::chat,
           "Sources are a user's messages: the target's chat template makes prompts of them.")
      .add("reference_fields", &TaskOptions::reference_fields,
           "Fields of the jsonl objects that hold references; a list of sentences is joined by newlines.")
      .add("prefix", &TaskOptions::prefix, "Text put before each source, such as \"summarize: \".")
      .add("suffix", &TaskOptions::suffix,
           "Text put after each source, such as \"Summary:\", and kept where a source is cut; tokenized by itself.")
      .add("ids", &TaskOptions::ids,
           "Sources and references are space-separated token ids; the metric compares ids as words.")
      .add("skip", &TaskOptions::skip, Range{0}, Unit{"lines"}, "Lines passed over at the top.")
      .add("limit", &TaskOptions::limit, Range{0}, Unit{"lines"}, "Lines used after these; 0: all.")
      .add("timed", &TaskOptions::timed, Range{0}, Unit{"lines"},
           "Lines whose decoding is timed and repeated; the others count for quality only. 0: all.")
      .add("max_source_tokens", &TaskOptions::max_source_tokens, Range{0}, Unit{"tokens"},
           "Longer sources are cut, and counted; 0: never. In tasks of plain text without references, drafters of a "
           "decoder-only model are measured on predicting the text that was cut off (see forced_lines).")
      .add("max_new_tokens", &TaskOptions::max_new_tokens, Range{0}, Unit{"tokens"},
           "Most tokens put out a line; 0: the suite's max_new_tokens.")
      .add("metric", &TaskOptions::metric, "How hypotheses are scored.")
      .check(check_task);
}

Fields<SettingGrid> SettingGrid::fields() {
  Fields<SettingGrid> fields("evaluation run");
  fields.add("name", &SettingGrid::name, "Label in results; the default is made of method and parameters.")
      .add("model", &SettingGrid::model, "Model that decodes: \"target\", or a drafter's name, which then runs alone.")
      .add("drafter", &SettingGrid::drafter, "Names of drafters; a setting for each.");
  add_grid(fields, &SettingGrid::decode, &SettingGrid::lists);
  fields
      .add("choose_on", &SettingGrid::choose_on,
           "Task (validation data) on which the grid runs and settings are chosen for the other tasks.")
      .add("max_drop", &SettingGrid::max_drop, Range{0}, Unit{"points"},
           "With choose_on: for each value the fastest setting that loses at most so many points is chosen.");
  return fields;
}

Fields<SuiteOptions> SuiteOptions::fields() {
  return Fields<SuiteOptions>("evaluation suite")
      .add("name", &SuiteOptions::name, "Name of the suite in results.")
      .add("model", &SuiteOptions::model, Required{}, "Directory of the target model.")
      .add("drafter", &SuiteOptions::drafter,
           "Small models, Tandem secondaries, n-gram tables, prompt look-up, exits of the model itself.")
      .add("task", &SuiteOptions::task, "Data sets.")
      .add("run", &SuiteOptions::run, "Methods; greedy decoding of the target is always run, as the baseline.")
      .add("match_rates", &SuiteOptions::match_rates,
           "How often layers predict early what the last one says, as ppd needs it.")
      .add("engagement", &SuiteOptions::engagement,
           "Quality against the share of tokens that the large model decides (BiLD's figure 2).")
      .add("repetitions", &SuiteOptions::repetitions, Range{1, 100},
           "Rounds of timing at most. In each, every method is timed once on every timed line, beside its baseline.")
      .add("precision", &SuiteOptions::precision, Above{0}, Range{0, 1},
           "Half of a speedup's 95 % interval, as a share of the speedup, at which a method is timed no more after two "
           "rounds; absent: all methods are timed `repetitions` times.")
      .add("max_minutes", &SuiteOptions::max_minutes, Above{0}, Unit{"minutes"},
           "Time after which no line of a task is timed again; absent: 10 with precision, else no limit.")
      .add("spread_minutes", &SuiteOptions::spread_minutes, Above{0}, Unit{"minutes"},
           "Time that the rounds of a task are spread over, so that intervals hold paces of the machine that last for "
           "minutes; absent: none. All rounds are timed then.")
      .add("warmup", &SuiteOptions::warmup, Range{0, 1000}, Unit{"lines"},
           "Lines decoded by every method before timing starts.")
      .add("max_new_tokens", &SuiteOptions::max_new_tokens, Range{1}, Unit{"tokens"}, "Most tokens put out a line.")
      .add("batch_size", &SuiteOptions::batch_size, Range{1, 1024}, Unit{"lines"}, "Lines decoded together.")
      .add("seed", &SuiteOptions::seed, "Seed of sampling and of resampling.")
      .add("resamples", &SuiteOptions::resamples, Range{10, 1000000}, "Bootstrap resamples of the intervals.")
      .add("forced_lines", &SuiteOptions::forced_lines, Range{0}, Unit{"lines"},
           "Lines on which each drafter is measured teacher-forced: alpha_forced on the target's outputs, at "
           "temperatures 0 and 1, accuracy and cross entropy on the references or, without references, on what "
           "max_source_tokens cut off; 0: none.")
      .add("calibrate", &SuiteOptions::calibrate,
           "Measure the time of target and drafter steps, for the predicted speedup.")
      .add("dtype", &SuiteOptions::dtype, Choices{"fp32", "bf16", "fp16", "fp64", "int8"},
           "Number type of all models; int8: of weights, on CPUs. A drafter may have its own.")
      .add("device", &SuiteOptions::device, "auto, cpu, cuda or cuda:N.")
      .inherit<data::Languages>()
      .add("threads", &SuiteOptions::threads, Range{0, 1024}, "CPU threads; 0: LibTorch's choice.")
      .check(check_suite);
}

}  // namespace draftsmith::evaluate
