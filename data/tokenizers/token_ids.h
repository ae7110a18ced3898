// Token ids as text: one list a line, separated by blanks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace draftsmith::data {

// Ids in [0, vocabulary). Errors (UserError at `where`): a word that is no number or no such id; `hint` says what else
// the user may have meant.
std::vector<int64_t> parse_token_ids(const std::string& line, int64_t vocabulary, const std::string& where,
                                     const std::string& hint);

}  // namespace draftsmith::data
