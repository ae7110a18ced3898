// One field of an options struct (base/options.h): its name, help, constraints and other attributes, without its type.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"

namespace draftsmith {

class FieldList;

// Attributes of a field: they stand behind its name and help in `add`, in any order.

// Inclusive bounds of a number, or of each element of a vector of numbers. Range{1} has no upper bound.
struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
};
// Exclusive lower bound: Above{0} for a rate that must be positive.
struct Above {
  double min = 0;
};
// The only values a string (or each string of a vector) may have.
struct Choices {
  Choices(std::initializer_list<const char*> list) : values(list.begin(), list.end()) {}
  explicit Choices(std::vector<std::string> list) : values(std::move(list)) {}
  std::vector<std::string> values;
};
// Unit of a number, for the help text: "tokens", "steps", "seconds".
struct Unit {
  std::string name;
};
// The key must be given.
struct Required {};
// The field does not change results (device, threads, logging): it is dumped, but left out of options_hash.
struct NoResult {};
// `inf` is a meaningful value (a rollback threshold that never triggers); otherwise infinite numbers are errors.
struct AllowInfinity {};
// How a grid over the struct (base/options_grid.h) takes the field: not at all, as one value, as one that must be
// given, or as a list of values that spans the grid.
enum class GridKey { kNone, kValue, kRequired, kList };
// Marks a field whose list spans the outer loop of a grid: fields with it come before all others.
struct OuterLoop {};
// Short name of the field in labels made of its value, "H" in "H0.5". Without it the field's own name is taken; an
// empty one keeps the field out of labels.
struct Label {
  std::string text;
};
// Labels name the field even where it has its default, provided that the parts in use read it.
struct AlwaysNamed {};
// Labels leave the field out where `test` holds of the struct, for values that mean the same as none.
template <class T>
struct UnnamedIf {
  bool (*test)(const T&);
};
// The field is read by some of the program's parts only: ReadBy{"window_rule", {"entropy"}}. What a part is, the code
// that owns the struct knows.
struct ReadBy {
  std::string part;
  std::vector<std::string> names;
};

// A nested options struct, an optional of one or a vector of them, seen without its type as a sequence of structs.
struct NestedType {
  enum class Kind { kSingle, kOptional, kVector };
  Kind kind;
  FieldList (*fields)();
  size_t (*size)(const void* member);
  void* (*at)(void* member, size_t index);
  void (*resize)(void* member, size_t count);  // kSingle: nothing to do
  const void* (*defaults)();                   // a struct as it is when nothing was given
};

struct NestedPointer {
  const NestedType* type;
  void* member;
};

// Address of one member of an options struct.
using FieldPointer = std::variant<bool*, int64_t*, uint64_t*, double*, std::string*, std::filesystem::path*,
                                  std::vector<int64_t>*, std::vector<uint64_t>*, std::vector<double>*,
                                  std::vector<std::string>*, std::vector<std::filesystem::path>*, std::optional<bool>*,
                                  std::optional<int64_t>*, std::optional<uint64_t>*, std::optional<double>*,
                                  std::optional<std::string>*, std::optional<std::filesystem::path>*, NestedPointer>;

// One field without its struct's type.
struct Field {
  std::string name;
  std::string help;
  std::string unit;
  std::optional<Range> range;
  std::optional<double> above;
  std::vector<std::string> choices;
  bool required = false;
  bool affects_result = true;
  bool allow_infinity = false;
  bool accepts_one = false;  // of a list: a value without brackets is a list of one; an empty list is an error
  GridKey grid = GridKey::kNone;
  bool outer_loop = false;
  std::optional<std::string> label;
  bool always_named = false;
  std::function<bool(const void* object)> unnamed_if;  // empty: never
  std::optional<ReadBy> read_by;                       // absent: every part
  std::function<FieldPointer(void* object)> pointer;
};

// The fields of one options struct without its type.
class FieldList {
 public:
  explicit FieldList(std::string title) : title_(std::move(title)) {}
  const std::string& title() const { return title_; }
  const std::vector<Field>& all() const& { return fields_; }
  std::vector<Field> all() && { return std::move(fields_); }  // so that a loop over a temporary's fields is sound

