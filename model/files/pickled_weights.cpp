// pytorch_model.bin, read. LibTorch finds the archive's records, and its tensors lie over a mapping of the file. The
// pickle that describes them is followed without running anything.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <ATen/EmptyTensor.h>
#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>

#include "base/aten.h"
#include "base/error.h"
#include "base/files.h"
#include "base/utf8.h"
#include "model/files/weight_files.h"

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what);
}

[[noreturn]] void refuse(const fs::path& file, const std::string& what, const std::string& found) {
  throw UserError({.where = file.string(),
                   .what = what,
                   .expected = "a state dict of tensors as torch.save writes it",
                   .found = found,
                   .hint = "load it in Transformers and call save_pretrained(): that writes safetensors"});
}

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

// Returns the unsigned number that the bytes hold, lowest byte first.
uint64_t little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i > 0; --i) value = value << 8U | static_cast<unsigned char>(bytes[i - 1]);
  return value;
}

// Returns the element type of a global such as "torch.FloatStorage".
at::ScalarType element_type(const std::string& storage) {
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble, at::kLong, at::kInt, at::kShort,
                                    at::kChar, at::kByte, at::kBool}) {
    if (storage == fmt::format("torch.{}Storage", c10::toString(type))) return type;
  }
  fail("a tensor is of the unknown type " + storage.substr(0, 100));
}

// The zip's records, which must be stored without compression.
class Archive {
 public:
  Archive(const fs::path& file, const MappedFile& mapping) : reader_(file.string()), mapping_(mapping) {}

  std::string_view record(const std::string& name) {
    if (!reader_.hasRecord(name)) fail("the archive lacks " + name.substr(0, 100));
    constexpr int64_t kMethodAt = 8;  // bytes from the start of a record's header
    const auto method = mapping_.values<char>(static_cast<int64_t>(reader_.getRecordHeaderOffset(name)) + kMethodAt, 2);
    if (little_endian({method.data(), method.size()}) != 0) fail("the archive is compressed");
    const auto bytes = mapping_.values<char>(static_cast<int64_t>(reader_.getRecordOffset(name)),
                                             static_cast<int64_t>(reader_.getRecordSize(name)));
    return {bytes.data(), bytes.size()};
  }

  // Returns a whole storage as a tensor of one dimension. An archive of another program may not be aligned: then the
  // record is copied, once.
  at::Tensor storage(at::ScalarType type, const std::string& key) {
    at::Tensor& made = storages_[{type, key}];
    if (made.defined()) return made;
    const std::string_view bytes = record("data/" + key);
    const size_t width = c10::elementSize(type);
    const auto count = static_cast<int64_t>(bytes.size() / width);
    if (count > 0 && reinterpret_cast<uintptr_t>(bytes.data()) % width == 0) {
      made = at::from_blob(
          const_cast<char*>(bytes.data()), {count}, [mapping = mapping_.data()](void*) {}, at::TensorOptions(type));
    } else {
      made = at::empty({count}, at::TensorOptions(type));
      if (count > 0) std::memcpy(made.data_ptr(), bytes.data(), made.nbytes());
    }
    return made;
  }

 private:
  caffe2::serialize::PyTorchStreamReader reader_;
  const MappedFile& mapping_;
  std::map<std::pair<at::ScalarType, std::string>, at::Tensor> storages_;
};

// Reads a pickled dictionary of names to tensors, in the one form in which torch.save writes it. It keeps no stack and
// calls nothing, so that no file can make it run code or nest deeply. LibTorch's own unpickler makes nothing of an
// OrderedDict, which state dicts are, and hostile files crash it.
class Pickle {
 public:
  Pickle(std::string_view text, Archive& archive) : rest_(text), archive_(archive) {}

  std::map<std::string, at::Tensor> tensors() {
    if (take(2) != "\x80\x02") fail("the pickle is not of protocol 2");
    if (!next('}')) ordered_dictionary();
    skip_put();
    while (true) {
      if (next('(')) {
        while (!next('u')) add();
      } else if (next_is("Xhj")) {
        add();
        expect('s', "an item's end");
      } else {
        break;
      }
    }
    // An OrderedDict's attributes (its _metadata) may follow: they say nothing of tensors.
    if (!next_is(".}")) unexpected("the state dict's end");
    return std::move(tensors_);
  }

