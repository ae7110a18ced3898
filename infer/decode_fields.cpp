// The table of decoding methods, what DecodeOptions say of their method, and the list of their fields: command line,
// help, suites' grids, labels, results and messages come from it.
#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "infer/acceptance/acceptance_rules.h"
#include "infer/decode_options.h"
#include "infer/drafters/registry.h"
#include "infer/load_models.h"
#include "infer/self_drafting/methods.h"
#include "infer/windows/window_rules.h"

namespace draftsmith::infer {

const Registry<Method>& decoding_methods() {
  using enum DraftSource;
  using enum Algorithm;
  using enum Sampling;
  // name, drafts from, algorithm, window rule, acceptance rule, sampling, lossless without an acceptance rule
  static const Registry<Method> kMethods("method",
                                         {{"greedy", kNone, kPlain, "", "", kNever, true},
                                          {"sample", kNone, kPlain, "", "", kByDefault, true},
                                          {"speculative", kDrafter, kDraftVerify, "fixed", "rejection", kByDefault},
                                          {"assisted", kDrafter, kDraftVerify, "dynamic", "exact", kNever},
                                          {"bild", kDrafter, kDraftVerify, "fallback", "rollback", kOnRequest},
                                          {"tandem", kTandem, kDraftVerify, "fixed", "accept_all", kOnRequest},
                                          {"tandem-speed", kTandem, kDraftVerify, "fixed", "rejection", kOnRequest},
                                          {"early-exit", kOwnLayers, kDraftVerify, "fallback", "rollback", kOnRequest},
                                          {"calm", kNone, kCalm, "", "", kOnRequest, false},
                                          {"ppd", kNone, kPpd, "", "", kOnRequest, true}});
  return kMethods;
}

const Method& baseline_method(double temperature) {
  return decoding_methods().at(temperature == 0 ? "greedy" : "sample");
}

const Method& DecodeOptions::method_info() const {
  static const Method kUnknown;
  const Method* found = decoding_methods().find(method);
  return found == nullptr ? kUnknown : *found;
}

std::string DecodeOptions::window_rule_name() const {
  return drafts() && !window_rule.empty() ? window_rule : method_info().window_rule;
}

std::string DecodeOptions::acceptance_name() const {
  return drafts() && !acceptance.empty() ? acceptance : method_info().acceptance;
}

namespace {

// Returns the acceptance rules that verify every token.
const std::vector<std::string>& verifying_rules() {
  static const std::vector<std::string> kRules = {"exact", "rejection", "block"};
  return kRules;
}

}  // namespace

int64_t DecodeOptions::copied_behind() const {
  return std::ranges::count(verifying_rules(), acceptance_name()) > 0 ? lookup : 0;
}

bool DecodeOptions::reads(const Field& field) const {
  if (!field.read_by) return true;
  const auto& [part, names] = *field.read_by;
  const std::string in_use = part == "window_rule"  ? window_rule_name()
                             : part == "acceptance" ? acceptance_name()
                                                    : method;
  return std::find(names.begin(), names.end(), in_use) != names.end();
}

namespace {

using O = DecodeOptions;

// Names of rules, and the empty one for the method's own.
Choices or_none(std::vector<std::string> names) {
  names.insert(names.begin(), "");
  return Choices(std::move(names));
}

void check_temperature(const O& options, const std::string& where, Problems& problems) {
  const Method& method = options.method_info();
  if (method.sampling != Sampling::kNever || options.temperature.value_or(0) == 0) return;
  problems.add({.where = where,
                .what = "method " + options.method + " takes the most likely token and samples nothing",
                .expected = "temperature 0 or none",
                .found = "temperature " + std::to_string(*options.temperature),
                .hint = !options.drafts() ? "to sample, use the method sample"
                                          : "to sample with a drafter, use the method speculative"});
}

// Returns the names of the methods that draft: "a, b or c".
std::string drafting_methods() {
  std::vector<std::string> names;
  for (const Method& method : decoding_methods()) {
    if (method.drafts != DraftSource::kNone) names.push_back(method.name);
  }
  return fmt::format("{} or {}", fmt::join(names.begin(), names.end() - 1, ", "), names.back());
}

void check_parts(const O& options, const std::string& where, Problems& problems) {
  if (options.drafts() || (options.window_rule.empty() && options.acceptance.empty())) return;
  problems.add({.where = where,
                .what = "method " + options.method + " drafts nothing, so it has no window or acceptance rule",
                .expected = "method " + drafting_methods(),
                .found = !options.window_rule.empty() ? "window_rule " + options.window_rule
                                                      : "acceptance " + options.acceptance,
                .hint = "leave window_rule and acceptance out, or choose a method that drafts"});
}

void add_sampling(Fields<O>& fields) {
  fields
      .add("temperature", &O::temperature, GridKey::kList, OuterLoop{}, Label{"T"}, Range{0, 1000},
           "Sampling temperature T of target and drafter; 0 (or below 1e-30) takes the most likely token. Default: 0; "
           "for sample and speculative the model's own setting or 1 (in suites always 1).")
      .add("top_k", &O::top_k, GridKey::kList, OuterLoop{}, Range{0},
           UnnamedIf<O>{[](const O& o) { return o.top_k.value_or(0) == 0; }},
           "Sample among the k most likely tokens; 0 is off.")
      .add("top_p", &O::top_p, GridKey::kList, OuterLoop{}, Above{0}, Range{0, 1},
           UnnamedIf<O>{[](const O& o) { return o.top_p.value_or(1) == 1; }},
           "Sample from the smallest set of tokens that holds this share of the probability; 1 is off.")
      .add("min_p", &O::min_p, GridKey::kList, OuterLoop{}, Range{0, 1},
           UnnamedIf<O>{[](const O& o) { return o.min_p.value_or(0) == 0; }},
           "Sample among tokens that are at least this share as likely as the most likely one, after the other "
           "truncations; 0 is off.");
}

void add_processors(Fields<O>& fields) {
  fields
      .add("repetition_penalty", &O::repetition_penalty, GridKey::kList, OuterLoop{}, Above{0}, Range{0, 1e6},
           "Divides the positive and multiplies the negative logits of tokens that prompt or output already hold. "
           "1 is off. Default: the model's own setting.")
      .add("no_repeat_ngram_size", &O::no_repeat_ngram_size, GridKey::kList, OuterLoop{}, Range{0}, Unit{"tokens"},
           "No n-gram of this size appears twice in prompt and output; 0 is off. Default: the model's own setting.")
      .add("min_new_tokens", &O::min_new_tokens, GridKey::kList, OuterLoop{}, Label{"min_new"}, Range{0, 1 << 20},
           Unit{"tokens"}, "EOS is impossible before this many new tokens. Default: the model's own setting.")
      .add("stop_strings", &O::stop_strings, GridKey::kValue, OuterLoop{}, Label{"stop"},
           "Texts that end an output: the token that completes one is its last. Default: the model's own setting.");
}

void check_stop_strings(const O& options, const std::string& where, Problems& problems) {
  if (std::ranges::none_of(options.stop_strings, &std::string::empty)) return;
  problems.add({.where = where,
                .what = "a stop string is empty",
                .expected = "strings of at least one character",
                .found = "\"\"",
                .hint = "leave it out"});
}

void add_window_options(Fields<O>& fields) {
  fields
      .add("window", &O::window, GridKey::kList, ReadBy{"window_rule", {"fixed", "dynamic"}}, Label{"G"}, Range{1, 256},
           Unit{"tokens"},
           "Draft window G, tokens drafted before each verification; the initial window of assisted. "
           "Default 5; 20 for assisted with schedule constant.")
      .add("lookup", &O::lookup, GridKey::kList, ReadBy{"acceptance", verifying_rules()}, Label{"L"},
           Range{0, kMostLookup}, Unit{"tokens"},
           "Prompt look-up before a drafter: where the last so many tokens of the text stood before, in prompt, source "
           "or output, copies what followed them there; elsewhere the drafter drafts. 2 is a good choice, 0 is off.")
      .add(
          "schedule", &O::schedule, GridKey::kList, ReadBy{"window_rule", {"dynamic"}},
          Choices(window_schedules().names()),
          "How the dynamic window changes: heuristic adds 2 after a full acceptance and takes 1 off otherwise. It goes "
          "on across texts where the output does not depend on windows: in lossless greedy decoding. "
          "heuristic_transient begins each text anew; constant keeps the window, and its confidence too (Transformers "
          "adapts the confidence by an ROC curve).")
      .add("confidence", &O::confidence, GridKey::kList, ReadBy{"window_rule", {"dynamic"}}, Range{0, 1},
           "The dynamic window ends after a token that the drafter gave a probability below this; 0 is off. "
           "Default 0.4 for constant, else 0.")
      .add("fallback", &O::fallback, GridKey::kList, ReadBy{"window_rule", {"fallback"}}, Label{"FB"}, AlwaysNamed{},
           Range{0},
           "BiLD's fallback threshold alpha_FB: the drafter goes on while its largest probability is at least this. "
           "0 never falls back before max_draft, above 1 always.")
      .add("rollback", &O::rollback, GridKey::kList, ReadBy{"acceptance", {"rollback"}}, Label{"RB"}, AlwaysNamed{},
           Range{0}, AllowInfinity{},
           "BiLD's rollback threshold alpha_RB: a drafted token is taken back when -log p of the target exceeds it. "
           "inf never rolls back.")
      .add("max_draft", &O::max_draft, GridKey::kList,
           ReadBy{"window_rule", {"fallback", "entropy", "router", "oracle"}},
           UnnamedIf<O>{[](const O& o) { return o.longest_draft() == 10 && o.window_rule_name() != "router"; }},
           Range{1, 256}, Unit{"tokens"},
           "Most tokens that the drafter writes before the target runs, of the windows fallback (BiLD), entropy, "
           "router and oracle. Default 10; of the router its own.")
      .add("max_entropy", &O::max_entropy, GridKey::kList, ReadBy{"window_rule", {"entropy"}}, Label{"H"},
           AlwaysNamed{}, Range{0}, AllowInfinity{}, Unit{"nats"},
           "The window entropy ends after a token that was taken from a distribution of more entropy than this.")
      .add("router", &O::router, GridKey::kValue, ReadBy{"window_rule", {"router"}}, Label{""},
           "Directory of the router that the window router asks; it was trained for this drafter.")
      .add("threshold", &O::threshold, GridKey::kList, ReadBy{"window_rule", {"router"}}, Label{"tau"}, Range{0, 2},
           "The window router ends after a token whose predicted acceptance is below this. 0 never ends before "
           "max_draft, above 1 after each token. Default: the router's own, 0.8 unless it was trained with another.")
      .add("rollback_rule", &O::rollback_rule, GridKey::kList, ReadBy{"acceptance", {"rollback"}},
           Choices(rollback_rules().names()),
           "effective: under greedy decoding a token that is the target's own choice is never rolled back (it would "
           "change nothing). literal: the paper's Algorithm 1.")
      .add(
          "verify_end", &O::verify_end, GridKey::kValue, ReadBy{"acceptance", {"rollback"}},
          "The target also judges a draft that ends with EOS or at the length limit. Without it such a draft is final, "
          "as in the paper: BiLD stops once the last token is EOS, whoever wrote it. Drafters that only propose tokens "
          "(look-up) are always judged.")
      .add("window_rule", &O::window_rule, GridKey::kValue, or_none(window_rule_names()),
           "Replaces the method's window rule (bild with fixed is BiLD without fallback). router asks a trained "
           "predictor. oracle stops exactly before the first rejection, which an untimed pass finds: the upper bound "
           "at temperature 0, for evaluations only.")
      .add("acceptance", &O::acceptance, GridKey::kValue, or_none(acceptance_rule_names()),
           "Replaces the method's acceptance rule.")
      .add("lenience", &O::lenience, GridKey::kList, ReadBy{"acceptance", {"rejection"}}, Label{"len"}, Range{1e-30, 1},
           UnnamedIf<O>{[](const O& o) { return o.lenience == 1; }},
           "Leviathan's lenience l: a drafted token counts as l times as likely under the drafter, so more are kept, "
           "and no token is put out with more than 1/l of its probability. Greedy decoding keeps tokens at least l "
           "times as likely as the most likely one. 1 is lossless.")
      .add("free_token", &O::free_token, GridKey::kValue, ReadBy{"acceptance", {"accept_all"}},
           "Of accept_all (method tandem): the model writes the first token and one after each block of the drafter. "
           "false: it writes none, and only supplies the drafter with representations of finished blocks.");
}

void add_inside_options(Fields<O>& fields) {
  fields
      .add("exits", &O::exits, GridKey::kValue, Label{""},
           "Directory of exits, which read the model's layers early. Default: draftsmith/exits inside the model's "
           "directory, or where there is none the model's own final norm and head.")
      .add("exit_layer", &O::exit_layer, GridKey::kList, ReadBy{"method", {"early-exit"}}, Label{"exit"}, Range{1},
           Unit{"layers"},
           "Layers of the model that draft in the method early-exit, of its N; with N it is plain decoding. Default: "
           "the first layer that has an exit, else 1. Other methods draft so with the drafter exit:N.")
      .add("exit_measure", &O::exit_measure, GridKey::kList, ReadBy{"method", {"calm"}}, AlwaysNamed{},
           Choices(exit_measures().names()),
           "How calm sees that a token is finished: saturation is the cosine similarity of its hidden state to that "
           "of the layer before (0 after layer 1), margin the difference of the two largest probabilities its exit "
           "gives.")
      .add("exit_threshold", &O::exit_threshold, GridKey::kList, ReadBy{"method", {"calm"}}, Label{"lambda"},
           AlwaysNamed{}, Range{0, 1},
           "calm's lambda: new token t of at most N leaves at the first layer whose measure exceeds "
           "clip(0.9 lambda + 0.1 exp(-temp t / N), 0, 1). At 1 no token leaves early, at 0 every one after layer 1.")
      .add("exit_decay", &O::exit_decay, GridKey::kList, ReadBy{"method", {"calm"}}, Label{"temp"}, AlwaysNamed{},
           Range{0}, "calm's temp, how fast the threshold falls as an output grows; 0 keeps it at 0.9 lambda + 0.1.")
      .add("early_layer", &O::early_layer, GridKey::kList, ReadBy{"method", {"ppd"}}, Label{"d"}, Range{1},
           Unit{"layers"},
           "Layer d-bar whose hidden state predicts the candidates of ppd, from half of the model's d layers to d - 1. "
           "Default: the first of these that has an exit, else half.")
      .add("candidates", &O::candidates, GridKey::kList, ReadBy{"method", {"ppd"}}, Label{"k"}, AlwaysNamed{}, Range{1},
           "Most likely next tokens of layer d-bar that ppd begins with, k: each has a branch of its own.");
}

void add_lengths(Fields<O>& fields) {
  fields
      .add("num_samples", &O::num_samples, GridKey::kList, OuterLoop{}, Label{"samples"}, Range{1, 4096},
           "Outputs for each input; they share one encoder run or prompt prefill. In suites counts and speed are of "
           "all outputs, quality is of the first.")
      .add("max_new_tokens", &O::max_new_tokens, Range{1, 1 << 20}, Unit{"tokens"},
           "Most tokens put out, EOS included. Default: the model's own setting, else 128. A decoder-only model's "
           "context may leave room for fewer.")
      .add("long_prompts", &O::long_prompts, Choices(long_prompt_policies().names()),
           "A prompt that fills the model's context, so that no token could follow: error refuses it;"
           " truncate-left drops its beginning (never the BOS) so that max_new_tokens fit, at most half of the "
           "context; skip gives it an empty output.")
      .add("batch_size", &O::batch_size, GridKey::kList, OuterLoop{}, Label{"batch"}, Range{1, 4096}, Unit{"inputs"},
           "Inputs decoded together. Default: 1; in suites the suite's own, and baselines have the same.")
      .add("seed", &O::seed, "Seed of all sampling: the same outputs at every batch size, but for rounding.")
      .add("measure_alpha", &O::measure_alpha, NoResult{},
           "Measure alpha, the mean of sum_x min(p, q), when sampling (costs a pass over the vocabulary for each "
           "token; at temperature 0 it is always measured).");
}

}  // namespace

Fields<DecodeOptions> DecodeOptions::fields() {
  Fields<O> fields("decoding options");
  fields.add("method", &O::method, GridKey::kRequired, Choices(decoding_methods().names()),
             "Decoding method: greedy and sample use the model alone; speculative is rejection sampling (lossless), "
             "assisted accepts what equals the model's own greedy tokens, bild is the Big Little Decoder. tandem keeps "
             "all that a Tandem secondary writes, the model only reads it; tandem-speed verifies it (lossless). Three "
             "need no second model: early-exit is BiLD whose drafter is the model's own first layers, calm lets each "
             "token leave the decoder where it looks finished, ppd begins the next token before one is finished "
             "(lossless).");
  add_sampling(fields);
  add_processors(fields);
  add_window_options(fields);
  add_inside_options(fields);
  add_lengths(fields);
  fields.check([](const O& options, const std::string& where, Problems& problems) {
    check_temperature(options, where, problems);
    check_parts(options, where, problems);
    check_stop_strings(options, where, problems);
  });
  return fields;
}

}  // namespace draftsmith::infer
