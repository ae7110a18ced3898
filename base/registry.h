// Explicit lists of named entries: families, stage kinds, export formats, ... Adding one is a line in the list.
//
//   const Registry<Family>& families() {
//     static const Registry<Family> kFamilies("family", {gpt2_family(), bloom_family(), ...});
//     return kFamilies;
//   }
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/util.h"

namespace draftsmith {

// Entry has a member `name` that converts to std::string.
template <class Entry>
class Registry {
 public:
  Registry(std::string subject, std::vector<Entry> entries)
      : subject_(std::move(subject)), entries_(std::move(entries)) {}

  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

  // Returns all names in the order of the list, for Choices and messages.
  std::vector<std::string> names() const {
    return from_each(entries_, [](const Entry& entry) { return std::string(entry.name); });
  }

  // Returns the entry of that name, or nullptr.
  const Entry* find(const std::string& name) const {
    for (const Entry& entry : entries_) {
      if (entry.name == name) return &entry;
    }
    return nullptr;
  }

  // Returns the entry of that name. Errors: UserError with all known names and the nearest.
  const Entry& at(const std::string& name) const {
    if (const Entry* entry = find(name)) return *entry;
    throw UserError(unknown_name(subject_, name, names()));
  }

 private:
  std::string subject_;
  std::vector<Entry> entries_;
};

template <class Value>
struct NamedValue {
  std::string name;
  Value value;
};

// Names of an enum's values, for options that choose one: field lists offer the names, code asks for the value.
template <class Value>
class NamedValues : public Registry<NamedValue<Value>> {
 public:
  using Registry<NamedValue<Value>>::Registry;

  // Returns the value of that name. Errors: UserError with all known names and the nearest.
  Value at(const std::string& name) const { return Registry<NamedValue<Value>>::at(name).value; }

  // Returns the name of a value. Errors: std::logic_error for a value without one.
  const std::string& name(Value wanted) const {
    for (const NamedValue<Value>& entry : *this) {
      if (entry.value == wanted) return entry.name;
    }
    throw std::logic_error("a value has no name");
  }
};

}  // namespace draftsmith
