#include "infer/drafters/registry.h"

#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/util.h"
#include "infer/drafters/early_exit_drafter.h"
#include "infer/drafters/model_drafter.h"
#include "infer/drafters/tandem_drafter.h"
#include "infer/drafters/text_drafters.h"
#include "model/models/shared_encoder.h"
#include "model/models/tandem.h"

namespace draftsmith::infer {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNgram = "ngram:";
constexpr std::string_view kLookup = "lookup";
constexpr std::string_view kExit = "exit:";

// Absent: not a number.
std::optional<int64_t> parse_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc{} && end == text.data() + text.size();
  return whole ? std::optional(number) : std::nullopt;
}

LookupSpec parse_lookup(const std::string& text) {
  if (text == kLookup) return {};
  const int64_t longest = parse_number(std::string_view(text).substr(kLookup.size() + 1)).value_or(0);
  if (longest >= 1 && longest <= kMostLookup) return {longest};
  throw UserError({.where = "drafter",
                   .what = "prompt look-up begins with n-grams of another length",
                   .expected = "lookup, or lookup:N with N from 1 to " + std::to_string(kMostLookup),
                   .found = text});
}

ExitSpec parse_exit(const std::string& text) {
  const int64_t layers = parse_number(std::string_view(text).substr(kExit.size())).value_or(0);
  if (layers >= 1) return {layers};
  throw UserError({.where = "drafter",
                   .what = "an early exit drafts with the first layers of the model",
                   .expected = "exit:N with N from 1 to the model's number of decoder layers",
                   .found = text});
}

NgramSpec parse_ngram(const std::string& text) {
  if (text != kNgram) return {text.substr(kNgram.size())};
  throw UserError({.where = "drafter",
                   .what = "an n-gram drafter needs its table",
                   .expected = "ngram:FILE",
                   .found = text,
                   .hint = "make one with `draftsmith data ngrams`"});
}

// Returns each kind of drafter that is given.
std::vector<DrafterSpec> given_specs(const DrafterOptions& drafter) {
  std::vector<DrafterSpec> specs;
  if (!drafter.model.empty()) specs.emplace_back(ModelSpec{drafter.model});
  if (!drafter.tandem.empty()) specs.emplace_back(TandemSpec{drafter.tandem});
  if (!drafter.ngram.empty()) specs.emplace_back(NgramSpec{drafter.ngram});
  if (drafter.exit > 0) specs.emplace_back(ExitSpec{drafter.exit});
  if (drafter.lookup) specs.emplace_back(LookupSpec{drafter.longest});
  return specs;
}

// Reports a problem unless exactly one kind is given.
void check_one_kind(const DrafterOptions& drafter, const std::string& where, Problems& problems) {
  const size_t given = given_specs(drafter).size();
  if (given == 1) return;
  problems.add({where, "the drafter must be given in one way", "one of model, tandem, ngram, exit and lookup = true",
                given == 0 ? "none of them" : "several of them", ""});
}

// Reports a problem if a drafter that is no model has a number type.
void check_dtype(const DrafterOptions& drafter, const std::string& where, Problems& problems) {
  if (!drafter.dtype || given_specs(drafter).size() != 1 || kind_of(drafter.spec()).is_model) return;
  problems.add({where + ".dtype", "this drafter is no model, so it has no number type", "dtype beside model or tandem",
                "dtype beside " + kind_of(drafter.spec()).name, "leave dtype out"});
}

// Loads an ordinary model, or one that shares the target's encoder.
SharedDrafter load_small_model(const fs::path& directory, const fs::path& target, const model::LoadOptions& options) {
  if (!model::is_shared_encoder_directory(directory)) return load_model_drafter(directory, options);
  return load_shared_encoder_drafter(directory, target, options);
}

}  // namespace

