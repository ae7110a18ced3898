# What libraries need besides LibTorch comes from Debian's packages (tools/setup installs them). Installed packages
# include this file, too.
include_guard(DIRECTORY)

find_package(PkgConfig REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(fmt REQUIRED)
find_package(ICU REQUIRED COMPONENTS uc)
find_package(HDF5 REQUIRED COMPONENTS C)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(Threads REQUIRED)
pkg_check_modules(sentencepiece REQUIRED IMPORTED_TARGET sentencepiece)
pkg_check_modules(oniguruma REQUIRED IMPORTED_TARGET oniguruma)
# libonig exports functions named regcomp and regexec. The C library comes first, so that other libraries (GoogleTest)
# keep the POSIX functions of these names.
add_library(draftsmith::oniguruma INTERFACE IMPORTED)
target_link_libraries(draftsmith::oniguruma INTERFACE -Wl,-lc PkgConfig::oniguruma)
pkg_check_modules(tomlplusplus REQUIRED IMPORTED_TARGET tomlplusplus)

# LibTorch's wheel brings headers of another fmt than the one linked here; this folder, searched before LibTorch's, holds
# a link to the headers of fmt::fmt and to nothing else.
get_target_property(fmt_include fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
if(NOT fmt_include)
  set(fmt_include /usr/include)
endif()
file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/fmt_first")
file(CREATE_LINK "${fmt_include}/fmt" "${CMAKE_BINARY_DIR}/fmt_first/fmt" SYMBOLIC)
add_library(draftsmith::fmt INTERFACE IMPORTED)
target_link_libraries(draftsmith::fmt INTERFACE fmt::fmt)
target_include_directories(draftsmith::fmt SYSTEM BEFORE INTERFACE "${CMAKE_BINARY_DIR}/fmt_first")
