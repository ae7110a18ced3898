#include "python/module/stream.h"

#include <utility>

#include "python/module/signals.h"

namespace draftsmith::python {
namespace {

constexpr size_t kMostPieces = 64;

// Ends decoding when the reader has closed the stream.
struct Closed {};

}  // namespace

TokenStream::TokenStream(std::shared_ptr<Decoder> decoder, DecodeCall call, const std::function<void()>& wait)
    : decoder_(std::move(decoder)), call_(std::move(call)) {
  decoder_->begin_stream(wait);
  try {
    worker_ = std::thread([this] { decode(); });
  } catch (...) {
    decoder_->end_stream();
    throw;
  }
}

TokenStream::~TokenStream() {
  close();
}

void TokenStream::decode() {
  std::exception_ptr error;
  std::vector<infer::GenerationResult> results;
  try {
    results = decoder_->stream(call_, [this](size_t output, std::span<const int64_t> tokens, bool finished) {
      push(output, tokens, finished);
    });
  } catch (const Closed&) {
  } catch (...) {
    error = std::current_exception();
  }
  decoder_->end_stream();
  const std::lock_guard lock(mutex_);
  results_ = std::move(results);
  error_ = error;
  ended_ = true;
  changed_.notify_all();
}

std::string TokenStream::text_of(size_t output, std::span<const int64_t> tokens, bool finished) {
  const data::Tokenizer* tokenizer = decoder_->target().tokenizer.get();
  if (tokenizer == nullptr) return "";
  auto& decoder = texts_.try_emplace(output, *tokenizer).first->second;
  std::string text;
  for (const int64_t id : tokens) {
    if (id < tokenizer->vocabulary()) text += decoder.push(static_cast<int32_t>(id));
  }
  if (finished) {
    text += decoder.flush();
    texts_.erase(output);
  }
  return text;
}

void TokenStream::push(size_t output, std::span<const int64_t> tokens, bool finished) {
  StreamPiece piece{output, {tokens.begin(), tokens.end()}, text_of(output, tokens, finished), finished};
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closed_ || pieces_.size() < kMostPieces; });
  if (closed_) throw Closed();
  pieces_.push_back(std::move(piece));
  changed_.notify_all();
}

std::optional<StreamPiece> TokenStream::next(const std::function<void()>& wait) {
  std::unique_lock lock(mutex_);
  while (!closed_ && !ended_ && pieces_.empty()) {
    changed_.wait_for(lock, kLookEvery);
    lock.unlock();
    wait();
    lock.lock();
  }
  if (closed_) return std::nullopt;
  if (!pieces_.empty()) {
    StreamPiece piece = std::move(pieces_.front());
    pieces_.pop_front();
    changed_.notify_all();
    return piece;
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  return std::nullopt;
}

std::vector<infer::GenerationResult> TokenStream::results() {
  const std::lock_guard lock(mutex_);
  return results_;
}

void TokenStream::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    if (!ended_) pieces_.clear();
    changed_.notify_all();
  }
  const std::lock_guard lock(joining_);
  if (worker_.joinable()) worker_.join();
}

}  // namespace draftsmith::python
