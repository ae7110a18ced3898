// A session that Python's threads share: one of them decodes at a time, the others wait.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "infer/session.h"

namespace draftsmith::python {

// Inputs and options of one call.
struct DecodeCall {
  std::vector<std::vector<int64_t>> sources;
  infer::DecodeOptions options;
};

// All members may be called by several threads, without the interpreter's lock.
class Decoder {
 public:
  // Loads the target. `threads`: of LibTorch while it decodes; 0: as they are. Errors: those of infer::Session.
  Decoder(infer::SessionOptions options, int64_t threads);

  const infer::LoadedModel& target() const { return session_.target(); }
  const infer::SessionOptions& options() const { return session_.options(); }

  // Decodes as infer::Generator::generate(). While another thread decodes, calls `wait` a few times a second. Errors:
  // those of infer::Session::generator() and of the generator; Busy while a stream is open.
  std::vector<infer::GenerationResult> generate(const DecodeCall& call, const std::function<void()>& wait,
                                                const infer::OnTokens& on_tokens);

  // Decodes batch after batch in the order of the sources, so that early ones are committed first. To be called between
  // begin_stream() and end_stream().
  std::vector<infer::GenerationResult> stream(const DecodeCall& call, const infer::OnTokens& on_tokens);

  // Waits as generate() does, and keeps other calls away until end_stream(), which any thread may call.
  void begin_stream(const std::function<void()>& wait);
  void end_stream();

 private:
  // The generator of the last call, with what it has recorded and prepared.
  struct Prepared {
    std::string options;
    infer::Generator generator;
  };

  void acquire(bool streaming, const std::function<void()>& wait);
  void release();
  std::vector<infer::GenerationResult> decode(const DecodeCall& call, size_t sources_at_once,
                                              const infer::OnTokens& on_tokens);
  infer::Generator& generator(const infer::DecodeOptions& options);

  infer::Session session_;
  const int64_t threads_;
  std::optional<Prepared> prepared_;  // used by the thread that decodes
  std::mutex mutex_;
  std::condition_variable released_;
  bool in_use_ = false;
  bool streaming_ = false;
};

}  // namespace draftsmith::python
