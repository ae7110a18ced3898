#include "model/files/pickle/pickle_reader.h"

#include <algorithm>
#include <deque>
#include <stdexcept>
#include <variant>

#include <fmt/format.h>

namespace draftsmith::model {

namespace {

struct Value;
using Values = std::vector<Value>;

struct None {};
struct Mark {};
// A function or class, "module.name".
struct Global {
  std::string name;
};
struct Storage {
  std::string type;
  std::string record;
};
// Tuples, lists and dictionaries (key, value, key, value, ...). The machine owns their items: the memo refers to them
// while they grow, and a damaged file may nest them a million deep, or put one into itself.
struct Sequence {
  Values* items = nullptr;
};
struct Dictionary {
  Values* items = nullptr;
};

struct Value {
  std::variant<None, Mark, int64_t, std::string, Global, Storage, Sequence, Dictionary, PickledTensor> is;
};

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what);
}

template <class T>
const T& as(const Value& value, const char* what) {
  if (const T* held = std::get_if<T>(&value.is)) return *held;
  fail(fmt::format("the pickle holds something else where {} is expected", what));
}

std::vector<int64_t> integers(const Value& value, const char* what) {
  std::vector<int64_t> numbers;
  for (const Value& item : *as<Sequence>(value, what).items) numbers.push_back(as<int64_t>(item, what));
  return numbers;
}

// torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks[, metadata])
PickledTensor rebuilt_tensor(const Values& arguments) {
  constexpr size_t kFewest = 4;
  if (arguments.size() < kFewest) fail("a tensor is described by too few arguments");
  const auto& storage = as<Storage>(arguments[0], "a tensor's storage");
  return {.storage_type = storage.type,
          .record = storage.record,
          .offset = as<int64_t>(arguments[1], "a tensor's offset"),
          .sizes = integers(arguments[2], "a tensor's shape"),
          .strides = integers(arguments[3], "a tensor's strides")};
}

// Runs the opcodes. Values that it returns refer to its containers, so it must outlive them.
class Machine {
 public:
  explicit Machine(std::string_view pickle) : rest_(pickle) {}

  Value run() {
    while (true) {
      const auto opcode = static_cast<unsigned char>(take(1)[0]);
      if (opcode == '.') return pop();
      if (!constant(opcode) && !container(opcode) && !object(opcode)) {
        fail(fmt::format("the pickle uses the opcode 0x{:02x}, which is not known here", opcode));
      }
    }
  }