DrafterSpec parse_drafter(const std::string& text) {
  if (text == kLookup || text.starts_with(std::string(kLookup) + ":")) return parse_lookup(text);
  if (text.starts_with(kExit)) return parse_exit(text);
  if (text.starts_with(kNgram)) return parse_ngram(text);
  if (model::is_tandem_directory(text)) return TandemSpec{text};
  return ModelSpec{text};
}

std::string drafter_help() {
  return fmt::format(
      "Directory of a drafter (an ordinary model, one that shares the model's encoder, a Tandem secondary of the "
      "model), or of the model itself; {}FILE for a table of "
      "`draftsmith data ngrams`; {}[:N] to copy the continuation of the last N-gram (default {}) that equals the "
      "end of the text; or {}N for the model's own first N layers",
      kNgram, kLookup, kLongestLookup, kExit);
}

std::string to_text(const DrafterSpec& spec) {
  return std::visit(
      Overload{[](const ModelSpec& model) { return model.directory.string(); },
               [](const TandemSpec& tandem) { return tandem.directory.string(); },
               [](const NgramSpec& table) { return std::string(kNgram) + table.file.string(); },
               [](const LookupSpec& lookup) { return std::string(kLookup) + ":" + std::to_string(lookup.longest); },
               [](const ExitSpec& exit) { return std::string(kExit) + std::to_string(exit.layers); }},
      spec);
}

DrafterKind kind_of(const DrafterSpec& spec) {
  using K = DrafterKind;
  return std::visit(
      Overload{[](const ModelSpec&) { return K{.name = "model", .is_model = true}; },
               [](const TandemSpec&) { return K{.name = "tandem", .reads_target = true, .is_model = true}; },
               [](const NgramSpec&) { return K{.name = "ngram"}; },
               [](const LookupSpec&) { return K{.name = "lookup", .logits = false}; },
               [](const ExitSpec&) { return K{.name = "early-exit"}; }},
      spec);
}

SharedDrafter load_drafter(const DrafterSpec& spec, const fs::path& target, const model::LoadOptions& options) {
  return std::visit(
      Overload{[&](const ModelSpec& model) { return load_small_model(model.directory, target, options); },
               [&](const TandemSpec& tandem) { return load_tandem_drafter(tandem.directory, target, options); },
               [](const NgramSpec& table) { return load_ngram_drafter(table.file); },
               [](const LookupSpec& lookup) { return lookup_drafter(lookup.longest); },
               [](const ExitSpec& exit) { return exit_drafter(exit.layers); }},
      spec);
}

DrafterSpec DrafterOptions::spec() const {
  const std::vector<DrafterSpec> specs = given_specs(*this);
  return specs.empty() ? DrafterSpec(ModelSpec{}) : specs.back();
}

Fields<DrafterOptions> DrafterOptions::fields() {
  return Fields<DrafterOptions>("evaluation drafter")
      .add("name", &DrafterOptions::name, Required{}, "Name by which runs refer to the drafter; not \"target\".")
      .add("model", &DrafterOptions::model,
           "Directory of a small model, or of one that shares the encoder of the suite's.")
      .add("tandem", &DrafterOptions::tandem, "Directory of a Tandem secondary of the suite's model.")
      .add("ngram", &DrafterOptions::ngram, "N-gram table, made by `draftsmith data ngrams`.")
      .add("exit", &DrafterOptions::exit, Range{0}, Unit{"layers"},
           "First so many layers of the model that decodes, read by its exits if it has any; 0: none.")
      .add("lookup", &DrafterOptions::lookup,
           "true: prompt look-up, which copies what followed the last n-gram like the end of the text.")
      .add("longest", &DrafterOptions::longest, Range{1, static_cast<double>(kMostLookup)}, Unit{"tokens"},
           "Longest n-gram that prompt look-up looks for.")
      .add("dtype", &DrafterOptions::dtype, Choices{"fp32", "bf16", "fp16", "fp64", "int8"},
           "Number type of a model or Tandem secondary; absent: the suite's.")
      .check(check_one_kind)
      .check(check_dtype);
}

}  // namespace draftsmith::infer
