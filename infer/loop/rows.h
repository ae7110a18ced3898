// Rows of a batch that is being decoded: tokens so far, limits, stop strings and statistics, with the target's state,
// transfers between host and device, and decode states that have processed the prompts.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/Event.h>

#include "base/aten.h"
#include "base/error.h"
#include "base/signals.h"
#include "base/util.h"
#include "data/tokenizers/tokenizer.h"
#include "infer/loop/decode_stats.h"
#include "infer/sampling/sampling.h"
#include "model/transformer/language_model.h"

namespace draftsmith::infer {

// Stop strings, as Transformers' `stop_strings`: an output ends with the token that completes one of them in its text.
// Follows the text of one output, prompt included: a stop string may begin in the prompt. Never matches half a
// character.
class StopStringMatcher {
 public:
  // `strings` must not hold empty ones. The tokenizer must outlive this.
  StopStringMatcher(std::shared_ptr<const std::vector<std::string>> strings, const data::Tokenizer& tokenizer);

  // Adds a token and returns whether its text completes a stop string, wherever in that text the string ends. Ids that
  // the tokenizer lacks have no text.
  bool add(int64_t token);

 private:
  std::shared_ptr<const std::vector<std::string>> strings_;
  const data::Tokenizer& tokenizer_;
  data::StreamDecoder decoder_;
  size_t longest_ = 0;   // bytes of the longest stop string
  std::string tail_;     // the text's last longest_ - 1 bytes
  size_t searched_ = 0;  // bytes of `tail_` and of what the decoder held behind it
};

// Attributes the time between calls of enter() to phases. On a GPU it records events, so timing adds no
// synchronisation.
class PhaseTimer {
 public:
  // Starts in kOther.
  explicit PhaseTimer(at::Device device);
  // Ends the current phase and begins another.
  void enter(Phase phase);
  // Returns the time since the last lap(), by phase. On a GPU it waits until the device has finished all earlier work.
  PhaseSeconds lap();

 private:
  using Clock = std::chrono::steady_clock;
  struct Mark {
    Phase phase;  // the phase that ended here
    c10::Event event;
  };
  c10::Event record() const;

  at::Device device_;
  Phase phase_ = Phase::kOther;
  Clock::time_point since_;
  PhaseSeconds seconds_;
  std::vector<Mark> marks_;  // on a GPU; marks_[0] is the beginning
};

struct Row {
  size_t output = 0;            // index of the row's result
  uint64_t line = 0;            // index of the input line, for messages
  std::vector<int64_t> source;  // encoder-decoder: the encoder's input; decoder-only: empty
  bool prompted = false;        // decoder-only: the prefix is a prompt
  std::vector<int64_t> tokens;  // committed: start token or prompt, then new tokens
  int64_t prefix = 0;           // length of the start token or prompt
  int64_t limit = 0;            // most new tokens
  RowRandom random{0, 0, 0};
  std::shared_ptr<StopStringMatcher> stops;  // has read `tokens`; null: no stop strings
  bool finished = false;
  std::optional<Problem> failure;  // the error that finished the row; its tokens are no output
  bool timed = false;              // finished, and has its share of the batch's time
  bool handover = false;           // the target writes the next token, the drafter drafts nothing
  bool behind = false;             // loops on devices: the drafter has not processed the token before the last
  DecodeStats stats;

  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  int64_t emitted() const { return length() - prefix; }
  int64_t remaining() const { return limit - emitted(); }
  // Returns the encoder's input or the prompt.
  std::span<const int64_t> input() const {
    return prompted ? std::span(tokens).first(static_cast<size_t>(prefix)) : std::span(source);
  }
  // Commits one token; finishes the row at an EOS, a stop string or the limit. Counts a token after the end as cut.
  void emit(int64_t token, std::span<const int64_t> eos);
  // Finishes the row with an error if `token`, meant for the new token with index `position`, is kNoToken. Returns
  // whether it did. `owner` of the logits: "target" or "drafter".
  bool fails(int64_t token, int64_t position, const std::string& owner);
};

// Returns a row before its first new token, without line, limit and random stream. `source` is the encoder's input or
// the prompt; an encoder-decoder's tokens begin with `decoder_start`.
Row row_before_output(const std::vector<int64_t>& source, bool encoder_decoder, int64_t decoder_start);

// Called with a row's new tokens as they are committed: index of its result, the tokens since the last call, and
// whether the row is finished. A row that fails is finished by a call without tokens.
using OnTokens = std::function<void(size_t output, std::span<const int64_t> tokens, bool finished)>;

// The next four return without waiting for a GPU to have its copy.

// Returns uniform random numbers, fp64 [B,count], for the new tokens from index emitted() + first on, on `device`.
at::Tensor uniforms(std::span<const Row> rows, Draw use, int64_t first, int64_t count, at::Device device);

// Returns each row's last committed token, int64 [B,1].
at::Tensor last_tokens(std::span<const Row> rows, at::Device device);

// Copies host values to an int64 tensor of the given shape on `device`.
at::Tensor to_device(std::span<const int64_t> values, at::IntArrayRef shape, at::Device device);

// Returns rows of tokens, padded on the right to the longest one, or to one token: int64 [B,L].
at::Tensor padded(std::span<const std::span<const int64_t>> rows, int64_t pad, at::Device device);

// Copies an int64 or bool tensor to the host, row-major.
std::vector<int64_t> to_host(const at::Tensor& tensor);

// Returns whether one of a batch's flags is set.
inline bool any(const std::vector<int64_t>& flags) {
  return std::any_of(flags.begin(), flags.end(), [](int64_t flag) { return flag != 0; });
}

// The rows that are decoded together, with the target's state.
struct RowBatch {
  std::vector<Row> rows;
  std::unique_ptr<model::DecodeState> state;  // the target's; holds all but each row's last committed token
  std::vector<Row> finished;                  // rows that left the batch
  OnTokens on_tokens;                         // may be empty

