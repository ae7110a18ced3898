// Parses lists of token ids: one list per line, separated by blanks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace draftsmith::data {

// Returns the ids of a line, all in [0, vocabulary). Errors: UserError with `where` and `hint` for a word that is not
// such an id.
std::vector<int64_t> parse_token_ids(const std::string& line, int64_t vocabulary, const std::string& where,
                                     const std::string& hint);

}  // namespace draftsmith::data
