#include "data/hdf5/hdf5.h"

namespace draftsmith::data {
namespace {

herr_t keep_innermost(unsigned, const H5E_error2_t* error, void* text) {
  if (error->desc != nullptr) *static_cast<std::string*>(text) = error->desc;
  return 0;
}

// IEEE binary16: HDF5 1.10 has no predefined type for it, so it is derived from binary32. Sign bit 15, exponent 5 bits
// from bit 10, mantissa 10 bits from bit 0.
hid_t float16_type() {
  const hid_t type = H5Tcopy(H5T_IEEE_F32LE);
  H5Tset_fields(type, 15, 10, 5, 0, 10);
  H5Tset_size(type, 2);
  H5Tset_ebias(type, 15);
  return type;
}

}  // namespace

void silence_hdf5() {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

std::string hdf5_error() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, keep_innermost, &text);
  H5Eclear2(H5E_DEFAULT);
  return text;
}

Hdf5Handle hdf5_datatype(Hdf5Type type) {
  switch (type) {
    case Hdf5Type::kInt32:
      return Hdf5Handle(H5Tcopy(H5T_STD_I32LE), H5Tclose);
    case Hdf5Type::kInt64:
      return Hdf5Handle(H5Tcopy(H5T_STD_I64LE), H5Tclose);
    case Hdf5Type::kFloat16:
      return Hdf5Handle(float16_type(), H5Tclose);
    case Hdf5Type::kFloat32:
      break;
  }
  return Hdf5Handle(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
}

size_t hdf5_size(Hdf5Type type) {
  return type == Hdf5Type::kFloat16 ? 2 : type == Hdf5Type::kInt64 ? 8 : 4;
}

std::string hdf5_name(Hdf5Type type) {
  switch (type) {
    case Hdf5Type::kInt32:
      return "int32";
    case Hdf5Type::kInt64:
      return "int64";
    case Hdf5Type::kFloat16:
      return "float16";
    case Hdf5Type::kFloat32:
      break;
  }
  return "float32";
}

}  // namespace draftsmith::data