 private:
  std::string_view take(size_t count) {
    if (count > rest_.size()) fail("the pickle ends too early");
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  // A little-endian number.
  uint64_t number(size_t bytes) {
    const std::string_view taken = take(bytes);
    uint64_t value = 0;
    for (size_t i = bytes; i > 0; --i) value = value << 8 | static_cast<unsigned char>(taken[i - 1]);
    return value;
  }

  int64_t long_number() {
    const size_t bytes = number(1);
    if (bytes > sizeof(int64_t)) fail("the pickle holds a number of more than 64 bits");
    uint64_t value = 0;
    const std::string_view taken = take(bytes);
    for (size_t i = bytes; i > 0; --i) value = value << 8 | static_cast<unsigned char>(taken[i - 1]);
    const bool negative = bytes > 0 && (static_cast<unsigned char>(taken[bytes - 1]) & 0x80U) != 0;
    if (negative && bytes < sizeof(int64_t)) value |= ~uint64_t{0} << (8 * bytes);
    return static_cast<int64_t>(value);
  }

  std::string line() {
    const size_t end = rest_.find('\n');
    if (end == std::string_view::npos) fail("the pickle ends too early");
    std::string text(take(end));
    take(1);
    return text;
  }

  void push(Value value) { stack_.push_back(std::move(value)); }

  Value pop() {
    if (stack_.empty()) fail("the pickle takes more than it made");
    Value value = std::move(stack_.back());
    stack_.pop_back();
    return value;
  }

  const Value& top() const {
    if (stack_.empty()) fail("the pickle takes more than it made");
    return stack_.back();
  }

  // Removes and returns the topmost values, in the order they were pushed.
  Values take_top(size_t count) {
    if (count > stack_.size()) fail("the pickle takes more than it made");
    const auto first = stack_.end() - static_cast<std::ptrdiff_t>(count);
    Values values(std::make_move_iterator(first), std::make_move_iterator(stack_.end()));
    stack_.erase(first, stack_.end());
    return values;
  }

  // Removes the last mark and returns everything above it.
  Values above_mark() {
    const auto mark = std::find_if(stack_.rbegin(), stack_.rend(),
                                   [](const Value& value) { return std::holds_alternative<Mark>(value.is); });
    if (mark == stack_.rend()) fail("the pickle takes more than it made");
    Values values = take_top(static_cast<size_t>(mark - stack_.rbegin()));
    stack_.pop_back();
    return values;
  }

  // Returns new items of a container.
  Values* new_items(Values values = {}) { return &containers_.emplace_back(std::move(values)); }

  void push_tuple(Values values) { push({Sequence{new_items(std::move(values))}}); }

  bool constant(unsigned char opcode) {
    switch (opcode) {
      case 0x80:  // PROTO
        take(1);
        return true;
      case 0x95:  // FRAME
        take(8);
        return true;
      case 'N':
        push({None{}});
        return true;
      case 0x88:  // NEWTRUE
        push({int64_t{1}});
        return true;
      case 0x89:  // NEWFALSE
        push({int64_t{0}});
        return true;
      case 'K':
        push({static_cast<int64_t>(number(1))});
        return true;
      case 'M':
        push({static_cast<int64_t>(number(2))});
        return true;
      case 'J':
        push({static_cast<int64_t>(static_cast<int32_t>(number(4)))});
        return true;
      case 0x8a:  // LONG1
        push({long_number()});
        return true;
      case 'X':
        push({std::string(take(number(4)))});
        return true;
      case 0x8c:  // SHORT_BINUNICODE
        push({std::string(take(number(1)))});
        return true;
      default:
        return false;
    }
  }

  bool container(unsigned char opcode) {
    switch (opcode) {
      case '(':
        push({Mark{}});
        return true;
      case ')':
      case ']':
        push({Sequence{new_items()}});
        return true;
      case '}':
        push({Dictionary{new_items()}});
        return true;
      case 't':
        push_tuple(above_mark());
        return true;
      case 0x85:  // TUPLE1, TUPLE2, TUPLE3
      case 0x86:
      case 0x87:
        push_tuple(take_top(opcode - 0x84U));
        return true;
      case 'a':
        append({pop()});
        return true;
      case 'e':
        append(above_mark());
        return true;
      case 's': {
        Values pair = take_top(2);
        set_items(std::move(pair));
        return true;
      }
      case 'u':
        set_items(above_mark());
        return true;
      default:
        return false;
    }
  }

  void append(Values values) {
    Values* items = as<Sequence>(top(), "a list").items;
    items->insert(items->end(), std::make_move_iterator(values.begin()), std::make_move_iterator(values.end()));
  }

  void set_items(Values values) {
    if (values.size() % 2 != 0) fail("a dictionary's key has no value");
    Values* items = as<Dictionary>(top(), "a dictionary").items;
    items->insert(items->end(), std::make_move_iterator(values.begin()), std::make_move_iterator(values.end()));
  }

  bool object(unsigned char opcode) {
    switch (opcode) {
      case 'c': {
        const std::string module = line();
        push({Global{module + "." + line()}});
        return true;
      }
      case 0x93: {  // STACK_GLOBAL
        const std::string name = as<std::string>(pop(), "a name");
        push({Global{as<std::string>(pop(), "a module") + "." + name}});
        return true;
      }
      case 'R': {
        const Value arguments = pop();
        const Value function = pop();
        push(called(as<Global>(function, "a function"), *as<Sequence>(arguments, "arguments").items));
        return true;
      }
      case 'Q':
        push(storage(pop()));
        return true;
      case 'b':  // BUILD: attributes of an OrderedDict (its _metadata) say nothing of tensors
        pop();
        as<Dictionary>(top(), "a dictionary");
        return true;
      case 'q':
        memo_[number(1)] = top();
        return true;
      case 'r':
        memo_[number(4)] = top();
        return true;
      case 0x94:  // MEMOIZE
        memo_[memo_.size()] = top();
        return true;
      case 'h':
        push(remembered(number(1)));
        return true;
      case 'j':
        push(remembered(number(4)));
        return true;
      default:
        return false;
    }
  }

  Value called(const Global& function, const Values& arguments) {
    if (function.name == "collections.OrderedDict" && arguments.empty()) return {Dictionary{new_items()}};
    if (function.name == "torch._utils._rebuild_tensor_v2") return {rebuilt_tensor(arguments)};
    if (function.name == "torch._utils._rebuild_parameter" && !arguments.empty()) {
      return {as<PickledTensor>(arguments[0], "a parameter's tensor")};
    }
    fail("the pickle calls " + function.name.substr(0, 100) + ", which no state dict of tensors needs");
  }

  Value remembered(uint64_t key) const {
    const auto found = memo_.find(key);
    if (found == memo_.end()) fail("the pickle refers to something it never made");
    return found->second;
  }

  // ("storage", torch.FloatStorage, record, location, elements)
  static Value storage(const Value& id) {
    const Values& parts = *as<Sequence>(id, "a storage").items;
    constexpr size_t kParts = 5;
    if (parts.size() != kParts || as<std::string>(parts[0], "a storage") != "storage") fail("a storage is malformed");
    const std::string& type = as<Global>(parts[1], "a storage's type").name;
    const std::string prefix = "torch.";
    if (!type.starts_with(prefix)) fail("a storage has the unknown type " + type.substr(0, 100));
    return {Storage{type.substr(prefix.size()), as<std::string>(parts[2], "a storage's record")}};
  }

  std::string_view rest_;
  std::deque<Values> containers_;
  Values stack_;
  std::map<uint64_t, Value> memo_;
};

}  // namespace

std::map<std::string, PickledTensor> read_pickled_tensors(std::string_view pickle) {
  Machine machine(pickle);
  const Value root = machine.run();
  const Values& items = *as<Dictionary>(root, "the state dict").items;
  std::map<std::string, PickledTensor> tensors;
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    tensors[as<std::string>(items[i], "a tensor's name")] = as<PickledTensor>(items[i + 1], "a tensor");
  }
  return tensors;
}

}  // namespace draftsmith::model
