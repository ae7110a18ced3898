#include "infer/loop/rows.h"

#include <algorithm>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "base/device_tensors.h"

namespace draftsmith::infer {
namespace {

// Returns without waiting for a GPU to have its copy.
at::Tensor copied_to(const at::Tensor& host, at::Device device) {
  return device.is_cpu() ? host : host.to(device, /*non_blocking=*/true);
}

}  // namespace

void Row::emit(int64_t token, std::span<const int64_t> eos) {
  if (finished) {
    ++stats.cut;
    return;
  }
  tokens.push_back(token);
  ++stats.emitted;
  const bool stopped = stops && stops->add(token);
  finished = stopped || remaining() == 0 || std::find(eos.begin(), eos.end(), token) != eos.end();
}

bool Row::fails(int64_t token, int64_t position, const std::string& owner) {
  if (token != kNoToken) return false;
  finished = true;
  failure = {.where = "input " + std::to_string(line + 1) + ", new token " + std::to_string(position + 1),
             .what = "the logits of the " + owner + " are not finite numbers",
             .expected = "finite logits",
             .found = "NaN or infinity",
             .hint = "the weights are damaged, or numbers overflow: try dtype fp32"};
  return true;
}

Row row_before_output(const std::vector<int64_t>& source, bool encoder_decoder, int64_t decoder_start) {
  Row row;
  row.prompted = !encoder_decoder;
  if (encoder_decoder) row.source = source;
  row.tokens = encoder_decoder ? std::vector<int64_t>{decoder_start} : source;
  row.prefix = row.length();
  return row;
}

at::Tensor uniforms(std::span<const Row> rows, Draw use, int64_t first, int64_t count, at::Device device) {
  auto values = host_empty({static_cast<int64_t>(rows.size()), count}, at::kDouble);
  double* out = values.mutable_data_ptr<double>();
  for (const Row& row : rows) {
    for (int64_t j = 0; j < count; ++j) *out++ = row.random.uniform(use, row.emitted() + first + j);
  }
  return copied_to(values, device);
}

at::Tensor last_tokens(std::span<const Row> rows, at::Device device) {
  auto tokens = host_empty({std::ssize(rows), 1}, at::kLong);
  int64_t* out = tokens.mutable_data_ptr<int64_t>();
  for (const Row& row : rows) *out++ = row.tokens.back();
  return copied_to(tokens, device);
}

at::Tensor to_device(std::span<const int64_t> values, at::IntArrayRef shape, at::Device device) {
  auto tensor = host_empty(shape, at::kLong);
  std::ranges::copy(values, tensor.mutable_data_ptr<int64_t>());
  return copied_to(tensor, device);
}

at::Tensor padded(std::span<const std::span<const int64_t>> rows, int64_t pad, at::Device device) {
  size_t width = 1;
  for (const auto& row : rows) width = std::max(width, row.size());
  auto tensor = host_empty({std::ssize(rows), static_cast<int64_t>(width)}, at::kLong);
  int64_t* out = tensor.mutable_data_ptr<int64_t>();
  for (const auto& row : rows) {
    std::ranges::copy(row, out);
    std::fill(out + row.size(), out + width, pad);
    out += width;
  }
  return copied_to(tensor, device);
}

std::vector<int64_t> to_host(const at::Tensor& tensor) {
  const bool is_there = tensor.is_cpu() && tensor.scalar_type() == at::kLong;
  const auto host = (is_there ? tensor : tensor.to(at::kCPU, at::kLong)).contiguous();
  const int64_t* values = host.const_data_ptr<int64_t>();
  return {values, values + host.numel()};
}

double RowBatch::share_of_step() const {
  return 1 / static_cast<double>(std::max<int64_t>(std::ranges::count(rows, false, &Row::finished), 1));
}

std::vector<int64_t> RowBatch::remove_finished(int64_t least) {
  const int64_t ended = std::ranges::count(rows, true, &Row::finished);
  if (4 * ended < std::ssize(rows)) return {};
  int64_t spare = least - (std::ssize(rows) - ended);
  std::vector<int64_t> kept;
  std::vector<Row> left;
  for (size_t b = 0; b < rows.size(); ++b) {
    const bool leaves = rows[b].finished && spare-- <= 0;
    if (!leaves) kept.push_back(static_cast<int64_t>(b));
    if (leaves && rows[b].failure && on_tokens) on_tokens(rows[b].output, {}, true);
    (leaves ? finished : left).push_back(std::move(rows[b]));
  }
  rows = std::move(left);
  if (!kept.empty()) state->select_rows(kept);
  return kept;
}

void RowBatch::add_time(const PhaseSeconds& seconds) {
  const auto working = std::ranges::count(rows, false, &Row::timed);
  const PhaseSeconds part = seconds.scaled(1.0 / static_cast<double>(std::max<int64_t>(working, 1)));
  for (Row& row : rows) {
    if (row.timed) continue;
    row.stats.seconds += part;
    row.timed = row.finished;
  }
}

void RowBatch::share_time(PhaseTimer& timer) {
  const bool ended = std::ranges::any_of(rows, [](const Row& row) { return row.finished && !row.timed; });
  if (ended) add_time(timer.lap());
}

void RowBatch::notify(const Row& row, int64_t before) const {
  if (!on_tokens || row.length() == before) return;
  on_tokens(row.output, std::span(row.tokens).subspan(static_cast<size_t>(before)), row.finished && !row.failure);
}

PhaseTimer::PhaseTimer(at::Device device) : device_(device), since_(Clock::now()) {
  if (!device_.is_cpu()) {
    marks_.push_back({Phase::kOther, record()});
  }
}

c10::Event PhaseTimer::record() const {
  c10::Event event(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  event.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  return event;
}

void PhaseTimer::enter(Phase phase) {
  if (device_.is_cpu()) {
    const auto now = Clock::now();
    seconds_[phase_] += std::chrono::duration<double>(now - since_).count();
    since_ = now;
  } else {
    marks_.push_back({phase_, record()});
  }
  phase_ = phase;
}

PhaseSeconds PhaseTimer::lap() {
  enter(phase_);
  if (!device_.is_cpu()) {
    marks_.back().event.synchronize();
    for (size_t i = 1; i < marks_.size(); ++i) {
      seconds_[marks_[i].phase] += marks_[i - 1].event.elapsedTime(marks_[i].event) * 1e-3;
    }
    marks_.erase(marks_.begin(), marks_.end() - 1);
  }
  return std::exchange(seconds_, {});
}

StopStringMatcher::StopStringMatcher(std::shared_ptr<const std::vector<std::string>> strings,
                                     const data::Tokenizer& tokenizer)
    : strings_(std::move(strings)), tokenizer_(tokenizer), decoder_(tokenizer) {
  for (const std::string& stop : *strings_) longest_ = std::max(longest_, stop.size());
}

bool StopStringMatcher::add(int64_t token) {
  if (token < 0 || token >= tokenizer_.vocabulary()) return false;
  const auto id = static_cast<int32_t>(token);
  // A special token has no text, but may be a stop string, as in Transformers.
  if (tokenizer_.text_piece(id).text.empty() && std::ranges::count(*strings_, tokenizer_.piece(id)) > 0) return true;
  tail_ += decoder_.push(id);
  const std::string text = tail_ + decoder_.held();
  const bool found = std::ranges::any_of(*strings_, [&](const std::string& stop) {
    const size_t first = searched_ >= stop.size() ? searched_ - stop.size() + 1 : 0;  // the match ends in the new text
    return text.find(stop, first) != std::string::npos;
  });
  const size_t before = tail_.size() - std::min(tail_.size(), longest_ - 1);
  tail_.erase(0, before);
  searched_ = text.size() - before;
  return found;
}

namespace {

// Returns the prompt tokens to process, of row 0, row `samples` and so on. tokens is undefined if all prompts have one
// token.
model::StepInput prompt_input(const model::LanguageModel& model, std::span<const Row> rows, size_t samples) {
  model::StepInput input;
  input.logits = model::Logits::kNone;
  std::vector<std::span<const int64_t>> prompts;
  for (size_t row = 0; row < rows.size(); row += samples) {
    prompts.push_back(std::span(rows[row].tokens).first(rows[row].tokens.size() - 1));
    input.new_tokens.push_back(std::ssize(prompts.back()));
  }
  if (any(input.new_tokens)) input.tokens = padded(prompts, model.info().pad, model.info().device);  // [B,L]
  return input;
}

// Returns the tokens of `prompts` from column `begin` on, at most `length` of a row.
model::StepInput chunk_of(const model::StepInput& prompts, int64_t begin, int64_t length) {
  model::StepInput chunk;
  chunk.tokens = prompts.tokens.narrow(1, begin, length).contiguous();  // [B,length]
  for (const int64_t tokens : prompts.new_tokens) {
    chunk.new_tokens.push_back(std::clamp<int64_t>(tokens - begin, 0, length));
  }
  chunk.logits = prompts.logits;
  chunk.hidden_layers = prompts.hidden_layers;
  return chunk;
}

// Processes the prompts in chunks of equal length, so that hidden states, and where attention is no kernel a layer's
// scores [B,H,L,T], have few tokens L. Returns the wanted hidden states.
std::vector<at::Tensor> process(model::LanguageModel& model, const model::StepInput& prompts,
                                model::DecodeState& state) {
  const int64_t width = prompts.tokens.size(1);
  const int64_t most = prefill_chunk(model.info().device);
  if (width <= most) return model.step(prompts, state).hidden;
  const int64_t chunks = (width + most - 1) / most;
  const int64_t length = (width + chunks - 1) / chunks;
  std::vector<at::Tensor> hidden(prompts.hidden_layers.size());
  for (int64_t begin = 0; begin < width; begin += length) {
    work_point();
    const int64_t count = std::min(length, width - begin);
    const std::vector<at::Tensor> part = model.step(chunk_of(prompts, begin, count), state).hidden;
    for (size_t i = 0; i < part.size(); ++i) {
      if (!hidden[i].defined()) hidden[i] = part[i].new_empty({part[i].size(0), width, part[i].size(2)});  // [B,L,D]
      hidden[i].narrow(1, begin, count).copy_(part[i]);
    }
  }
  return hidden;
}

}  // namespace

int64_t prefill_chunk(at::Device device) {
  return device.is_cpu() ? 256 : 2048;
}

void repeat_rows(model::DecodeState& state, int64_t samples) {
  if (samples == 1) return;
  std::vector<int64_t> prompt_of_row;
  for (int64_t row = 0; row < state.rows() * samples; ++row) prompt_of_row.push_back(row / samples);
  state.select_rows(prompt_of_row);
}

Prefill prefill(model::LanguageModel& model, const model::EncoderStates& encoder, std::span<const Row> rows,
                const StateSize& size, const std::vector<int64_t>& hidden_layers) {
  if (model.info().encoder_decoder) return {model.begin(encoder, size.capacity, size.samples), {}};
  Prefill result{model.begin(static_cast<int64_t>(rows.size()) / size.samples, size.capacity), {}};
  model::StepInput input = prompt_input(model, rows, static_cast<size_t>(size.samples));
  if (input.tokens.defined()) {
    input.hidden_layers = hidden_layers;
    result.prompt_hidden = process(model, input, *result.state);
  }
  repeat_rows(*result.state, size.samples);
  return result;
}

}  // namespace draftsmith::infer
