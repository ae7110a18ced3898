// `draftsmith data`: makes and shows corpora.
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/logging.h"
#include "base/options.h"
#include "base/signals.h"
#include "base/toml.h"
#include "cli/application.h"
#include "data/corpus/corpus.h"
#include "data/corpus/prepare.h"
#include "data/datasets/datasets.h"
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
      "A data set by its name:\n"
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

}  // namespace

Action add_data(CLI::App& app) {
  Subcommands commands(app);
  commands.add("prepare", "Tokenize text into a corpus", add_prepare);
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
