#include "infer/decode_options.h"

namespace draftsmith::infer {

namespace {

void check_temperature(const DecodeOptions& options, const std::string& where, Problems& problems) {
  const bool samples = options.method != "greedy" && options.method != "assisted" && options.method != "ppd";
  if (samples || options.temperature.value_or(0) == 0) return;
  problems.add({.where = where,
                .what = "method " + options.method + " takes the most likely token and samples nothing",
                .expected = "temperature 0 or none",
                .found = "temperature " + std::to_string(*options.temperature),
                .hint = options.method == "greedy" ? "to sample, use the method sample"
                                                   : "to sample with a drafter, use the method speculative"});
}

void check_parts(const DecodeOptions& options, const std::string& where, Problems& problems) {
  if (!options.drafts() && (options.window_rule || options.acceptance)) {
    problems.add(
        {.where = where,
         .what = "method " + options.method + " drafts nothing, so it has no window or acceptance rule",
         .expected = "method speculative, assisted, bild, early-exit, tandem or tandem-speed",
         .found = options.window_rule ? "window_rule " + *options.window_rule : "acceptance " + *options.acceptance,
         .hint = "leave window_rule and acceptance out, or choose a method that drafts"});
  }
}

}  // namespace

Fields<DecodeOptions> DecodeOptions::fields() {
  using O = DecodeOptions;
  return Fields<O>("decoding options")
      .add("method", &O::method, Choices(decoding_methods()),
           "Decoding method: greedy and sample use the model alone; speculative is rejection sampling (lossless), "
           "assisted accepts what equals the model's own greedy tokens, bild is the Big Little Decoder. tandem keeps "
           "all that a Tandem secondary writes, the model only reads it; tandem-speed verifies it (lossless). Three "
           "need no second model: early-exit is BiLD whose drafter is the model's own first layers, calm lets each "
           "token leave the decoder where it looks finished, ppd begins the next token before one is finished "
           "(lossless).")
      .add("window", &O::window, Range{1, 256}, Unit{"tokens"},
           "Draft window G, tokens drafted before each verification; the initial window of assisted. "
           "Default 5; 20 for assisted with schedule constant.")
      .add("schedule", &O::schedule, Choices{"heuristic", "constant"},
           "How the dynamic window changes: heuristic adds 2 after a full acceptance and takes 1 off otherwise; "
           "constant keeps it.")
      .add("confidence", &O::confidence, Range{0, 1},
           "The dynamic window ends after a token that the drafter gave a probability below this; 0 is off. "
           "Default 0.4 for constant, 0 for heuristic.")
      .add("temperature", &O::temperature, Range{0, 1000},
           "Sampling temperature T, of target and drafter; 0 (or below 1e-30) takes the most likely token. Default: 0 "
           "for all but "
           "sample and speculative; for these the model's own setting or 1.")
      .add("top_k", &O::top_k, Range{0}, "Sample among the k most likely tokens; 0 is off.")
      .add("top_p", &O::top_p, Above{0}, Range{0, 1},
           "Sample from the smallest set of tokens that holds this share of the probability; 1 is off.")
      .add("seed", &O::seed, "Seed of all sampling. The same seed gives the same output at every batch size.")
      .add("fallback", &O::fallback, Range{0},
           "BiLD's fallback threshold alpha_FB: the drafter goes on while its largest probability is at least this. "
           "0 never falls back before max_draft, above 1 always.")
      .add("rollback", &O::rollback, Range{0}, AllowInfinity{},
           "BiLD's rollback threshold alpha_RB: a drafted token is taken back when -log p of the target exceeds it. "
           "inf never rolls back.")
      .add(
          "max_draft", &O::max_draft, Range{1, 256}, Unit{"tokens"},
          "Most tokens that the drafter writes before the target runs, of the windows fallback (BiLD), entropy, router "
          "and oracle. Default 10; of router its own.")
      .add("max_entropy", &O::max_entropy, Range{0}, AllowInfinity{}, Unit{"nats"},
           "The window entropy ends after a token that was taken from a distribution of more entropy than this.")
      .add("router", &O::router,
           "Directory of the router that the window router asks; it was trained for this drafter.")
      .add("threshold", &O::threshold, Range{0, 2},
           "The window router ends after a token whose predicted acceptance is below this. 0 never ends before "
           "max_draft, above 1 after each token. Default: the router's own, 0.8 unless it was tuned.")
      .add("rollback_rule", &O::rollback_rule, Choices{"effective", "literal", "released_code"},
           "effective: under greedy decoding a token that is the target's own choice is never rolled back (it would "
           "change nothing). literal: the paper's Algorithm 1. released_code: as the authors' program, where the "
           "target writes the first token and runs once more after each rollback.")
      .add("window_rule", &O::window_rule, Choices{"fixed", "fallback", "dynamic", "entropy", "router", "oracle"},
           "Replaces the method's window rule (bild with fixed is BiLD without fallback). router asks a trained "
           "predictor; oracle, of evaluations only, knows where the next rejection is.")
      .add("acceptance", &O::acceptance, Choices{"accept_all", "exact", "rejection", "rollback"},
           "Replaces the method's acceptance rule.")
      .add("exits", &O::exits,
           "Directory of exits, what reads the model's layers early. Default: draftsmith/exits inside the model's "
           "directory, or where there is none the model's own final norm and head.")
      .add("exit_layer", &O::exit_layer, Range{1}, Unit{"layers"},
           "Layers of the model that draft in the method early-exit, of its N; with N it is plain decoding. Default: "
           "the first layer that has an exit, else 1. Other methods draft so with the drafter exit:N.")
      .add("exit_measure", &O::exit_measure, Choices{"saturation", "margin"},
           "What tells calm that a token is finished: saturation is the cosine similarity of its hidden state to that "
           "of the layer before, margin the difference of the two largest probabilities its exit gives.")
      .add("exit_threshold", &O::exit_threshold, Range{0, 1},
           "calm's lambda: new token t of at most N leaves at the first layer whose measure exceeds "
           "clip(0.9 lambda + 0.1 exp(-temp t / N), 0, 1). At 1 no token leaves early, at 0 every one after layer 1.")
      .add("exit_decay", &O::exit_decay, Range{0},
           "calm's temp, how fast the threshold falls as an output grows; 0 keeps it at 0.9 lambda + 0.1.")
      .add("early_layer", &O::early_layer, Range{1}, Unit{"layers"},
           "Layer d-bar whose hidden state predicts the candidates of ppd, from half of the model's d layers to d - 1. "
           "Default: the first of these that has an exit, else half.")
      .add("candidates", &O::candidates, Range{1},
           "Most likely next tokens of layer d-bar that ppd begins with, k: each has a branch of its own.")
      .add("execution", &O::execution, Choices{"auto", "batched", "threads", "streams"}, NoResult{},
           "How ppd runs its branches beside the last layers: batched is one after the other on one device, the "
           "branches as one pass; threads gives each side its share of a CPU's cores; streams runs both on one GPU. "
           "auto: batched, the fastest on CPUs (of GPUs nothing was measured).")
      .add("free_token", &O::free_token,
           "Of accept_all (method tandem): the model writes the first token and one after each block of the drafter's. "
           "false: it writes none, and only supplies the drafter with representations of finished blocks.")
      .add("max_new_tokens", &O::max_new_tokens, Range{1, 1 << 20}, Unit{"tokens"},
           "Most tokens put out, EOS included. Default: the model's own setting, else 128. A decoder-only model's "
           "context may leave room for fewer.")
      .add("min_new_tokens", &O::min_new_tokens, Range{0, 1 << 20}, Unit{"tokens"},
           "EOS is impossible before this many new tokens.")
      .add("long_prompts", &O::long_prompts, Choices{"error", "truncate-left", "skip"},
           "A prompt that fills the context of the model or its drafter, so that no token could follow: error refuses "
           "it; truncate-left drops its beginning (never the BOS) so that max_new_tokens fit, at most half of the "
           "context; skip gives it an empty output.")
      .add("num_samples", &O::num_samples, Range{1, 4096},
           "Outputs for each input; they share one encoder run or prompt prefill.")
      .add("batch_size", &O::batch_size, Range{1, 4096}, "Inputs decoded together.")
      .add("measure_alpha", &O::measure_alpha, NoResult{},
           "Measure alpha, the mean of sum_x min(p, q), when sampling (costs a pass over the vocabulary for each "
           "token; at temperature 0 it is always measured).")
      .check([](const O& options, const std::string& where, Problems& problems) {
        check_temperature(options, where, problems);
        check_parts(options, where, problems);
      });
}

std::vector<std::string> decoding_methods() {
  return {"greedy", "sample", "speculative", "assisted", "bild", "tandem", "tandem-speed", "early-exit", "calm", "ppd"};
}

std::string DecodeOptions::window_rule_name() const {
  if (!drafts()) return {};
  if (window_rule) return *window_rule;
  if (method == "assisted") return "dynamic";
  return method == "bild" || drafts_inside() ? "fallback" : "fixed";
}

std::string DecodeOptions::acceptance_name() const {
  if (!drafts()) return {};
  if (acceptance) return *acceptance;
  if (method == "tandem") return "accept_all";
  if (method == "assisted") return "exact";
  return method == "bild" || drafts_inside() ? "rollback" : "rejection";
}

}  // namespace draftsmith::infer
