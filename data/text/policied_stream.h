// Applies TextPolicies to raw examples, for all readers of text.
#pragma once

#include <string>

#include "data/text/example_stream.h"

namespace draftsmith::data {

// Applies the policies to whole examples. Derived classes read one format each in fetch().
class PoliciedStream : public ExampleStream {
 public:
  explicit PoliciedStream(const TextPolicies& policies);
  bool next(Example& example) override;
  const ReadCounts& counts() const override { return counts_; }

 protected:
  // Reads one raw example without checking its text. Returns false at the end.
  virtual bool fetch(Example& example) = 0;
  // Returns file:line of text number `text` of the last example (0: source, 1...: targets).
  virtual std::string where(const Example& example, size_t text) const = 0;
  // Repairs invalid UTF-8 under the policy `replace`. Returns false if the example must be dropped.
  bool admit_text(const std::string& position, std::string& text, bool& replaced) const;

  TextPolicies policies_;
  ReadCounts counts_;

 private:
  bool admit_utf8(Example& example);
  bool admit_empty(const Example& example);
};

}  // namespace draftsmith::data
