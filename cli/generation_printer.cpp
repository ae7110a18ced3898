#include "cli/generation_printer.h"

#include <algorithm>

#include "cli/model_input.h"

namespace draftsmith::cli {

LivePrinter::Line& LivePrinter::line_at(size_t line) {
  Line& found = lines_[line];
  if (tokenizer_ != nullptr && !found.decoder) found.decoder.emplace(*tokenizer_);
  return found;
}

std::string LivePrinter::text_of(Line& line, std::span<const int64_t> tokens) const {
  std::string text;
  if (tokenizer_ == nullptr) {
    if (!line.empty) text += ' ';
    text += words_of({tokens.begin(), tokens.end()});
  } else {
    for (const int64_t id : tokens) {
      if (id < tokenizer_->vocabulary()) text += line.decoder->push(static_cast<int32_t>(id));
    }
  }
  line.empty = false;
  return text;
}

void LivePrinter::add(size_t line, std::span<const int64_t> tokens, bool finished) {
  Line& growing = line_at(line);
  if (!tokens.empty()) growing.waiting += text_of(growing, tokens);
  if (finished) {
    if (growing.decoder) growing.waiting += growing.decoder->flush();
    growing.finished = true;
  }
  print_ready();
}

void LivePrinter::finish_before(size_t line) {
  for (size_t i = current_; i < line; ++i) {
    if (!line_at(i).finished) add(i, {}, true);
  }
}

void LivePrinter::break_off() {
  if (begun_) out_ << '\n' << std::flush;
  begun_ = false;
}

void LivePrinter::print_ready() {
  for (auto next = lines_.find(current_); next != lines_.end(); next = lines_.find(current_)) {
    Line& line = next->second;
    std::replace(line.waiting.begin(), line.waiting.end(), '\n', ' ');
    out_ << line.waiting;
    begun_ = begun_ || !line.waiting.empty();
    line.waiting.clear();
    if (!line.finished) break;
    out_ << '\n';
    lines_.erase(next);
    ++current_;
    begun_ = false;
  }
  out_.flush();
}

}  // namespace draftsmith::cli
