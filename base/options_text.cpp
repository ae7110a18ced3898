#include "base/options_text.h"

#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace draftsmith::options_detail {

namespace {

// Bounds read better without the ".0" of TOML.
std::string plain(double value) {
  return fmt::format("{}", value);
}

}  // namespace

std::string number_text(double value) {
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (std::isnan(value)) return "nan";
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string bounds_text(const Field& field) {
  const bool low = field.range && std::isfinite(field.range->min) && !(field.above && *field.above >= field.range->min);
  const bool high = field.range && std::isfinite(field.range->max);
  std::string text;
  if (low && high) {
    text = plain(field.range->min) + " to " + plain(field.range->max);
  } else if (low) {
    text = "at least " + plain(field.range->min);
  } else if (high) {
    text = "at most " + plain(field.range->max);
  }
  if (field.above) text = "above " + plain(*field.above) + (text.empty() ? "" : ", " + text);
  return text;
}

std::string choices_text(const std::vector<std::string>& choices) {
  std::string text;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) text += i + 1 == choices.size() ? " or " : ", ";
    text += "'" + choices[i] + "'";
  }
  return text;
}

bool in_bounds(const Field& field, double value) {
  if (std::isnan(value) || (std::isinf(value) && !field.allow_infinity)) return false;
  if (field.range && (value < field.range->min || value > field.range->max)) return false;
  return !field.above || value > *field.above;
}

}  // namespace draftsmith::options_detail
