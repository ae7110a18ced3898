#include "data/text/readers.h"

#include <optional>

#include "base/error.h"
#include "base/utf8.h"
#include "data/text/line_reader.h"
#include "data/text/policied_stream.h"

namespace draftsmith::data {

namespace {

class ParallelStream : public PoliciedStream {
 public:
  ParallelStream(const std::filesystem::path& source, const std::filesystem::path& target, const TextPolicies& policies)
      : PoliciedStream(policies), source_(source), target_(target) {
    counts_.byte_order_marks = (source_.had_byte_order_mark() ? 1 : 0) + (target_.had_byte_order_mark() ? 1 : 0);
  }

  std::vector<std::filesystem::path> files() const override { return {source_.file(), target_.file()}; }

 protected:
  bool fetch(Example& example) override {
    if (ended_) return false;
    example.targets.resize(1);
    const bool source = source_.next(example.source);
    const bool target = target_.next(example.targets[0]);
    counts_.crlf_lines = source_.crlf_lines() + target_.crlf_lines();
    if (source != target) finish_unequal(source ? source_ : target_, source ? target_ : source_);
    if (!source || !target) {
      ended_ = true;
      return false;
    }
    example.where = source_.where();
    return true;
  }

  std::string where(const Example&, size_t text) const override { return (text == 0 ? source_ : target_).where(); }

 private:
  // Counts the rest of the longer file after the other has ended, and throws unless the policy allows it.
  void finish_unequal(LineReader& longer, const LineReader& shorter) {
    std::string rest;
    while (longer.next(rest)) continue;
    counts_.unpaired_lines = longer.line() - shorter.line();
    if (policies_.unequal_lines == "truncate") return;
    throw UserError(
        Problem{.where = source_.file().string() + " and " + target_.file().string(),
                .what = "unequal numbers of lines",
                .expected = "line i of one to be the translation of line i of the other",
                .found = std::to_string(source_.line()) + " and " + std::to_string(target_.line()) + " lines",
                .hint = "check that the files belong together; the policy truncate for unequal line counts "
                        "reads the first " +
                        std::to_string(shorter.line()) + " lines only"});
  }

  LineReader source_;
  LineReader target_;
  bool ended_ = false;
};

class PlainTextStream : public PoliciedStream {
 public:
  PlainTextStream(const std::filesystem::path& file, std::string separator, const TextPolicies& policies)
      : PoliciedStream(policies), lines_(file), separator_(std::move(separator)) {
    counts_.byte_order_marks = lines_.had_byte_order_mark() ? 1 : 0;
  }

  std::vector<std::filesystem::path> files() const override { return {lines_.file()}; }

 protected:
  bool fetch(Example& example) override {
    example.source.clear();
    example.has_source = false;
    example.targets.assign(1, std::string());
    std::string& text = example.targets[0];
    const bool at_start = lines_.line() == 0;
    bool any = false;
    std::string line;
    while (lines_.next(line)) {
      counts_.crlf_lines = lines_.crlf_lines();
      const bool first_line = at_start && lines_.line() == 1;
      if (!separator_.empty() && line == separator_) {
        if (first_line) continue;  // a separator at the beginning ends no document
        if (!any) example.where = lines_.where();
        return true;
      }
      if (!any) example.where = lines_.where();
      if (any) text += '\n';
      text += line;
      any = true;
      if (separator_.empty()) return true;
    }
    return any;
  }

  std::string where(const Example& example, size_t) const override { return example.where; }

 private:
  LineReader lines_;
  std::string separator_;
};

}  // namespace

std::unique_ptr<ExampleStream> open_parallel(const std::filesystem::path& source, const std::filesystem::path& target,
                                             const TextPolicies& policies) {
  return std::make_unique<ParallelStream>(source, target, policies);
}

std::unique_ptr<ExampleStream> open_plain_text(const std::filesystem::path& file, const std::string& separator,
                                               const TextPolicies& policies) {
  return std::make_unique<PlainTextStream>(file, separator, policies);
}

std::vector<std::string> read_lines(const std::filesystem::path& file) {
  LineReader reader(file);
  std::vector<std::string> lines;
  std::string line;
  while (reader.next(line)) {
    if (const std::optional<size_t> bad = invalid_utf8_offset(line)) throw_invalid_utf8(reader.where(), line, *bad);
    lines.push_back(line);
  }
  return lines;
}

std::vector<Example> read_all(ExampleStream& stream) {
  std::vector<Example> examples;
  for (Example example; stream.next(example);) examples.push_back(example);
  return examples;
}

}  // namespace draftsmith::data
