// From options structs to TOML text, JSON, hashes and help; lists of grids.
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/options_grid.h"
#include "base/table.h"
#include "base/util.h"

namespace draftsmith {

namespace options_detail {

std::string number_text(double value) {
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (std::isnan(value)) return "nan";
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

// Bounds read better without the ".0" of TOML.
std::string bounds_text(const Field& field) {
  const bool low = field.range && std::isfinite(field.range->min) && !(field.above && *field.above >= field.range->min);
  const bool high = field.range && std::isfinite(field.range->max);
  std::string text;
  if (low && high) {
    text = fmt::format("{} to {}", field.range->min, field.range->max);
  } else if (low) {
    text = fmt::format("at least {}", field.range->min);
  } else if (high) {
    text = fmt::format("at most {}", field.range->max);
  }
  if (field.above) text = fmt::format("above {}{}{}", *field.above, text.empty() ? "" : ", ", text);
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

}  // namespace options_detail

namespace {

using namespace options_detail;
using nlohmann::ordered_json;

constexpr size_t kHelpColumns = 100;

template <class E>
ordered_json json_element(const E& value) {
  if constexpr (std::is_same_v<E, double>) {
    // JSON has no infinity, and two different values must not share one null.
    return std::isfinite(value) ? ordered_json(value) : ordered_json(number_text(value));
  } else if constexpr (std::is_same_v<E, std::filesystem::path>) {
    return value.string();
  } else {
    return value;
  }
}

template <class M>
ordered_json json_member(const M& member) {
  if constexpr (kIsVector<M>) {
    ordered_json list = ordered_json::array();
    for (const auto& element : member) list.push_back(json_element(element));
    return list;
  } else if constexpr (kIsOptional<M>) {
    return member ? json_element(*member) : ordered_json();
  } else {
    return json_element(member);
  }
}

ordered_json json_nested(const NestedPointer& nested, bool results_only) {
  const FieldList fields = nested.type->fields();
  ordered_json list = ordered_json::array();
  for (const void* element : nested.type->elements(nested.member)) {
    list.push_back(fields_to_json(fields, element, results_only));
  }
  if (nested.type->kind == NestedType::Kind::kVector) return list;
  return list.empty() ? ordered_json() : list[0];
}

// Returns a value as TOML writes it; an empty text for an absent one.
std::string value_text(const ordered_json& value) {
  return value.is_null() ? "" : value == "inf" ? "inf" : value.dump();
}

ordered_json member_json(const FieldPointer& pointer, bool results_only = true) {
  return std::visit(Overload{[&](NestedPointer nested) { return json_nested(nested, results_only); },
                             [](auto* member) { return json_member(*member); }},
                    pointer);
}

// A table is compared with the one that the struct around it has when nothing was given; tables of a list, and one that
// may be absent, with an empty one.
nlohmann::json nested_identity(const NestedPointer& nested, const NestedPointer& unset) {
  const FieldList fields = nested.type->fields();
  if (nested.type->kind == NestedType::Kind::kSingle) return identity_of_fields(fields, nested.member, unset.member);
  auto list = nlohmann::json::array();
  for (const void* element : nested.type->elements(nested.member)) {
    list.push_back(identity_of_fields(fields, element, nested.type->defaults()));
  }
  return list;
}

template <class E>
std::string type_name() {
  if constexpr (std::is_same_v<E, bool>) return "true/false";
  if constexpr (std::is_same_v<E, int64_t> || std::is_same_v<E, uint64_t>) return "integer";
  if constexpr (std::is_same_v<E, double>) return "number";
  if constexpr (std::is_same_v<E, std::string>) return "string";
  if constexpr (std::is_same_v<E, std::filesystem::path>) return "path";
}

template <class M>
std::string described(const Field& field, const M& member) {
  using E = typename ElementOf<M>::type;
  std::string text = (kIsVector<M> ? field.accepts_one ? "one or a list of " : "list of " : "") + type_name<E>();
  if (!field.unit.empty()) text += " (" + field.unit + ")";
  const std::string bounds = bounds_text(field);
  if (!bounds.empty()) text += ", " + bounds;
  if (!field.choices.empty()) text += ", " + choices_text(field.choices);
  const std::string value = value_text(json_member(member));
  return text + (field.required ? "; required" : "; default: " + (value.empty() ? "none" : value));
}

// Returns nothing for a field without help.
std::string help_lines(const Field& field) {
  return field.help.empty() ? "" : wrapped(field.help, kHelpColumns, 6, 6);
}

std::string describe_level(const FieldList& fields, const void* defaults, const std::string& prefix);

std::string describe_nested(const Field& field, const NestedPointer& nested, const std::string& prefix) {
  const bool many = nested.type->kind == NestedType::Kind::kVector;
  const std::string name = prefix + field.name + (many ? "[]" : "");
  std::string kind = many ? "list of tables [[" + prefix + field.name + "]]" : "table [" + prefix + field.name + "]";
  if (field.required) kind += "; required";
  if (nested.type->kind == NestedType::Kind::kOptional) kind += "; default: none";
  std::string text = wrapped(name + ": " + kind, kHelpColumns, 2, 2) + help_lines(field);
  const std::vector<void*> elements = nested.type->elements(nested.member);
  const void* defaults = elements.empty() ? nested.type->defaults() : elements.front();
  return text + describe_level(nested.type->fields(), defaults, name + ".");
}

std::string describe_level(const FieldList& fields, const void* defaults, const std::string& prefix) {
  std::string text;
  for (const Field& field : fields.all()) {
    text += std::visit(Overload{[&](NestedPointer nested) { return describe_nested(field, nested, prefix); },
                                [&](auto* member) {
                                  return wrapped(prefix + field.name + ": " + described(field, *member), kHelpColumns,
                                                 2, 2) +
                                         help_lines(field);
                                }},
                       field.pointer(const_cast<void*>(defaults)));
  }
  return text;
}

}  // namespace

ordered_json fields_to_json(const FieldList& fields, const void* object, bool results_only) {
  ordered_json json = ordered_json::object();
  for (const Field& field : fields.all()) {
    if (results_only && !field.affects_result) continue;
    json[field.name] = member_json(field.pointer(const_cast<void*>(object)), results_only);
  }
  return json;
}

ordered_json field_json(const Field& field, const void* object) {
  return member_json(field.pointer(const_cast<void*>(object)));
}

nlohmann::json identity_of_fields(const FieldList& fields, const void* object, const void* defaults) {
  auto identity = nlohmann::json::object();
  for (const Field& field : fields.all()) {
    if (!field.affects_result) continue;
    const auto value = field.pointer(const_cast<void*>(object));
    const auto unset = field.pointer(const_cast<void*>(defaults));
    const ordered_json given = member_json(value);
    if (given == member_json(unset) && !field.required) continue;
    const auto* nested = std::get_if<NestedPointer>(&value);
    identity[field.name] =
        nested == nullptr ? nlohmann::json(given) : nested_identity(*nested, std::get<NestedPointer>(unset));
  }
  return identity;
}

std::string hash_of_identity(const nlohmann::json& identity) {
  return sha256(identity.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
}

std::string field_text(const Field& field, const void* object) {
  return value_text(field_json(field, object));
}

std::string describe_fields(const FieldList& fields, const void* defaults) {
  return fields.title() + "\n" + describe_level(fields, defaults, "");
}

std::vector<std::filesystem::path> paths_of_fields(const FieldList& fields, const void* object) {
  using std::filesystem::path;
  std::vector<path> paths;
  const auto add = [&](const std::vector<path>& more) { paths.insert(paths.end(), more.begin(), more.end()); };
  const auto add_nested = [&](NestedPointer nested) {
    for (const void* element : nested.type->elements(nested.member)) {
      add(paths_of_fields(nested.type->fields(), element));
    }
  };
  for (const Field& field : fields.all()) {
    std::visit(Overload{add_nested, [](auto*) {}, [&](path* one) { paths.push_back(*one); },
                        [&](std::vector<path>* list) { add(*list); },
                        [&](std::optional<path>* one) {
                          if (*one) paths.push_back(**one);
                        }},
               field.pointer(const_cast<void*>(object)));
  }
  std::erase(paths, path());
  return paths;
}

namespace options_detail {
namespace {

const void* address_of(const FieldPointer& pointer) {
  return std::visit(Overload{[](const NestedPointer& nested) -> const void* { return nested.member; },
                             [](auto* member) -> const void* { return member; }},
                    pointer);
}

}  // namespace

std::vector<OptionList> empty_lists(const FieldList& fields, void* object) {
  std::vector<OptionList> lists;
  for (const Field& field : fields.all()) {
    lists.emplace_back();
    bool known = field.grid != GridKey::kList;
    std::visit(Overload{[](const NestedPointer&) {},
                        [&]<class M>(M*) {
                          using List = std::vector<typename ElementOf<M>::type>;
                          if constexpr (std::is_constructible_v<OptionList, List>) lists.back() = List(), known = true;
                        }},
               field.pointer(object));
    if (!known) throw std::logic_error("the field " + field.name + " takes no list");
  }
  return lists;
}

void set_from_list(const Field& field, const OptionList& list, size_t index, void* object) {
  std::visit(Overload{[](const NestedPointer&) {},
                      [&]<class M>(M* member) {
                        using List = std::vector<typename ElementOf<M>::type>;
                        if constexpr (!kIsVector<M> && std::is_constructible_v<OptionList, List>) {
                          *member = std::get<List>(list).at(index);
                        }
                      }},
             field.pointer(object));
}

size_t index_of_member(const FieldList& fields, void* object, const void* address) {
  for (size_t i = 0; i < fields.all().size(); ++i) {
    if (address_of(fields.all()[i].pointer(object)) == address) return i;
  }
  throw std::logic_error("the member is in no field of " + fields.title());
}

}  // namespace options_detail

}  // namespace draftsmith
