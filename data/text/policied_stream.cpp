#include "data/text/policied_stream.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/utf8.h"
#include "data/text/line_reader.h"

namespace draftsmith::data {

PoliciedStream::PoliciedStream(const TextPolicies& policies) : policies_(policies) {
  Problems problems;
  validate_options(policies, "text policies", problems);
  problems.throw_if_any();
}

bool PoliciedStream::next(Example& example) {
  while (fetch(example)) {
    if (admit_utf8(example) && admit_empty(example)) {
      ++counts_.examples;
      return true;
    }
  }
  return false;
}

bool PoliciedStream::admit_text(const std::string& position, std::string& text, bool& replaced) const {
  const std::optional<size_t> bad = invalid_utf8_offset(text);
  if (!bad) return true;
  if (policies_.invalid_utf8 == "error") throw_invalid_utf8(position, text, *bad);
  if (policies_.invalid_utf8 == "drop") return false;
  text = replace_invalid_utf8(text);
  replaced = true;
  return true;
}

bool PoliciedStream::admit_utf8(Example& example) {
  bool replaced = false;
  bool good = admit_text(where(example, 0), example.source, replaced);
  for (size_t i = 0; good && i < example.targets.size(); ++i) {
    good = admit_text(where(example, i + 1), example.targets[i], replaced);
  }
  if (!good) ++counts_.dropped_invalid_utf8;
  if (good && replaced) ++counts_.replaced_invalid_utf8;
  return good;
}

bool PoliciedStream::admit_empty(const Example& example) {
  const bool empty_source = example.has_source && is_blank(example.source);
  if (!empty_source && !std::all_of(example.targets.begin(), example.targets.end(), is_blank)) return true;
  if (policies_.empty == "error") {
    throw UserError({.where = where(example, empty_source ? 0 : 1),
                     .what = empty_source ? "empty source" : "empty target",
                     .expected = "text on both sides",
                     .hint = "choose the policy drop or keep for empty lines"});
  }
  ++(policies_.empty == "drop" ? counts_.dropped_empty : counts_.kept_empty);
  return policies_.empty == "keep";
}

}  // namespace draftsmith::data
