// What stages share that read or make corpora and other data: names of inputs, tokenizers, options of decoding.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "data/corpus/corpus.h"
#include "data/teacher/teacher_cache.h"
#include "data/tokenizers/tokenizer.h"
#include "infer/decode_options.h"
#include "infer/generator.h"
#include "model/files/generation_config.h"
#include "model/transformer/language_model.h"
#include "recipes/stage.h"

namespace draftsmith::recipes {

// Returns the name of an input in the recipe, which does not depend on --work. Outside of recipes, returns the path.
std::string input_name(const StageContext& run, const std::string& option, const std::filesystem::path& path);

// Throws UserError unless both hashes are equal. `where` names the model or corpus of `found`; `hint` says what to do.
void require_same_tokenizer(const std::string& expected, const std::string& found, const std::filesystem::path& where,
                            const std::string& hint);

// Loads the tokenizer in a model's directory. Warns and returns null if the directory has none. Errors: UserError if
// the tokenizer's hash is not `expected`, and for languages that it does not know or without a tokenizer.
std::unique_ptr<data::Tokenizer> load_model_tokenizer(const std::filesystem::path& model, const std::string& expected,
                                                      const data::Languages& languages = {});

// The tokens that a model continues for each example of a corpus: its source or, for a decoder-only model and plain
// text, the first tokens of the text. These begin with BOS if the tokenizer's frame has one, as prompts in a corpus do.
class DecodedSources {
 public:
  // At most `prompt_tokens` tokens of a text become its prompt, and never its EOS; 0: none. `tokenizer` may be null.
  // Errors: UserError for a corpus of a form that the model cannot read (data::check_form()).
  DecodedSources(const data::Corpus& corpus, const model::ModelInfo& model, const data::Tokenizer* tokenizer,
                 int64_t prompt_tokens);
  // Returns the tokens of an example.
  std::vector<int32_t> operator()(int64_t example) const;
  // Returns the tokens of the examples [first, last) as the generator takes them.
  std::vector<std::vector<int64_t>> of_range(int64_t first, int64_t last) const;
  // Checks the first `count` examples before hours go into those ahead of one that does not fit. Errors: UserError.
  void require_fit(const infer::Generator& generator, int64_t count) const;

 private:
  const data::Corpus& corpus_;
  int64_t prompt_tokens_;
  std::vector<int32_t> before_;
};

// Options of stages that decode a corpus. A tokenizer is the model's with these languages, or null.
struct DecodingOptions : data::Languages {
  std::filesystem::path model;
  std::filesystem::path corpus;
  int64_t limit = 0;
  int64_t prompt_tokens = 16;
  int64_t max_new_tokens = 128;
  double temperature = 0.0;
  uint64_t seed = 1;
  std::string dtype = "fp32";
  int64_t batch_size = 64;
  static Fields<DecodingOptions> fields();

  int64_t count(const data::Corpus& inputs) const;
  // Returns the generator's options: all tokens count, whatever the model's own settings are.
  infer::DecodeOptions decoding(const std::string& method) const;
  // Returns what entries of a provenance say about these options.
  std::map<std::string, std::string> provenance() const;
  // Refuses options that give all examples the same output. Errors: UserError.
  void require_prompts(const data::Corpus& inputs) const;
  // Refuses sources that do not begin with the tokens of the languages that were asked for. Those of a target language
  // that is forced stand before outputs alone. Errors: UserError.
  void require_languages(const data::Corpus& inputs, const data::Tokenizer* tokenizer) const;
  // Returns the model's settings of generation; a target language forces the first token.
  model::GenerationConfig settings(const data::Tokenizer* tokenizer) const;
};

// Opens and checks a teacher's stored distributions for training on `corpus`. Errors: a UserError with all problems,
// each naming both sides: another corpus, another tokenizer or, if `teacher` is given, another teacher.
data::TeacherCache open_teacher_cache(const std::filesystem::path& file, const data::Corpus& corpus,
                                      const std::optional<std::filesystem::path>& teacher);
// Adds a problem if the cache was made by another model than the one in a directory.
void require_teacher(const data::TeacherCache& cache, const std::filesystem::path& teacher, Problems& problems);

}  // namespace draftsmith::recipes
