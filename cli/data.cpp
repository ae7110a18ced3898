// `draftsmith data`: makes and shows corpora, and lists data sets.
#include <filesystem>
#include <iostream>
#include <memory>
#include <ranges>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/logging.h"
#include "base/options.h"
#include "base/signals.h"
#include "base/table.h"
#include "base/toml.h"
#include "cli/application.h"
#include "data/corpus/corpus.h"
#include "data/corpus/prepare.h"
#include "data/datasets/datasets.h"
#include "data/text/readers.h"
#include "data/tokenizers/tokenizer.h"
#include "recipes/stages/data_stages.h"

namespace draftsmith::cli {
namespace {

namespace fs = std::filesystem;

// Returns the text of the data set that the flags name. Flags for its fields win. Errors: UserError.
data::TextInput text_of_dataset(const OptionFlags<recipes::CorpusOptions>& flags) {
  const data::TextInput given = flags.value();
  toml::table keys;
  const auto fields = data::TextInput::fields();
  for (const Field& field : fields.all()) {
    if (!flags.given(field.name)) continue;
    const nlohmann::ordered_json value = field_json(field, &given);
    if (value.is_string()) {
      keys.insert(field.name, value.get<std::string>());
    } else {
      toml::array texts;
      for (const auto& text : value) texts.push_back(text.get<std::string>());
      keys.insert(field.name, std::move(texts));
    }
  }
  Problems problems;
  data::fill_in_dataset_corpus(keys, problems);
  for_each_string(keys, [](toml::value<std::string>& text) { text = data::real_path(text.get()); });
  const auto filled = parse_options<data::TextInput>(keys, "", problems);
  problems.throw_if_any();
  return filled;
}

Action add_prepare(CLI::App& app) {
  struct Flags {
    fs::path tokenizer;
    fs::path out;
    bool quiet = false;
  };
  auto flags = std::make_shared<Flags>();
  auto options = std::make_shared<OptionFlags<recipes::CorpusOptions>>(app, recipes::CorpusOptions{},
                                                                       std::set<std::string>{"tokenizer"});
  app.add_option("--tokenizer", flags->tokenizer,
                 "Tokenizer file (spiece.model, tokenizer.json), or a directory with one")
      ->required();
  app.add_option("--out", flags->out, "Corpus file to write (HDF5)")->required();
  app.add_flag("--quiet", flags->quiet, "Print no progress and no summary");
  app.footer(
      "A problem in the text is an error unless a policy allows it. The command prints how often each\n"
      "policy was applied.\n"
      "Examples:\n"
      "Two files with one sentence a line:\n"
      "  draftsmith data prepare --source train.de --target train.en \\\n"
      "    --tokenizer spiece.model --out train.h5\n"
      "The same files without long and empty lines:\n"
      "  draftsmith data prepare --source train.de --target train.en \\\n"
      "    --tokenizer spiece.model --out train.h5 \\\n"
      "    --max-source 128 --max-target 128 --too-long drop --empty drop\n"
      "A data set by its name (`draftsmith data list`):\n"
      "  draftsmith data prepare --dataset multi30k/train --direction de-en \\\n"
      "    --tokenizer spiece.model --out train.h5\n"
      "A file of JSON objects, one a line:\n"
      "  draftsmith data prepare --jsonl dialogsum.train.jsonl \\\n"
      "    --source-field dialogue --target-fields summary \\\n"
      "    --tokenizer spiece.model --out dialogsum.h5 --max-source 512 --too-long truncate");
  return [flags, options] {
    recipes::CorpusOptions corpus = options->value();
    corpus.tokenizer = flags->tokenizer;
    if (!corpus.dataset.empty()) static_cast<data::TextInput&>(corpus) = text_of_dataset(*options);
    const SignalWatch signals;
    const std::string made = recipes::make_corpus(corpus, flags->out, progress_style(flags->quiet));
    if (!flags->quiet) fmt::print("{}: {}\n", flags->out.string(), made);
    return 0;
  };
}

Action add_show(CLI::App& app) {
  struct Flags {
    std::string file;
    std::string tokenizer;
    int64_t examples = 3;
  };
  auto flags = std::make_shared<Flags>();
  app.add_option("file", flags->file, "Corpus (HDF5)")->required();
  app.add_option("--tokenizer", flags->tokenizer, "Tokenizer that turns the examples into text");
  app.add_option("--examples", flags->examples, "Number of examples to print")->check(CLI::NonNegativeNumber);
  app.footer("Example:\n  draftsmith data show train.h5 --tokenizer spiece.model --examples 5");
  return [flags] {
    const data::Corpus corpus(flags->file);
    const auto tokenizer = flags->tokenizer.empty() ? nullptr : data::load_tokenizer(flags->tokenizer);
    std::cout << data::describe_corpus(corpus, tokenizer.get(), flags->examples);
    return 0;
  };
}

// Returns what a data set holds, in a table's row.
std::vector<std::string> dataset_row(const data::NamedDataset& set) {
  const std::string lines =
      std::to_string(data::count_lines(set.parallel() ? set.directions.begin()->second.first : set.file));
  if (set.parallel()) {
    return {set.name, lines, "parallel text", fmt::format("{}", fmt::join(std::views::keys(set.directions), ", ")),
            "bleu"};
  }
  if (!set.jsonl()) return {set.name, lines, "plain text", data::document_separator(set.file), "none"};
  try {
    const std::vector<data::JsonlPart> parts = data::parts_of_jsonl(set.file);
    std::string fields = parts.front().source;
    if (!parts.front().references.empty()) fields += fmt::format(" -> {}", fmt::join(parts.front().references, ", "));
    if (parts.size() > 1) fields += fmt::format(", {} categories", parts.size() - 1);
    return {set.name, lines, "jsonl", fields, parts.front().metric};
  } catch (const UserError& error) {
    return {set.name, lines, "jsonl", "unusable: " + error.problems().front().what, ""};
  }
}

Action add_list(CLI::App& app) {
  app.footer(
      "Each name is a `dataset` of a suite's task, of a recipe's corpus and of `draftsmith data prepare`.\n"
      "The data folder is ../shared/data; the environment variable DRAFTSMITH_DATA names another one.\n"
      "Example:\n  draftsmith data list");
  return [] {
    const std::vector<data::NamedDataset> sets = data::datasets_in(data::data_folder());
    if (sets.empty()) {
      throw UserError({.where = "data folder " + data::data_folder().string(),
                       .what = "holds no data set",
                       .expected = "text in several languages (x.de, x.en), *.jsonl, *.txt, *.raw or *.tokens",
                       .found = "none",
                       .hint = "set DRAFTSMITH_DATA to the folder with your data"});
    }
    Table table({{"data set", Align::kLeft},
                 {"lines"},
                 {"kind", Align::kLeft},
                 {"directions or fields", Align::kLeft},
                 {"metric", Align::kLeft}});
    for (const data::NamedDataset& set : sets) table.add_row(dataset_row(set));
    std::cout << table.text() << std::flush;
    return 0;
  };
}

}  // namespace

Action add_data(CLI::App& app) {
  Subcommands commands(app);
  commands.add("prepare", "Tokenize text into a corpus", add_prepare);
  commands.add("list", "Print the data sets that can be used by name", add_list);
  commands.add("show", "Print a corpus's counts and some examples", add_show);
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  draftsmith data prepare --source train.de --target train.en \\\n"
      "    --tokenizer spiece.model --out train.h5\n"
      "  draftsmith data show train.h5 --tokenizer spiece.model\n"
      "Stages of recipes train tokenizers, count n-grams and write text of a synthetic language.\n"
      "`draftsmith data COMMAND --help` explains the options of each command.");
  return [commands] { return commands.run().value(); };
}

}  // namespace draftsmith::cli
