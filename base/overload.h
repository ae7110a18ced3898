// One visitor of a std::variant from a function for each of its types.
//
//   std::visit(Overload{[](int number) { ... }, [](const std::string& text) { ... }}, value);
#pragma once

namespace draftsmith {

template <class... F>
struct Overload : F... {
  using F::operator()...;
};
template <class... F>
Overload(F...) -> Overload<F...>;

}  // namespace draftsmith
