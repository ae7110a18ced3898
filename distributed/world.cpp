#include "distributed/world.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "base/error.h"

namespace draftsmith {

namespace {

class Alone : public World {
 public:
  Alone() : World(0, 1) {}
  void sum(const std::vector<at::Tensor>&, std::optional<at::ScalarType>) override {}
  std::function<void()> begin_sum(const std::vector<at::Tensor>&, std::optional<at::ScalarType>) override {
    return [] {};
  }
  void broadcast_each(const std::vector<std::vector<at::Tensor>>&) override {}
  void transfer(const std::vector<at::Tensor>&, int64_t, int64_t) override {}
  std::vector<std::string> gather(const std::string&, const std::string& text) override { return {text}; }
  int64_t ticket(const std::string& counter) override { return tickets_[counter]++; }
  void fail(const std::string&) noexcept override {}
  std::string reason() const override { return ""; }
  double waited() const override { return 0; }

 private:
  std::map<std::string, int64_t> tickets_;
};

}  // namespace

World& World::alone() {
  static Alone world;
  return world;
}

std::string World::from_leader(const std::string& what, const std::string& text) {
  return gather(what, leads() ? text : "").front();
}

bool World::any(const std::string& what, bool value) {
  const auto all = gather(what, value ? "1" : "");
  return std::any_of(all.begin(), all.end(), [](const std::string& text) { return !text.empty(); });
}

void World::require_same(const std::string& what, const std::string& value) {
  const auto all = gather("comparing " + what, value);
  std::string others;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] != all.front()) others += fmt::format("{}{}: {}", others.empty() ? "" : "; ", i, all[i]);
  }
  if (others.empty()) return;
  throw UserError({.where = fmt::format("process {} of {}", rank(), size()),
                   .what = "the processes of one job differ in " + what,
                   .expected = "on all, as on process 0: " + all.front(),
                   .found = "on process " + others,
                   .hint = "start all with the same program, recipe, flags and data"});
}

}  // namespace draftsmith
