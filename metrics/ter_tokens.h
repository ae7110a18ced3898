// Words of TER: Tercom's tokenizer as in sacreBLEU 2.6.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"

namespace draftsmith::metrics {

struct TerOptions {
  bool normalized = false;      // split off punctuation and replace XML entities
  bool no_punct = false;        // remove punctuation
  bool asian_support = false;   // both of these for East Asian characters and punctuation, too
  bool case_sensitive = false;  // false: compare in lower case
  static Fields<TerOptions> fields();
};

std::vector<std::string> ter_tokens(std::string_view text, const TerOptions& options);

}  // namespace draftsmith::metrics
