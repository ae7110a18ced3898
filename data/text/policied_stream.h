// The policies of TextPolicies applied to raw examples: the part that all readers of text share.
#pragma once

#include <string>

#include "data/text/example_stream.h"

namespace draftsmith::data {

// Applies the policies to whole examples; what differs between formats is fetch().
class PoliciedStream : public ExampleStream {
 public:
  explicit PoliciedStream(const TextPolicies& policies);
  bool next(Example& example) override;
  const ReadCounts& counts() const override { return counts_; }

 protected:
  // Reads one raw example, its text unchecked; false at the end.
  virtual bool fetch(Example& example) = 0;
  // file:line of text number `text` of the last example (0: source, 1...: targets).
  virtual std::string where(const Example& example, size_t text) const = 0;
  // False when invalid UTF-8 in `text` makes the example one to drop; repairs the text under the policy `replace`.
  bool admit_text(const std::string& position, std::string& text, bool& replaced) const;

  TextPolicies policies_;
  ReadCounts counts_;

 private:
  bool admit_utf8(Example& example);
  bool admit_empty(const Example& example);
};

}  // namespace draftsmith::data
