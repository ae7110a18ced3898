// What decoding needs, loaded once: a target, and the drafter, router and exits that options ask for. The entrance for
// programs that embed Draftsmith; `draftsmith generate` and the Python module stand on it.
//   infer::Session session({.target = "target/model", .drafter = "aligned/model"});
//   infer::DecodeOptions options;
//   options.method = "assisted";
//   infer::Generator generator = session.generator(options);
//   const auto source = infer::source_ids("Ein Hund rennt.", *session.target().tokenizer, session.info());
//   const auto results = generator.generate({&source, 1});
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "data/tokenizers/tokenizer.h"
#include "infer/decode_options.h"
#include "infer/drafters/drafter.h"
#include "infer/generator.h"
#include "infer/load_models.h"
#include "model/files/model_directory.h"

namespace draftsmith::infer {

// The files of a session, and how they are loaded.
struct SessionOptions {
  std::string target;                                          // directory of the model that decodes
  std::string drafter;                                         // as parse_drafter() reads it; empty: none
  model::LoadOptions load = {};                                // device and type of weights
  std::optional<at::ScalarType> drafter_dtype = std::nullopt;  // of a drafter that is a model; absent: load.dtype
  data::Languages languages = {};                              // of a translation model's text
  std::string option_prefix = "";  // before names of options in messages: "--" for a program's flags
};

// Returns whether a session's drafter drafts for these options: methods inside the target read none.
bool takes_drafter(const DecodeOptions& decoding);

// Loaded models. They must outlive the generators made of them, of which one at a time may decode.
class Session {
 public:
  // Loads the target. Errors: UserError, those of load_model_directory().
  explicit Session(SessionOptions options);
  ~Session();
  Session(Session&&) noexcept;

  const LoadedModel& target() const { return target_; }
  const model::ModelInfo& info() const { return target_.model->info(); }

  // Makes a generator. Loads the drafter, and the router and exits that the options name, when a method first asks for
  // them; they stay loaded. Errors: UserError, those of parse_drafter(), of the loaders and of Generator.
  Generator generator(const DecodeOptions& decoding);

 private:
  SharedDrafter drafter_of(const DecodeOptions& decoding);
  const model::RouterPredictor* router_of(const DecodeOptions& decoding, const LoadedDrafter* drafter);
  const model::Exits* exits_of(const DecodeOptions& decoding, const LoadedDrafter* drafter);

  SessionOptions options_;
  LoadedModel target_;
  SharedDrafter drafter_;
  std::map<std::string, std::unique_ptr<model::RouterPredictor>> routers_;  // by directory
  std::map<std::string, std::unique_ptr<model::Exits>> exits_;              // by directory; "": the target's own
};

}  // namespace draftsmith::infer
