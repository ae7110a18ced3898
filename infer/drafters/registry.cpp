#include "infer/drafters/registry.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "infer/drafters/early_exit_drafter.h"
#include "infer/drafters/model_drafter.h"
#include "infer/drafters/tandem_drafter.h"
#include "infer/drafters/text_drafters.h"
#include "model/files/model_directory.h"
#include "model/models/shared_encoder.h"
#include "model/models/tandem.h"

namespace draftsmith::infer {

namespace {

namespace fs = std::filesystem;

using Spec = DrafterSpec;
using Load = model::LoadOptions;
using enum DrafterKind;

// A kind of drafter. To add one: its name in DrafterKind, its row, its keys in DrafterOptions, and its own two files.
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
  Spec (*given)(const DrafterOptions&) = nullptr;  // neither path nor number: a suite gives another kind
  SharedDrafter (*load)(const Spec&, const fs::path& target, const Load&) = nullptr;
};

// Loads an ordinary model, or one that shares the target's encoder.
SharedDrafter load_small_model(const Spec& spec, const fs::path& target, const Load& options) {
  if (model::kind_of_directory(spec.path) != model::shared_encoder_kind())
    return load_model_drafter(spec.path, options);
  return load_shared_encoder_drafter(spec.path, target, options);
}

std::span<const KindRow> kind_rows() {
  static_assert(kMostLookup == 16, "the text of the row lookup says so");
  using Given = DrafterOptions;
  static const KindRow kRows[] = {
      {.kind = kModel,
       .traits = {.name = "model", .is_model = true},
       .given = [](const Given& o) -> Spec {
         return {kModel, o.model};
       },
       .load = load_small_model},
      {.kind = kTandem,
       .traits = {.name = "tandem", .reads_target = true, .is_model = true},
       .given = [](const Given& o) -> Spec {
         return {kTandem, o.tandem};
       },
       .load = [](const Spec& s, const fs::path& target,
                  const Load& options) { return load_tandem_drafter(s.path, target, options); }},
      {.kind = kNgram,
       .traits = {.name = "ngram", .on_host = true},
       .prefix = "ngram",
       .what = "an n-gram drafter needs its table",
       .expected = "ngram:FILE",
       .hint = "make one with `draftsmith data ngrams`",
       .given = [](const Given& o) -> Spec {
         return {kNgram, o.ngram};
       },
       .load = [](const Spec& s, const fs::path&, const Load&) { return load_ngram_drafter(s.path); }},
      {.kind = kExit,
       .traits = {.name = "early-exit"},
       .prefix = "exit",
       .most = std::numeric_limits<int64_t>::max(),
       .what = "an early exit drafts with the first layers of the model",
       .expected = "exit:N with N from 1 to the model's number of decoder layers",
       .given = [](const Given& o) -> Spec {
         return {kExit, {}, o.exit};
       },
       .load = [](const Spec& s, const fs::path&, const Load&) { return exit_drafter(s.number); }},
      {.kind = kLookup,
       .traits = {.name = "lookup", .logits = false, .on_host = true},
       .prefix = "lookup",
       .most = kMostLookup,
       .usual = kLongestLookup,
       .what = "prompt look-up begins with n-grams of another length",
       .expected = "lookup, or lookup:N with N from 1 to 16",
       .given = [](const Given& o) -> Spec {
         return {kLookup, {}, o.lookup ? o.longest : 0};
       },
       .load = [](const Spec& s, const fs::path&, const Load&) { return lookup_drafter(s.number); }}};
  return kRows;
}

const KindRow& row_of(DrafterKind kind) {
  return *std::ranges::find(kind_rows(), kind, &KindRow::kind);
}

// Returns 0 for a text that is no number.
int64_t parse_number(const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size() ? number : 0;
}

// Reads a text "prefix" or "prefix:value".
Spec parse_prefixed(const KindRow& row, const std::string& text) {
  if (text == row.prefix) return {row.kind, {}, row.usual};
  const std::string value = text.substr(std::string_view(row.prefix).size() + 1);
  const int64_t number = parse_number(value);
  if (row.most == 0 && !value.empty()) return {row.kind, value};
  if (row.most > 0 && number >= 1 && number <= row.most) return {row.kind, {}, number};
  throw UserError({.where = "drafter", .what = row.what, .expected = row.expected, .found = text, .hint = row.hint});
}

// Returns each drafter that is given.
std::vector<Spec> given_specs(const DrafterOptions& drafter) {
  std::vector<Spec> specs;
  for (const KindRow& row : kind_rows()) {
    const Spec spec = row.given(drafter);
    if (!spec.path.empty() || spec.number > 0) specs.push_back(spec);
  }
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
  const DrafterTraits& traits = traits_of(drafter.spec().kind);
  if (!drafter.dtype || given_specs(drafter).size() != 1 || traits.is_model) return;
  problems.add({where + ".dtype", "this drafter is no model, so it has no number type", "dtype beside model or tandem",
                "dtype beside " + std::string(traits.name), "leave dtype out"});
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
  return {model::kind_of_directory(text) == model::tandem_kind() ? kTandem : kModel, text};
}

std::string drafter_help() {
  return fmt::format(
      "Directory of a drafter (an ordinary model, one that shares the model's encoder, a Tandem secondary of the "
      "model), or of the model itself; ngram:FILE for a table of "
      "`draftsmith data ngrams`; lookup[:N] to copy the continuation of the last N-gram (default {}) that equals the "
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
  return row_of(spec.kind).load(spec, target, options);
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
