#include "data/text/example_stream.h"

namespace draftsmith::data {

Fields<TextPolicies> TextPolicies::fields() {
  return Fields<TextPolicies>("text policies")
      .add("invalid_utf8", &TextPolicies::invalid_utf8, Choices{"error", "drop", "replace"},
           "What to do with an example that is not valid UTF-8: stop, drop it, or replace the bad bytes by U+FFFD.")
      .add("empty", &TextPolicies::empty, Choices{"error", "drop", "keep"},
           "What to do with an example of which one side is empty or white space only.")
      .add("unequal_lines", &TextPolicies::unequal_lines, Choices{"error", "truncate"},
           "What to do with parallel files of unequal length: stop, or use the lines of the shorter one only.");
}

std::vector<std::pair<std::string, int64_t>> ReadCounts::nonzero() const {
  std::vector<std::pair<std::string, int64_t>> list = {{"dropped: invalid UTF-8", dropped_invalid_utf8},
                                                       {"repaired: invalid UTF-8", replaced_invalid_utf8},
                                                       {"dropped: empty", dropped_empty},
                                                       {"kept: empty", kept_empty},
                                                       {"ignored: unpaired lines", unpaired_lines},
                                                       {"lines ending in CR LF", crlf_lines},
                                                       {"files with a byte order mark", byte_order_marks}};
  std::erase_if(list, [](const auto& entry) { return entry.second == 0; });
  return list;
}

}  // namespace draftsmith::data
