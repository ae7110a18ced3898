# Everything besides LibTorch comes from Debian's packages (tools/setup installs them).

find_package(PkgConfig REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(spdlog REQUIRED)
find_package(fmt REQUIRED)
find_package(ICU REQUIRED COMPONENTS uc i18n)
find_package(HDF5 REQUIRED COMPONENTS C)
find_package(Threads REQUIRED)
if(BUILD_TESTING)
  find_package(GTest REQUIRED)
endif()
pkg_check_modules(sentencepiece REQUIRED IMPORTED_TARGET sentencepiece)
pkg_check_modules(oniguruma REQUIRED IMPORTED_TARGET oniguruma)
# libonig exports functions named regcomp and regexec. The C library comes first, so that other libraries (GoogleTest)
# keep the POSIX functions of these names.
add_library(draftsmith_oniguruma INTERFACE)
add_library(draftsmith::oniguruma ALIAS draftsmith_oniguruma)
target_link_libraries(draftsmith_oniguruma INTERFACE -Wl,-lc PkgConfig::oniguruma)
pkg_check_modules(tomlplusplus REQUIRED IMPORTED_TARGET tomlplusplus)

# LibTorch's wheel brings headers of another fmt than the one linked here; this folder, searched before LibTorch's, holds
# a link to the headers of fmt::fmt and to nothing else.
get_target_property(fmt_include fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
if(NOT fmt_include)
  set(fmt_include /usr/include)
endif()
file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/fmt_first")
file(CREATE_LINK "${fmt_include}/fmt" "${CMAKE_BINARY_DIR}/fmt_first/fmt" SYMBOLIC)
add_library(draftsmith_fmt INTERFACE)
add_library(draftsmith::fmt ALIAS draftsmith_fmt)
target_link_libraries(draftsmith_fmt INTERFACE fmt::fmt)
target_include_directories(draftsmith_fmt SYSTEM BEFORE INTERFACE "${CMAKE_BINARY_DIR}/fmt_first")
