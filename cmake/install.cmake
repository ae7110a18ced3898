# What `cmake --install` puts below the prefix: the program, the libraries infer and train with those that they need,
# headers, a package for find_package(Draftsmith) and one for pkg-config.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Where installed programs look for LibTorch. By default where it was at the build.
set(DRAFTSMITH_INSTALL_RPATH "${torch_lib_dir};${cuda_lib_dir}" CACHE STRING "Folders of LibTorch's libraries")
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Draftsmith")
set(component COMPONENT development)

set_target_properties(draftsmith PROPERTIES INSTALL_RPATH "${DRAFTSMITH_INSTALL_RPATH}")
install(TARGETS draftsmith COMPONENT program)

set(installed_libraries base distributed metrics data model infer train)
list(TRANSFORM installed_libraries PREPEND draftsmith_ OUTPUT_VARIABLE installed_targets)
set_target_properties(${installed_targets} PROPERTIES INSTALL_RPATH "$ORIGIN;${DRAFTSMITH_INSTALL_RPATH}")
install(TARGETS ${installed_targets} EXPORT DraftsmithTargets ${component}
  LIBRARY NAMELINK_COMPONENT development
  INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" "${CMAKE_INSTALL_INCLUDEDIR}/draftsmith")
install(EXPORT DraftsmithTargets NAMESPACE Draftsmith:: DESTINATION "${package_dir}" ${component})

# The headers by which a user enters, and all that they include; found when it is installed.
install(CODE "set(source [==[${CMAKE_SOURCE_DIR}]==])
set(destination [==[${CMAKE_INSTALL_INCLUDEDIR}/draftsmith]==])
set(entrances infer/session.h infer/loop/processors.h train/trainer.h)" ${component})
install(SCRIPT "${CMAKE_SOURCE_DIR}/cmake/install_headers.cmake" ${component})

configure_package_config_file("${CMAKE_SOURCE_DIR}/cmake/DraftsmithConfig.cmake.in"
  "${CMAKE_BINARY_DIR}/DraftsmithConfig.cmake" INSTALL_DESTINATION "${package_dir}")
# Before 1.0 a second number promises compatibility (CONTRIBUTING.md).
write_basic_package_version_file("${CMAKE_BINARY_DIR}/DraftsmithConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/DraftsmithConfig.cmake" "${CMAKE_BINARY_DIR}/DraftsmithConfigVersion.cmake"
  "${CMAKE_SOURCE_DIR}/cmake/libtorch.cmake" "${CMAKE_SOURCE_DIR}/cmake/dependencies.cmake"
  DESTINATION "${package_dir}" ${component})

# pkg-config knows no LibTorch, so its folders stand in the file. A program that links static libraries names each
# before those that it needs, and the C library before libonig (dependencies.cmake).
string(REPLACE ";" " -I" pkgconfig_torch_includes
  "-I${TORCH_INCLUDE_DIR};${TORCH_INCLUDE_DIR}/torch/csrc/api/include")
set(pkgconfig_torch_libraries "-L${torch_lib_dir} -Wl,-rpath,${torch_lib_dir}")
if(DRAFTSMITH_TORCH_CUDA)
  string(APPEND pkgconfig_torch_libraries " -Wl,-rpath,${cuda_lib_dir} -Wl,-rpath-link,${cuda_lib_dir}"
    " -Wl,--push-state,--no-as-needed -ltorch_cuda -lc10_cuda -ltorch ${cuda_runtime} -Wl,--pop-state")
endif()
string(APPEND pkgconfig_torch_libraries " -ltorch_cpu -lc10")
set(reversed ${installed_targets})
list(REVERSE reversed)
list(JOIN reversed " -l" pkgconfig_libraries)
if(NOT BUILD_SHARED_LIBS)
  set(pkgconfig_requires sentencepiece hdf5-serial tomlplusplus fmt icu-uc libcrypto oniguruma)
  list(JOIN pkgconfig_requires " " pkgconfig_requires)
endif()
file(RELATIVE_PATH pkgconfig_to_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file("${CMAKE_SOURCE_DIR}/cmake/draftsmith.pc.in" "${CMAKE_BINARY_DIR}/draftsmith.pc" @ONLY)
install(FILES "${CMAKE_BINARY_DIR}/draftsmith.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" ${component})

install(FILES README.md CHANGELOG.md SECURITY.md LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}" ${component})