 private:
  std::string_view take(size_t count) {
    if (count > rest_.size()) fail("the pickle ends too early");
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  bool next_is(std::string_view opcodes) const {
    return !rest_.empty() && opcodes.find(rest_.front()) != std::string_view::npos;
  }
  bool next(char opcode) {
    const bool is = rest_.starts_with(opcode);
    if (is) rest_.remove_prefix(1);
    return is;
  }
  void expect(char opcode, const std::string& what) {
    if (!next(opcode)) unexpected(what);
  }
  [[noreturn]] void unexpected(const std::string& what) {
    fail(fmt::format("the pickle holds the opcode 0x{:02x} where {} is expected", number(1), what));
  }

  uint64_t number(size_t bytes) { return little_endian(take(bytes)); }

  int64_t signed_number(size_t bytes) {
    if (bytes == 0 || bytes > sizeof(int64_t)) fail(fmt::format("the pickle holds a number of {} bytes", bytes));
    const size_t above = 8 * (sizeof(int64_t) - bytes);
    return static_cast<int64_t>(number(bytes) << above) >> above;
  }

  int64_t integer() {
    if (next('K')) return static_cast<int64_t>(number(1));
    if (next('M')) return static_cast<int64_t>(number(2));
    if (next('J')) return signed_number(4);
    expect('\x8a', "a number");
    return signed_number(number(1));
  }

  // Reads a tuple of numbers, none of them negative.
  std::vector<int64_t> sizes() {
    constexpr size_t kMostDimensions = 64;
    std::vector<int64_t> numbers;
    const bool marked = next('(');
    while (next_is("KMJ\x8a")) {
      numbers.push_back(integer());
      if (numbers.back() < 0 || numbers.size() > kMostDimensions) fail("a shape is negative or too long");
    }
    constexpr std::string_view kTupleOf = ")\x85\x86\x87";
    expect(marked || numbers.size() >= kTupleOf.size() ? 't' : kTupleOf[numbers.size()], "a shape's end");
    skip_put();
    return numbers;
  }

  // Values that the pickle refers to again: names (of functions, too) and tensors.
  using Value = std::variant<std::string, at::Tensor>;

  void skip_put() { made(std::string()); }
  template <class T>
  T made(T value) {
    if (next_is("qr")) {
      const size_t bytes = next('q') ? 1 : take(1).size() * 4;
      memo_[number(bytes)] = value;
    }
    return value;
  }

  // Reads a string, a function or class ("module.name"), or what the pickle refers to again.
  Value value(const std::string& what) {
    if (next('X')) return made(std::string(take(number(4))));
    if (next('c')) {
      const std::string module = line();
      return made(module + "." + line());
    }
    if (!next_is("hj")) unexpected(what);
    const size_t bytes = take(1) == "h" ? 1 : 4;
    const auto found = memo_.find(number(bytes));
    if (found == memo_.end()) fail("the pickle refers to something it never made");
    return found->second;
  }

  std::string line() {
    const std::string text(take(std::min(rest_.find('\n'), rest_.size())));
    take(1);
    return text;
  }

  std::string name(const std::string& what) {
    const Value found = value(what);
    if (const auto* text = std::get_if<std::string>(&found)) return *text;
    fail(fmt::format("the pickle refers to a tensor where {} is expected", what));
  }

  void expect_name(const std::string& wanted, const std::string& found) {
    if (found != wanted) fail(fmt::format("the pickle holds {} where only {} may stand", printable(found), wanted));
  }

  void ordered_dictionary() {
    expect_name("collections.OrderedDict", name("a dictionary"));
    expect(')', "an empty OrderedDict");
    expect('R', "an empty OrderedDict");
    skip_put();
  }

  // Reads requires_grad and hooks.
  void attributes() {
    if (!next('\x88')) expect('\x89', "requires_grad");
    ordered_dictionary();
  }

  void add() {
    const std::string key = name("a tensor's name");
    try {
      tensors_[key] = tensor();
    } catch (const std::runtime_error& error) {
      fail(fmt::format("tensor '{}': {}", printable(key), error.what()));
    }
  }

  at::Tensor tensor() {
    const Value start = value("a tensor");
    if (const auto* again = std::get_if<at::Tensor>(&start)) return *again;
    const auto& function = std::get<std::string>(start);
    if (function != "torch._utils._rebuild_parameter") return plain_tensor(function);
    const at::Tensor parameter = plain_tensor(name("a parameter's tensor"));
    attributes();
    expect('\x87', "a parameter's end");
    skip_put();
    expect('R', "a call");
    return made(parameter);
  }

  // Reads torch._utils._rebuild_tensor_v2(storage, offset, shape, strides, requires_grad, hooks).
  at::Tensor plain_tensor(const std::string& function) {
    expect_name("torch._utils._rebuild_tensor_v2", function);
    expect('(', "a tensor");
    const at::Tensor whole = storage();
    const int64_t offset = integer();
    const std::vector<int64_t> shape = sizes();
    const std::vector<int64_t> strides = sizes();
    attributes();
    expect('t', "a tensor's end");
    skip_put();
    expect('R', "a call");
    if (offset < 0 || shape.size() != strides.size()) fail("its offset or strides are impossible");
    const size_t needed =
        at::detail::computeStorageNbytes(shape, strides, whole.itemsize(), static_cast<size_t>(offset));
    if (needed > whole.nbytes()) {
      fail(fmt::format("its shape {} reaches outside the bytes that are stored: {} of {}", shape_text(shape), needed,
                       whole.nbytes()));
    }
    return made(at::empty({0}, whole.options()).set_(whole.storage(), offset, shape, strides));
  }

  // Reads ("storage", torch.FloatStorage, record, location, elements).
  at::Tensor storage() {
    expect('(', "a storage");
    expect_name("storage", name("a storage"));
    const at::ScalarType type = element_type(name("a storage's type"));
    const std::string record = name("a storage's record");
    name("a storage's location");
    integer();  // its elements: the record's bytes say how many there are
    expect('t', "a storage's end");
    skip_put();
    expect('Q', "a storage's end");
    return archive_.storage(type, record);
  }

  std::string_view rest_;
  Archive& archive_;
  std::map<std::string, at::Tensor> tensors_;
  std::map<uint64_t, Value> memo_;
};

class PickledWeights final : public TensorFile {
 public:
  explicit PickledWeights(const fs::path& file) : file_(file), mapping_(file) {
    const std::string_view start(mapping_.data().get(), static_cast<size_t>(std::min<int64_t>(mapping_.bytes(), 2)));
    if (start != "PK") {
      refuse(file_, "is not a zip file", start.size() < 2 ? "fewer than two bytes" : "perhaps a PyTorch before 1.6");
    }
    try {
      Archive archive(file_, mapping_);
      values_ = Pickle(archive.record("data.pkl"), archive).tensors();
    } catch (const c10::Error& error) {
      refuse(file_, "cannot be read as pickled tensors", first_line(error.what_without_backtrace()));
    } catch (const std::exception& error) {
      refuse(file_, "cannot be read as pickled tensors", first_line(error.what()));
    }
    for (const auto& [name, value] : values_) {
      const at::ScalarType type = value.scalar_type();
      entries_[name].dtype = at::isFloatingType(type) ? stored_dtype_name(type) : c10::toString(type);
      entries_[name].shape = value.sizes().vec();
    }
  }

  const fs::path& file() const override { return file_; }
  const std::map<std::string, TensorEntry>& tensors() const override { return entries_; }
  void will_need() const override { mapping_.will_need(); }
  void forget_pages() const override { mapping_.forget_pages(); }

  at::Tensor stored(const std::string& name) const override { return values_.at(name); }

  // Returns bytes of the mapping, or of a copy that is made once where the tensor is not contiguous.
  std::span<const std::byte> bytes(const std::string& name) const override {
    at::Tensor& value = contiguous_[name];
    if (!value.defined()) value = stored(name).contiguous();
    return {static_cast<const std::byte*>(value.const_data_ptr()), value.nbytes()};
  }

 private:
  fs::path file_;
  MappedFile mapping_;
  std::map<std::string, at::Tensor> values_;
  std::map<std::string, TensorEntry> entries_;
  mutable std::map<std::string, at::Tensor> contiguous_;  // memory that bytes() returns
};

}  // namespace

std::unique_ptr<TensorFile> open_pickled_weights(const fs::path& file) {
  return std::make_unique<PickledWeights>(file);
}

}  // namespace draftsmith::model
