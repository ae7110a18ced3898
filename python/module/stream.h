// Outputs while they grow: a thread decodes ahead of the reader by a bounded number of pieces.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "data/tokenizers/tokenizer.h"
#include "python/module/decoder.h"

namespace draftsmith::python {

// Tokens that were committed together.
struct StreamPiece {
  size_t output = 0;  // index of the result
  std::vector<int64_t> ids;
  std::string text;  // of these and earlier tokens, as far as whole characters; empty without a tokenizer
  bool finished = false;
};

class TokenStream {
 public:
  // Begins to decode. Errors: as Decoder::begin_stream().
  TokenStream(std::shared_ptr<Decoder> decoder, DecodeCall call, const std::function<void()>& wait);
  ~TokenStream();

  // Returns the next piece, nothing at the end or once the stream is closed. Calls `wait` while there is none. Errors:
  // those of decoding, after the pieces before.
  std::optional<StreamPiece> next(const std::function<void()>& wait);

  // Stops decoding and waits until it has stopped. May be called several times.
  void close();

  // Returns all results after the last piece; empty before, and of a closed stream.
  std::vector<infer::GenerationResult> results();

 private:
  void decode();
  void push(size_t output, std::span<const int64_t> tokens, bool finished);
  std::string text_of(size_t output, std::span<const int64_t> tokens, bool finished);

  std::shared_ptr<Decoder> decoder_;
  const DecodeCall call_;
  std::map<size_t, data::StreamDecoder> texts_;  // of unfinished outputs
  std::vector<infer::GenerationResult> results_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<StreamPiece> pieces_;
  std::exception_ptr error_;
  bool ended_ = false;
  bool closed_ = false;
  std::mutex joining_;
  std::thread worker_;
};

}  // namespace draftsmith::python
