#include "model/files/pickle/pickled_weights.h"

#include <algorithm>
#include <fstream>
#include <optional>

#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>

#include "base/error.h"
#include "model/files/safetensors.h"

namespace draftsmith::model {

namespace {

namespace fs = std::filesystem;

constexpr const char* kPickle = "data.pkl";

[[noreturn]] void refuse(const fs::path& file, const std::string& what, const std::string& found) {
  throw UserError({.where = file.string(),
                   .what = what,
                   .expected = "a state dict of tensors as torch.save writes it",
                   .found = found,
                   .hint = "load it in Transformers and call save_pretrained(): that writes safetensors"});
}

void require_zip(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  char magic[2] = {};
  if (!in.read(magic, sizeof(magic)) || magic[0] != 'P' || magic[1] != 'K') {
    refuse(file, "is not a zip file", in ? "another form, perhaps of a PyTorch before 1.6" : "fewer than two bytes");
  }
}

std::optional<at::ScalarType> element_type(const std::string& storage) {
  static const std::map<std::string, at::ScalarType> kTypes = {
      {"FloatStorage", at::kFloat},   {"HalfStorage", at::kHalf}, {"BFloat16Storage", at::kBFloat16},
      {"DoubleStorage", at::kDouble}, {"LongStorage", at::kLong}, {"IntStorage", at::kInt},
      {"ShortStorage", at::kShort},   {"CharStorage", at::kChar}, {"ByteStorage", at::kByte},
      {"BoolStorage", at::kBool}};
  const auto found = kTypes.find(storage);
  return found == kTypes.end() ? std::nullopt : std::optional(found->second);
}

// Returns one more than the highest element that a tensor reaches in its storage; -1 for impossible shapes.
int64_t extent(const PickledTensor& tensor) {
  if (tensor.offset < 0 || tensor.sizes.size() != tensor.strides.size()) return -1;
  int64_t last = tensor.offset;
  bool empty = false;
  for (size_t d = 0; d < tensor.sizes.size(); ++d) {
    if (tensor.sizes[d] < 0 || tensor.strides[d] < 0) return -1;
    empty = empty || tensor.sizes[d] == 0;
    int64_t reach = 0;
    if (__builtin_mul_overflow(tensor.sizes[d] - 1, tensor.strides[d], &reach) ||
        __builtin_add_overflow(last, std::max<int64_t>(0, reach), &last)) {
      return -1;
    }
  }
  return empty ? 0 : last + 1;
}

std::string dtype_name(at::ScalarType type) {
  return at::isFloatingType(type) ? stored_dtype_name(type) : c10::toString(type);
}

// LibTorch's errors end in a stack trace.
std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace

struct PickledWeights::Archive {
  explicit Archive(const fs::path& file) : reader(file.string()) {}
  caffe2::serialize::PyTorchStreamReader reader;
};

PickledWeights::PickledWeights(fs::path file) : file_(std::move(file)) {
  require_zip(file_);
  try {
    archive_ = std::make_unique<Archive>(file_);
    const auto [data, bytes] = archive_->reader.getRecord(kPickle);
    pickled_ = read_pickled_tensors({static_cast<const char*>(data.get()), bytes});
  } catch (const std::exception& error) {
    refuse(file_, "cannot be read as pickled tensors", first_line(error));
  }
  for (const auto& [name, tensor] : pickled_) add(name);
}

PickledWeights::~PickledWeights() = default;

void PickledWeights::add(const std::string& name) {
  const PickledTensor& tensor = pickled_.at(name);
  const std::string where = fmt::format("{}: tensor '{}'", file_.string(), printable(name));
  const auto type = element_type(tensor.storage_type);
  if (!type) refuse(where, "is of a type that is not known here", tensor.storage_type.substr(0, 100));
  const std::string record = "data/" + tensor.record;
  size_t present = 0;  // bytes
  try {
    if (archive_->reader.hasRecord(record)) present = archive_->reader.getRecordSize(record);
  } catch (const std::exception& error) {
    refuse(where, "cannot be found in the archive", first_line(error));
  }
  const int64_t reach = extent(tensor);
  if (reach < 0 || static_cast<size_t>(reach) > present / c10::elementSize(*type)) {
    refuse(where, "reaches outside the bytes that are stored",
           fmt::format("{} elements of {} bytes in {} bytes", reach, c10::elementSize(*type), present));
  }
  entries_[name] = {.dtype = dtype_name(*type), .shape = tensor.sizes, .begin = 0, .end = 0};
}

at::Tensor PickledWeights::stored(const std::string& name) const {
  const PickledTensor& tensor = pickled_.at(name);
  try {
    auto [data, bytes] = archive_->reader.getRecord("data/" + tensor.record);
    const at::Storage storage(at::Storage::use_byte_size_t{}, static_cast<int64_t>(bytes), std::move(data), nullptr,
                              false);
    const at::Tensor view = at::empty({0}, at::TensorOptions(*element_type(tensor.storage_type)))
                                .set_(storage, tensor.offset, tensor.sizes, tensor.strides);
    return view.nbytes() == bytes ? view : view.clone();  // a small part must not keep a large storage alive
  } catch (const std::exception& error) {
    refuse(fmt::format("{}: tensor '{}'", file_.string(), printable(name)), "cannot be read", first_line(error));
  }
}

std::span<const std::byte> PickledWeights::bytes(const std::string& name) const {
  at::Tensor& value = contiguous_[name];
  if (!value.defined()) value = stored(name).contiguous();
  return {static_cast<const std::byte*>(value.const_data_ptr()), value.nbytes()};
}

}  // namespace draftsmith::model
