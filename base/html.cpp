#include "base/html.h"

namespace draftsmith {

std::string escape_html(const std::string& text) {
  std::string html;
  for (const char c : text) {
    switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      default:
        html.push_back(c);
    }
  }
  return html;
}

}  // namespace draftsmith