  // Returns whether rows are left to decode. Every loop asks before a round, where long work may end.
  bool goes_on() const {
    if (rows.empty()) return false;
    work_point();
    return true;
  }
  // Passes the tokens of `row` from index `before` on to on_tokens. remove_finished() reports the end of failed rows.
  void notify(const Row& row, int64_t before) const;
  // Returns the share that each unfinished row has in a step of the batch: 1 over their number.
  double share_of_step() const;
  // Moves finished rows to `finished` once a quarter of the batch is finished: states copy their caches to shrink.
  // `least`: so many rows stay, finished ones among them. Returns the indices of the rows that stay, or none if nothing
  // changed.
  std::vector<int64_t> remove_finished(int64_t least = 0);
  // Divides a batch's time equally among the rows that worked: those that were not finished at the last call.
  void add_time(const PhaseSeconds& seconds);
  // Does so with the timer's time if a row has finished since then. (Rows that go on together share later times
  // alike, and a GPU must be waited for to read its clock.)
  void share_time(PhaseTimer& timer);
};

// Prompts: decode states of which all prompt tokens but the last are processed.

struct StateSize {
  int64_t capacity = 0;  // tokens a row can hold
  int64_t samples = 1;   // rows for each source or prompt
};

struct Prefill {
  std::unique_ptr<model::DecodeState> state;
  // Hidden states of the prompts, in the form of DraftBegin::prompt_hidden.
  std::vector<at::Tensor> prompt_hidden;
};

// Returns the most tokens of a prompt that one step processes. Longer prompts take several steps, so that memory for
// attention scores grows with a prompt's length, not with its square.
int64_t prefill_chunk(at::Device device);

// Returns the state for `rows`, which are ordered sources x samples; the samples of a source have the same tokens.
// Encoder-decoder: an empty state over `encoder`, because the only committed token is the start token. Decoder-only:
// each prompt is processed once up to its last token, without logits, and its samples copy its keys and values. Also
// returns the prompts' hidden states, one tensor for each of `hidden_layers` (model::StepInput).
Prefill prefill(model::LanguageModel& model, const model::EncoderStates& encoder, std::span<const Row> rows,
                const StateSize& size, const std::vector<int64_t>& hidden_layers = {});

// Repeats each row of a state `samples` times: row i becomes the former row i / samples. Does nothing for samples = 1.
void repeat_rows(model::DecodeState& state, int64_t samples);

}  // namespace draftsmith::infer