  // A check across fields: (object, where the struct was given, problems).
  using Check = std::function<void(const void*, const std::string&, Problems&)>;
  const std::vector<Check>& checks() const { return checks_; }

 protected:
  std::string title_;
  std::vector<Field> fields_;
  std::vector<Check> checks_;
};

namespace options_detail {

template <class M>
struct Nested {
  static constexpr bool value = false;
};

template <class M>
concept OptionsStruct = requires {
  M::fields();
};

template <class M>
const void* defaults_of() {
  static const M kDefaults{};
  return &kDefaults;
}

template <OptionsStruct M>
struct Nested<M> {
  static constexpr bool value = true;
  static constexpr NestedType type{NestedType::Kind::kSingle,
                                   +[]() -> FieldList { return M::fields(); },
                                   +[](const void*) -> size_t { return 1; },
                                   +[](void* member, size_t) -> void* { return member; },
                                   +[](void*, size_t) {},
                                   &defaults_of<M>};
};

template <OptionsStruct M>
struct Nested<std::optional<M>> {
  static constexpr bool value = true;
  using Member = std::optional<M>;
  static constexpr NestedType type{
      NestedType::Kind::kOptional,
      +[]() -> FieldList { return M::fields(); },
      +[](const void* member) -> size_t { return static_cast<const Member*>(member)->has_value() ? 1 : 0; },
      +[](void* member, size_t) -> void* { return &**static_cast<Member*>(member); },
      +[](void* member, size_t count) {
        auto& optional = *static_cast<Member*>(member);
        if (count == 0) {
          optional.reset();
        } else if (!optional) {
          optional.emplace();
        }
      },
      &defaults_of<M>};
};

template <OptionsStruct M>
struct Nested<std::vector<M>> {
  static constexpr bool value = true;
  using Member = std::vector<M>;
  static constexpr NestedType type{
      NestedType::Kind::kVector,
      +[]() -> FieldList { return M::fields(); },
      +[](const void* member) -> size_t { return static_cast<const Member*>(member)->size(); },
      +[](void* member, size_t index) -> void* { return &(*static_cast<Member*>(member))[index]; },
      +[](void* member, size_t count) {
        auto& vector = *static_cast<Member*>(member);
        vector.clear();
        vector.resize(count);
      },
      &defaults_of<M>};
};

template <class M>
FieldPointer pointer_to(M& member) {
  if constexpr (Nested<M>::value) {
    return NestedPointer{&Nested<M>::type, &member};
  } else {
    return FieldPointer(&member);
  }
}

inline void apply(Field& field, Range range) {
  field.range = range;
}
inline void apply(Field& field, Above above) {
  field.above = above.min;
}
inline void apply(Field& field, Choices choices) {
  field.choices = std::move(choices.values);
}
inline void apply(Field& field, Unit unit) {
  field.unit = std::move(unit.name);
}
inline void apply(Field& field, Required) {
  field.required = true;
}
inline void apply(Field& field, NoResult) {
  field.affects_result = false;
}
inline void apply(Field& field, AllowInfinity) {
  field.allow_infinity = true;
}
inline void apply(Field& field, GridKey key) {
  field.grid = key;
}
inline void apply(Field& field, OuterLoop) {
  field.outer_loop = true;
}
inline void apply(Field& field, Label label) {
  field.label = std::move(label.text);
}
inline void apply(Field& field, AlwaysNamed) {
  field.always_named = true;
}
template <class T>
void apply(Field& field, UnnamedIf<T> unnamed) {
  field.unnamed_if = [test = unnamed.test](const void* object) { return test(*static_cast<const T*>(object)); };
}
inline void apply(Field& field, ReadBy readers) {
  field.read_by = std::move(readers);
}
inline void apply(Field& field, std::string help) {
  field.help = std::move(help);
}

}  // namespace options_detail

}  // namespace draftsmith
