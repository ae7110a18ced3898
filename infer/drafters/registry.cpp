#include "infer/drafters/registry.h"

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/util.h"
#include "data/ngrams/ngram_table.h"
#include "infer/drafters/model_drafter.h"
#include "infer/drafters/tandem_drafter.h"
#include "model/files/model_directory.h"
#include "model/models/companion.h"
#include "model/models/feature_drafter.h"
#include "model/models/shared_encoder.h"
#include "model/models/tandem.h"

namespace draftsmith::infer {
namespace {

namespace fs = std::filesystem;

using Spec = DrafterSpec;
using enum DrafterKind;

// A kind of drafter. To add one: its name in DrafterKind, its row, its keys in DrafterOptions with given_specs(), its
// case in load_drafter(), and its own two files.
struct KindRow {
  DrafterKind kind = kModel;
  DrafterTraits traits = {};
  const char* prefix = "";  // of texts like prefix:FILE or prefix:N; empty: the text is a directory
  int64_t most = 0;         // largest N; 0: a file follows
  int64_t usual = 0;        // N where the prefix stands alone; 0: it may not
  // What is wrong with another text (base/error.h).
  const char* what = "";
  const char* expected = "";
  const char* hint = "";
};

std::span<const KindRow> kind_rows() {
  static_assert(kMostLookup == 16, "the text of the row lookup says so");
  static const KindRow kRows[] = {
      {.kind = kModel, .traits = {.name = "model", .is_model = true}},
      {.kind = kTandem, .traits = {.name = "tandem", .reads_target = true, .is_model = true}},
      {.kind = kFeatures, .traits = {.name = "features", .reads_target = true, .is_model = true}},
      {.kind = kNgram,
       .traits = {.name = "ngram", .on_host = true},
       .prefix = "ngram",
       .what = "an n-gram drafter needs its table",
       .expected = "ngram:FILE",
       .hint = "make one by a stage of kind = \"ngram\""},
      {.kind = kExit,
       .traits = {.name = "early-exit", .in_target = true},
       .prefix = "exit",
       .most = std::numeric_limits<int64_t>::max(),
       .what = "an early exit drafts with the first layers of the model",
       .expected = "exit:N with N from 1 to the model's number of decoder layers"},
      {.kind = kLookup,
       .traits = {.name = "lookup", .logits = false, .on_host = true},
       .prefix = "lookup",
       .most = kMostLookup,
       .usual = kLongestLookup,
       .what = "prompt look-up begins with n-grams of another length",
       .expected = "lookup, or lookup:N with N from 1 to 16"}};
  return kRows;
}

const KindRow& row_of(DrafterKind kind) {
  return *std::ranges::find(kind_rows(), kind, &KindRow::kind);
}

// Reads a text "prefix" or "prefix:value".
Spec parse_prefixed(const KindRow& row, const std::string& text) {
  if (text == row.prefix) return {row.kind, {}, row.usual};
  const std::string value = text.substr(std::string_view(row.prefix).size() + 1);
  const int64_t number = parse_whole<int64_t>(value).value_or(0);
  if (row.most == 0 && !value.empty()) return {row.kind, value};
  if (row.most > 0 && number >= 1 && number <= row.most) return {row.kind, {}, number};
  throw UserError({.where = "drafter", .what = row.what, .expected = row.expected, .found = text, .hint = row.hint});
}

// Returns each drafter that is given.
std::vector<Spec> given_specs(const DrafterOptions& drafter) {
  std::vector<Spec> specs = {{kModel, drafter.model},       {kTandem, drafter.tandem},
                             {kFeatures, drafter.features}, {kNgram, drafter.ngram},
                             {kExit, {}, drafter.exit},     {kLookup, {}, drafter.lookup ? drafter.longest : 0}};
  std::erase_if(specs, [](const Spec& spec) { return spec.path.empty() && spec.number == 0; });
  return specs;
}

// Reports a problem unless exactly one kind is given.
void check_one_kind(const DrafterOptions& drafter, const std::string& where, Problems& problems) {
  const size_t given = given_specs(drafter).size();
  if (given == 1) return;
  problems.add({where, "the drafter must be given in one way",
                "one of model, tandem, features, ngram, exit and lookup = true",
                given == 0 ? "none of them" : "several of them", ""});
}

// Reports problems if a drafter that is no model has a number type, and if one that copies nothing says how much it
// compares.
void check_extras(const DrafterOptions& drafter, const std::string& where, Problems& problems) {
  const DrafterTraits& traits = traits_of(drafter.spec().kind);
  if (drafter.dtype && given_specs(drafter).size() == 1 && !traits.is_model) {
    problems.add({where + ".dtype", "this drafter is no model, so it has no number type",
                  "dtype beside model, tandem or features", "dtype beside " + std::string(traits.name),
                  "leave dtype out"});
  }
  if (!drafter.lookup && drafter.longest != kLongestLookup) {
    problems.add(
        {where + ".longest", "this drafter looks nothing up", "longest beside lookup = true", "", "leave longest out"});
  }
}

}  // namespace

const DrafterTraits& traits_of(DrafterKind kind) {
  return row_of(kind).traits;
}

DrafterSpec parse_drafter(const std::string& text) {
  for (const KindRow& row : kind_rows()) {
    const std::string prefix = row.prefix;
    if (prefix.empty()) continue;
    if (text.starts_with(prefix + ":") || (row.usual > 0 && text == prefix)) return parse_prefixed(row, text);
  }
  const model::ModelKind& kind = model::kind_of_directory(text);
  return {kind == model::tandem_kind() ? kTandem : kind == model::features_kind() ? kFeatures : kModel, text};
}

std::string drafter_help() {
  return fmt::format(
      "Directory of a drafter (an ordinary model, one that shares the model's encoder, a Tandem secondary or a "
      "features drafter of the model), or of the model itself; ngram:FILE for a table that a "
      "recipe's stage of kind ngram made; lookup[:N] to copy the continuation of the last N-gram (default {}) that "
      "equals the "
      "end of the text; or exit:N for the model's own first N layers",
      kLongestLookup);
}

std::string to_text(const DrafterSpec& spec) {
  const KindRow& row = row_of(spec.kind);
  const std::string prefix = row.prefix;
  if (prefix.empty()) return spec.path.string();
  return prefix + ":" + (row.most > 0 ? std::to_string(spec.number) : spec.path.string());
}

SharedDrafter load_drafter(const DrafterSpec& spec, const fs::path& target, const model::LoadOptions& options) {
  switch (spec.kind) {
    case kModel:
      if (model::kind_of_directory(spec.path) != model::shared_encoder_kind())
        return load_model_drafter(spec.path, options);
      return shared_encoder_drafter(
          model::load_with_companion(model::shared_encoder_kind(), spec.path, target, options), nullptr, spec.path);
    case kTandem:
      return tandem_drafter(model::load_with_companion(model::tandem_kind(), spec.path, target, options), nullptr,
                            spec.path);
    case kFeatures:
      return features_drafter(model::load_with_companion(model::features_kind(), spec.path, target, options), nullptr,
                              spec.path);
    case kNgram:
      return as_drafter(std::make_shared<data::NgramTable>(spec.path));
    case kExit:
      return exit_drafter(spec.number);
    case kLookup:
      break;
  }
  return lookup_drafter(spec.number);
}

DrafterSpec DrafterOptions::spec() const {
  const std::vector<DrafterSpec> specs = given_specs(*this);
  return specs.empty() ? DrafterSpec{} : specs.back();
}

Fields<DrafterOptions> DrafterOptions::fields() {
  return Fields<DrafterOptions>("evaluation drafter")
      .add("name", &DrafterOptions::name, Required{}, "Name by which runs refer to the drafter; not \"target\".")
      .add("model", &DrafterOptions::model,
           "Directory of a small model, or of one that shares the encoder of the suite's.")
      .add("tandem", &DrafterOptions::tandem, "Directory of a Tandem secondary of the suite's model.")
      .add("features", &DrafterOptions::features, "Directory of a features drafter of the suite's model.")
      .add("ngram", &DrafterOptions::ngram, "N-gram table, made by a stage of kind = \"ngram\".")
      .add("exit", &DrafterOptions::exit, Range{0}, Unit{"layers"},
           "First so many layers of the model that decodes, read by its exits if it has any; 0: none.")
      .add("lookup", &DrafterOptions::lookup,
           "true: prompt look-up, which copies what followed the last n-gram like the end of the text.")
      .add("longest", &DrafterOptions::longest, Range{1, static_cast<double>(kMostLookup)}, Unit{"tokens"},
           "Longest n-gram that prompt look-up looks for.")
      .add("dtype", &DrafterOptions::dtype, Choices{"fp32", "bf16", "fp16", "fp64", "int8"},
           "Number type of a model, Tandem secondary or features drafter; absent: the suite's.")
      .check(check_one_kind)
      .check(check_extras);
}

}  // namespace draftsmith::infer
