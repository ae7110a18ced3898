// Grids over an options struct: one value or a list of values for each field, and every combination of the lists. The
// fields that may have lists are marked GridKey::kList in the struct's own list of fields.
//
//   struct Runs {
//     WindowOptions base;                // fields with one value
//     OptionLists<WindowOptions> lists;  // fields with lists
//     static Fields<Runs> fields() {
//       Fields<Runs> fields("runs");
//       add_grid(fields, &Runs::base, &Runs::lists);
//       return fields;
//     }
//   };
//   runs.lists[&WindowOptions::window] = {3, 5};
//   runs.lists.combinations(runs.base);  // two WindowOptions
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <numeric>
#include <string>
#include <variant>
#include <vector>

#include "base/options.h"

namespace draftsmith {

// List of one field's values, of the field's own type.
using OptionList = std::variant<std::vector<int64_t>, std::vector<uint64_t>, std::vector<double>,
                                std::vector<std::string>, std::vector<std::filesystem::path>>;

namespace options_detail {

constexpr size_t kMostPoints = 10'000;  // of a grid

// Returns an empty list for each field. Errors: std::logic_error for a field marked GridKey::kList whose type has none.
std::vector<OptionList> empty_lists(const FieldList& fields, void* object);
// Gives the field of `object` the list's value at `index`.
void set_from_list(const Field& field, const OptionList& list, size_t index, void* object);
// Returns the position in `fields` of the field whose member is at `address` in `object`. Errors: std::logic_error
// without one.
size_t index_of_member(const FieldList& fields, void* object, const void* address);

}  // namespace options_detail

template <class T>
class OptionLists {
 public:
  OptionLists() : lists_(options_detail::empty_lists(fields(), &example())) {}

  // Returns the fields of T, made once.
  static const FieldList& fields() {
    static const FieldList kFields = T::fields();
    return kFields;
  }

  // Returns the list of a field; empty: none was given.
  template <class M>
  auto& operator[](M T::*member) {
    return std::get<std::vector<typename options_detail::ElementOf<M>::type>>(lists_[position(member)]);
  }

  // Returns whether the field at this position of fields() has a list.
  bool given(size_t field) const { return size(field) > 0; }

  // Returns `base` with every combination of the lists' values; the last field with a list changes fastest. Fields with
  // OuterLoop come first.
  std::vector<T> combinations(const T& base) const {
    std::vector<T> points{base};
    std::vector<size_t> order(lists_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_partition(order, [](size_t field) { return fields().all()[field].outer_loop; });
    for (const size_t field : order) {
      if (!given(field)) continue;
      if (points.size() * size(field) > options_detail::kMostPoints) {
        throw UserError({"the lists of a run", "they make too many settings", "at most 10,000", "more", ""});
      }
      std::vector<T> spread;
      for (const T& point : points) {
        for (size_t i = 0; i < size(field); ++i) {
          options_detail::set_from_list(fields().all()[field], lists_[field], i, &spread.emplace_back(point));
        }
      }
      points = std::move(spread);
    }
    return points;
  }

  // Returns where the list of the field at this position is, to be parsed and written like any other field.
  FieldPointer pointer(size_t field) {
    return std::visit([](auto& values) -> FieldPointer { return &values; }, lists_[field]);
  }

 private:
  size_t size(size_t field) const {
    return std::visit([](const auto& values) { return values.size(); }, lists_[field]);
  }
  static T& example() {
    static T object;
    return object;
  }
  template <class M>
  static size_t position(M T::*member) {
    return options_detail::index_of_member(fields(), &example(), &(example().*member));
  }

  std::vector<OptionList> lists_;  // one a field
};

// Adds the fields of T that grids take to the list of G: those of one value at `base`, those of lists at `lists`. All
// of them change results. A list of one may be written without brackets;
// an empty one is refused, because it would mean the default.
template <class G, class T>
void add_grid(Fields<G>& fields, T G::*base, OptionLists<T> G::*lists) {
  const std::vector<Field>& all = OptionLists<T>::fields().all();
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].grid == GridKey::kNone) continue;
    Field field = all[i];
    field.affects_result = true;
    field.required = field.grid == GridKey::kRequired;
    if (field.grid == GridKey::kList) {
      field.accepts_one = true;
      field.pointer = [lists, i](void* object) { return (static_cast<G*>(object)->*lists).pointer(i); };
    } else {
      field.pointer = [base, inner = field.pointer](void* object) { return inner(&(static_cast<G*>(object)->*base)); };
    }
    fields.add(std::move(field));
  }
}

}  // namespace draftsmith
