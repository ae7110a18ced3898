#include "cli/lines.h"

#include <algorithm>
#include <iostream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/signals.h"
#include "base/utf8.h"
#include "data/text/readers.h"
#include "data/tokenizers/tokenizer.h"
#include "infer/loop/processors.h"

namespace draftsmith::cli {

std::vector<std::vector<int64_t>> read_token_lines(const std::string& file, const infer::LoadedModel& loaded,
                                                   LineKind kind, bool ids) {
  const model::ModelInfo& info = loaded.model->info();
  data::LineReader lines = data::open_lines(file);
  std::vector<std::vector<int64_t>> result;
  for (std::string line; lines.next(line);) {
    if (ids) {
      result.push_back(data::parse_token_ids(line, info.vocabulary, lines.where(), "omit --ids to read text"));
      continue;
    }
    if (const auto bad = invalid_utf8_offset(line)) data::throw_invalid_utf8(lines.where(), line, *bad);
    const data::Tokenizer& tokenizer = infer::tokenizer_of(loaded, "give token ids with --ids");
    const bool source = kind == LineKind::kSource;
    result.push_back(source ? infer::source_ids(line, tokenizer, info) : infer::target_ids(line, tokenizer, info));
  }
  return result;
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string words_of(const std::vector<int64_t>& ids) {
  return fmt::format("{}", fmt::join(ids, " "));
}

void require_written(const std::ostream& out) {
  if (out) return;
  throw RunError({.where = "standard output",
                  .what = "writing failed",
                  .expected = "",
                  .found = "",
                  .hint = "is the disk full, or did the reader of the pipe end?"});
}

int64_t report_failures(std::span<const infer::GenerationResult> results) {
  int64_t failed = 0;
  for (const infer::GenerationResult& result : results) {
    if (!result.error) continue;
    std::cerr << "error: " << to_string(*result.error) << std::endl;
    ++failed;
  }
  return failed;
}

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
  while (current_ < line) add(current_, {}, true);
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
  require_written(out_);
}

int64_t generate_live(infer::Generator& generator, std::span<const std::vector<int64_t>> sources,
                      LivePrinter& printer) {
  const auto batch = static_cast<size_t>(generator.options().lines_together());
  const auto samples = static_cast<size_t>(generator.options().outputs_of_line());
  const auto fits = generator.fit(sources);
  for (size_t line = 0; line < sources.size() * samples; ++line) {
    if (fits[line / samples].skipped) printer.add(line, {}, true);  // has no output; later lines must not wait for it
  }
  int64_t failed = 0;
  try {
    for (size_t first = 0; first < sources.size(); first += batch) {
      const size_t count = std::min(batch, sources.size() - first);
      const auto print = [&](size_t output, std::span<const int64_t> tokens, bool finished) {
        printer.add(first * samples + output, tokens, finished);
        throw_if_stop_requested("The last line printed may be incomplete.");
      };
      const auto results = generator.generate(sources.subspan(first, count), first, {}, print);
      printer.finish_before((first + count) * samples);
      failed += report_failures(results);
    }
  } catch (...) {
    printer.break_off();
    throw;
  }
  return failed;
}

}  // namespace draftsmith::cli
