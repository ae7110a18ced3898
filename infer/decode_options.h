// Decoding methods, and the options of decoding: the method, its parts' parameters, sampling, lengths and batching.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "base/registry.h"

namespace draftsmith::infer {

// ---- The table of decoding methods, which the README shows to users

// Source of a method's drafts.
enum class DraftSource {
  kNone,       // nothing is drafted
  kDrafter,    // any drafter
  kTandem,     // a Tandem secondary of the target
  kOwnLayers,  // the target's first layers, whatever drafter is named
};

// Decoding algorithm.
enum class Algorithm {
  kPlain,        // token by token with the target alone
  kDraftVerify,  // the loop of drafter, window rule and acceptance rule
  kCalm,         // inside the target: each token leaves at an early layer
  kPpd,          // inside the target: the next token begins before one is finished
};

// Use of random numbers.
enum class Sampling {
  kNever,      // it takes the most likely token; the temperature must be 0
  kOnRequest,  // at the temperature that the user gives; 0 without one
  kByDefault,  // at the temperature that the user or the model gives; 1 without one
};

struct Method {
  std::string name;
  DraftSource drafts = DraftSource::kNone;
  Algorithm algorithm = Algorithm::kPlain;
  std::string window_rule;  // empty: none
  std::string acceptance;   // empty: none
  Sampling sampling = Sampling::kOnRequest;
  // True if the output at temperature 0 equals greedy decoding of the model and has the model's distribution at others,
  // for methods without an acceptance rule. The others are as lossless as their acceptance rule.
  bool lossless = false;

  bool is_baseline() const { return algorithm == Algorithm::kPlain; }
};

// Returns every method.
const Registry<Method>& decoding_methods();
// Returns the method that others are compared with at this temperature: greedy at 0, else sample.
const Method& baseline_method(double temperature);

struct DecodeOptions {
  std::string method = "greedy";
  std::optional<int64_t> window;             // absent: 5; 20 for assisted's constant schedule
  int64_t lookup = 0;                        // tokens of the shortest n-gram to copy behind; 0: the drafter drafts all
  std::string schedule = "heuristic";        // of the dynamic window
  std::optional<double> confidence;          // dynamic window's stop; absent: 0.4 for constant, 0 (off) for heuristic
  std::optional<double> temperature;         // absent: 0, or for sample and speculative the model's own setting, else 1
  std::optional<int64_t> top_k;              // absent: the model's own setting, else 0 (off)
  std::optional<double> top_p;               // absent: the model's own setting, else 1 (off)
  std::optional<double> min_p;               // absent: the model's own setting, else 0 (off)
  std::optional<double> repetition_penalty;  // absent: the model's own setting, else 1 (off)
  std::optional<int64_t> no_repeat_ngram_size;  // absent: the model's own setting, else 0 (off)
  std::vector<std::string> stop_strings;        // empty: the model's own setting, else none
  uint64_t seed = 1;
  double fallback = 0.5;
  double rollback = 5.0;
  std::optional<int64_t> max_draft;  // absent: 10; of the router its own
  double max_entropy = 1.0;          // nats, of the entropy window
  std::filesystem::path router;      // directory, of the router window
  std::optional<double> threshold;   // of the router window; absent: its own
  std::string rollback_rule = "effective";
  bool verify_end = false;  // of rollback: the target also judges drafts that end a text
  std::string window_rule;  // empty: the method's own
  std::string acceptance;   // empty: the method's own
  double lenience = 1;      // of rejection
  bool free_token = true;   // of accept_all: the target adds a token to each block
  // --- inside the model: early-exit, calm, ppd ---
  std::filesystem::path exits;              // directory of exits; empty: the model's own, if it has any
  std::optional<int64_t> exit_layer;        // of early-exit: layers that draft; absent: its first exit, else 1
  std::string exit_measure = "saturation";  // of calm
  double exit_threshold = 0.9;              // of calm: lambda
  double exit_decay = 4;                    // of calm: temp
  std::optional<int64_t> early_layer;       // of ppd: d-bar; absent: its first exit in d/2 .. d-1, else d/2
  int64_t candidates = 3;                   // of ppd: k
  std::optional<int64_t> max_new_tokens;    // absent: the model's own setting, else 128
  std::optional<int64_t> min_new_tokens;    // absent: the model's own setting, else 0
  std::string long_prompts = "error";
  int64_t num_samples = 1;
  std::optional<int64_t> batch_size;  // absent: 1; in suites the suite's
  bool measure_alpha = false;

  static Fields<DecodeOptions> fields();

  // Tokens of the fixed window.
  int64_t fixed_window() const { return window.value_or(5); }
  // Inputs decoded together.
  int64_t lines_together() const { return batch_size.value_or(1); }
  // Most tokens that the drafter writes in a row, of window rules without a length of their own.
  int64_t longest_draft() const { return max_draft.value_or(10); }

  // The method's row in the table of methods; a method without any property if the name is unknown.
  const Method& method_info() const;
  // Returns whether the method's drafter is a Tandem secondary of the target.
  bool needs_tandem() const { return method_info().drafts == DraftSource::kTandem; }
  // Returns whether the target's first layers draft, whatever drafter is named.
  bool drafts_inside() const { return method_info().drafts == DraftSource::kOwnLayers; }
  // Returns `lookup` if the acceptance rule verifies every token, else 0.
  int64_t copied_behind() const;
  // Returns whether the method decodes with the model's layers in an order of its own, without a drafter.
  bool decodes_inside() const {
    const Algorithm algorithm = method_info().algorithm;
    return algorithm == Algorithm::kCalm || algorithm == Algorithm::kPpd;
  }
  // Returns whether the method drafts, i.e. needs a drafter.
  bool drafts() const { return method_info().drafts != DraftSource::kNone; }
  // Returns whether the method samples when no temperature is given.
  bool samples_by_default() const { return method_info().sampling == Sampling::kByDefault; }
  // Names of the method's parts, overrides included; empty for methods without parts.
  std::string window_rule_name() const;
  std::string acceptance_name() const;

  // Returns whether the method or its parts read the field; fields without ReadBy are read by all.
  bool reads(const Field& field) const;
};

}  // namespace draftsmith::infer
