#include "python/module/decoder.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "base/device.h"
#include "python/module/errors.h"
#include "python/module/signals.h"

namespace draftsmith::python {
namespace {

// Batches whose sources are sorted by length together, as in cli/generate.cpp: counts are those of the program.
constexpr size_t kBatchesAtOnce = 16;

// Calls a function at the end of a scope.
class Finally {
 public:
  explicit Finally(std::function<void()> last) : last_(std::move(last)) {}
  ~Finally() { last_(); }
  Finally(const Finally&) = delete;
  Finally& operator=(const Finally&) = delete;

 private:
  std::function<void()> last_;
};

}  // namespace

Decoder::Decoder(infer::SessionOptions options, int64_t threads) : session_(std::move(options)), threads_(threads) {}

void Decoder::acquire(bool streaming, const std::function<void()>& wait) {
  std::unique_lock lock(mutex_);
  while (in_use_) {
    if (streaming_) {
      throw Busy({.what = "a stream of this model is open",
                  .expected = "a model that is not in use",
                  .found = "a stream that is neither read to its end nor closed",
                  .hint = "read it to its end, call its close(), or load the model a second time"});
    }
    lock.unlock();
    if (wait) wait();
    lock.lock();
    released_.wait_for(lock, kLookEvery, [this] { return !in_use_ || streaming_; });
  }
  in_use_ = true;
  streaming_ = streaming;
}

void Decoder::release() {
  const std::lock_guard lock(mutex_);
  in_use_ = false;
  streaming_ = false;
  released_.notify_one();
}

infer::Generator& Decoder::generator(const infer::DecodeOptions& options) {
  const std::string key = dump_options(options);
  if (prepared_ && prepared_->options == key) {
    prepared_->generator.carry_window(std::nullopt);  // counts do not depend on earlier calls
  } else {
    prepared_.reset();
    prepared_.emplace(Prepared{key, session_.generator(options)});
  }
  return prepared_->generator;
}

std::vector<infer::GenerationResult> Decoder::decode(const DecodeCall& call, size_t sources_at_once,
                                                     const infer::OnTokens& on_tokens) {
  const ThreadCount count(threads_);
  std::vector<infer::GenerationResult> results;
  const std::span<const std::vector<int64_t>> sources(call.sources);
  const auto outputs = static_cast<size_t>(call.options.outputs_of_line());
  try {
    infer::Generator& generating = generator(call.options);
    generating.fit(sources);  // reports a bad input before the first token
    for (size_t first = 0; first < sources.size(); first += sources_at_once) {
      const auto shifted = [&](size_t output, std::span<const int64_t> tokens, bool finished) {
        on_tokens(first * outputs + output, tokens, finished);
      };
      const auto chosen = sources.subspan(first, std::min(sources_at_once, sources.size() - first));
      auto part = generating.generate(chosen, first, {}, shifted);
      std::move(part.begin(), part.end(), std::back_inserter(results));
    }
  } catch (...) {
    prepared_.reset();  // it stopped amid a batch
    throw;
  }
  return results;
}

std::vector<infer::GenerationResult> Decoder::generate(const DecodeCall& call, const std::function<void()>& wait,
                                                       const infer::OnTokens& on_tokens) {
  acquire(false, wait);
  const Finally free([this] { release(); });
  const auto batch = static_cast<size_t>(call.options.lines_together());
  return decode(call, batch == 1 ? 1 : batch * kBatchesAtOnce, on_tokens);
}

std::vector<infer::GenerationResult> Decoder::stream(const DecodeCall& call, const infer::OnTokens& on_tokens) {
  return decode(call, static_cast<size_t>(call.options.lines_together()), on_tokens);
}

void Decoder::begin_stream(const std::function<void()>& wait) {
  acquire(true, wait);
}

void Decoder::end_stream() {
  release();
}

}  // namespace draftsmith::python
