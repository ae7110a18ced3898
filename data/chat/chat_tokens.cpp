#include "data/chat/chat_tokens.h"

#include <algorithm>
#include <string>

namespace draftsmith::data {

std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  while (!text.empty()) {
    size_t first = std::string_view::npos;
    int32_t mark = -1;
    size_t length = 0;
    for (const int32_t id : {tokenizer.bos(), tokenizer.eos()}) {
      if (id < 0) continue;
      const std::string piece = tokenizer.piece(id);
      const size_t found = piece.empty() ? std::string_view::npos : text.find(piece);
      if (found == std::string_view::npos || found > first) continue;
      if (found == first && piece.size() <= length) continue;
      first = found;
      mark = id;
      length = piece.size();
    }
    const std::vector<int32_t> before = tokenizer.encode(text.substr(0, first));
    ids.insert(ids.end(), before.begin(), before.end());
    if (mark < 0) break;
    ids.push_back(mark);
    text.remove_prefix(first + length);
  }
  return ids;
}

std::vector<int32_t> encode_reply(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids = encode_chat(tokenizer, text);
  ids.erase(std::find(ids.begin(), ids.end(), tokenizer.eos()), ids.end());
  ids.push_back(tokenizer.eos());
  return ids;
}

}  // namespace draftsmith::data
