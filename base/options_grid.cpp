#include "base/options_grid.h"

#include <algorithm>

#include "base/overload.h"

namespace draftsmith::options_detail {

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
    if (field.grid != GridKey::kList) continue;
    std::visit(Overload{[](const NestedPointer&) {},
                        [&]<class M>(M*) {
                          using List = std::vector<typename ElementOf<M>::type>;
                          if constexpr (std::is_constructible_v<OptionList, List>) lists.back() = List();
                        }},
               field.pointer(object));
    if (lists.back().index() == 0) throw std::logic_error("the field " + field.name + " takes no list");
  }
  return lists;
}

FieldPointer pointer_to_list(OptionList& list) {
  return std::visit(Overload{[](std::monostate&) -> FieldPointer { throw std::logic_error("the field takes no list"); },
                             [](auto& values) -> FieldPointer { return &values; }},
                    list);
}

size_t list_size(const OptionList& list) {
  return std::visit(
      Overload{[](const std::monostate&) -> size_t { return 0; }, [](const auto& values) { return values.size(); }},
      list);
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

std::vector<size_t> loop_order(const FieldList& fields, const std::vector<OptionList>& lists) {
  std::vector<size_t> order;
  for (size_t i = 0; i < lists.size(); ++i) {
    if (list_size(lists[i]) > 0) order.push_back(i);
  }
  std::stable_partition(order.begin(), order.end(), [&](size_t i) { return fields.all()[i].outer_loop; });
  return order;
}

}  // namespace draftsmith::options_detail
