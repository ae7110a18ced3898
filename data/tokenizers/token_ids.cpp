#include "data/tokenizers/token_ids.h"

#include <charconv>
#include <sstream>

#include "base/error.h"

namespace draftsmith::data {

std::vector<int64_t> parse_token_ids(const std::string& line, int64_t vocabulary, const std::string& where,
                                     const std::string& hint) {
  constexpr size_t kShown = 60;
  std::vector<int64_t> ids;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    int64_t id = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size() || id < 0 || id >= vocabulary) {
      throw UserError({.where = where,
                       .what = "not a token id",
                       .expected = "ids in 0.." + std::to_string(vocabulary - 1) + ", separated by blanks",
                       .found = word.substr(0, kShown),
                       .hint = hint});
    }
    ids.push_back(id);
  }
  return ids;
}

}  // namespace draftsmith::data
