# Finds LibTorch and defines the imported target draftsmith::torch.
#
# Order: -DLIBTORCH=/path or the environment variable LIBTORCH (a LibTorch or a torch package folder), then
# CMAKE_PREFIX_PATH, then the wheel in .venv. find_package(Torch) of a CUDA wheel wants nvcc; this target does not.
#
# Installed packages include this file, too (DraftsmithConfig.cmake.in). They set draftsmith_package_torch, the folder of
# the LibTorch that the package was built with, which is the last that is looked for. Sets TORCH_VERSION, and
# libtorch_problem if a package has found none.
include_guard(DIRECTORY)

set(LIBTORCH "$ENV{LIBTORCH}" CACHE PATH "LibTorch folder (holds include/ and lib/); empty: CMAKE_PREFIX_PATH, then .venv")

if(LIBTORCH)
  set(torch_hints "${LIBTORCH}")
else()
  string(REPLACE ":" ";" environment_prefixes "$ENV{CMAKE_PREFIX_PATH}")
  file(GLOB torch_wheels "${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch")
  set(torch_hints ${CMAKE_PREFIX_PATH} ${environment_prefixes} ${torch_wheels} ${draftsmith_package_torch})
endif()

# Not cached: another LibTorch must be found when the user names one in a later run. CMAKE_PREFIX_PATH often names a
# torch package's parts: share/cmake (torch.utils.cmake_prefix_path) or share/cmake/Torch.
find_path(TORCH_INCLUDE_DIR torch/csrc/api/include/torch/torch.h
  HINTS ${torch_hints} PATH_SUFFIXES include ../../include ../../../include NO_DEFAULT_PATH NO_CACHE)
if(NOT TORCH_INCLUDE_DIR)
  string(CONCAT libtorch_problem
    "LibTorch was not found.\n"
    "  expected: include/torch/csrc/api/include/torch/torch.h under LIBTORCH, CMAKE_PREFIX_PATH or .venv\n"
    "  found:    nothing there (LIBTORCH='${LIBTORCH}')\n"
    "  hint:     run ./quickstart or tools/setup, or configure with -DLIBTORCH=/path/to/libtorch")
  if(NOT DEFINED draftsmith_package_torch)
    message(FATAL_ERROR "${libtorch_problem}")
  endif()
  return()
endif()
cmake_path(NORMAL_PATH TORCH_INCLUDE_DIR)
string(REGEX REPLACE "/$" "" TORCH_INCLUDE_DIR "${TORCH_INCLUDE_DIR}")
cmake_path(GET TORCH_INCLUDE_DIR PARENT_PATH torch_root)
set(torch_lib_dir "${torch_root}/lib")
cmake_path(GET torch_root PARENT_PATH torch_packages)
set(TORCH_VERSION "unknown")
if(EXISTS "${TORCH_INCLUDE_DIR}/torch/headeronly/version.h")
  file(STRINGS "${TORCH_INCLUDE_DIR}/torch/headeronly/version.h" TORCH_VERSION REGEX "^ *\"[0-9.]+\"$")
  string(REGEX REPLACE "[ \"]" "" TORCH_VERSION "${TORCH_VERSION}")
endif()

# Imported, so that exported targets refer to it by name, and packages make it of the LibTorch that they find.
add_library(draftsmith::torch INTERFACE IMPORTED)
target_include_directories(draftsmith::torch SYSTEM INTERFACE
  "${TORCH_INCLUDE_DIR}" "${TORCH_INCLUDE_DIR}/torch/csrc/api/include")
target_link_libraries(draftsmith::torch INTERFACE "${torch_lib_dir}/libtorch_cpu.so" "${torch_lib_dir}/libc10.so")
target_link_options(draftsmith::torch INTERFACE "LINKER:-rpath,${torch_lib_dir}")

# at::parallel_for is a header template that runs serially unless it is compiled with OpenMP. The runtime must be the one
# LibTorch itself uses, which the wheel brings: two in one process would be two pools of threads.
target_compile_options(draftsmith::torch INTERFACE -fopenmp)
if(EXISTS "${torch_lib_dir}/libgomp.so.1")
  target_link_libraries(draftsmith::torch INTERFACE "${torch_lib_dir}/libgomp.so.1")
else()
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  target_link_libraries(draftsmith::torch INTERFACE OpenMP::OpenMP_CXX)
endif()

# A CUDA build of LibTorch: link its CUDA half too, without needing nvcc. --no-as-needed keeps libtorch_cuda, whose
# kernels register themselves when it is loaded. It stands in one item with the libraries, since CMake moves flags.
set(DRAFTSMITH_TORCH_CUDA OFF)
if(EXISTS "${torch_lib_dir}/libtorch_cuda.so")
  # The runtime lies in a wheel beside torch, or inside the official zip, which brings no CUDA headers (our code needs
  # none).
  file(GLOB cuda_include "${torch_packages}/nvidia/cu1*/include")
  file(GLOB cuda_runtime "${torch_packages}/nvidia/cu1*/lib/libcudart.so.1*" "${torch_lib_dir}/libcudart*.so*")
  if(cuda_runtime)
    list(GET cuda_runtime 0 cuda_runtime)
    cmake_path(GET cuda_runtime PARENT_PATH cuda_lib_dir)
    target_include_directories(draftsmith::torch SYSTEM INTERFACE ${cuda_include})
    target_link_libraries(draftsmith::torch INTERFACE
      "-Wl,--push-state,--no-as-needed,\"${torch_lib_dir}/libtorch_cuda.so\",\"${torch_lib_dir}/libc10_cuda.so\",\"${torch_lib_dir}/libtorch.so\",\"${cuda_runtime}\",--pop-state")
    target_link_options(draftsmith::torch INTERFACE "LINKER:-rpath,${cuda_lib_dir}")
    target_compile_definitions(draftsmith::torch INTERFACE DRAFTSMITH_TORCH_CUDA=1)
    set(DRAFTSMITH_TORCH_CUDA ON)
    # CUDA graphs need the runtime's headers, of which the wheel lacks crt/ (tools/requirements.txt adds them).
    include(CheckCXXSourceCompiles)
    unset(DRAFTSMITH_CUDA_GRAPHS CACHE)  # they may have been installed since
    set(CMAKE_REQUIRED_INCLUDES ${cuda_include})
    check_cxx_source_compiles("#include <cuda_runtime_api.h>\nint main() { return cudaSuccess; }" DRAFTSMITH_CUDA_GRAPHS)
    unset(CMAKE_REQUIRED_INCLUDES)
    if(NOT DRAFTSMITH_CUDA_GRAPHS)
      message(WARNING
        "Steps on GPUs will not be recorded as CUDA graphs, which is slower.\n"
        "  expected: cuda_runtime_api.h and crt/host_defines.h in nvidia/cu1*/include beside the torch package\n"
        "  found:    '${cuda_include}' does not compile\n"
        "  hint:     pip install nvidia-cuda-crt in torch's CUDA version, or run tools/setup")
    endif()
  else()
    message(WARNING
      "This LibTorch has a CUDA half, but Draftsmith is built without it, for CPUs only.\n"
      "  expected: libcudart in nvidia/cu1*/lib beside the torch package, or in LibTorch's own lib\n"
      "  found:    neither in ${torch_packages} nor in ${torch_lib_dir}\n"
      "  hint:     install the wheel with its dependencies (pip install torch), or take the official CUDA zip")
  endif()
endif()
message(STATUS "LibTorch ${TORCH_VERSION}: ${torch_root} (CUDA: ${DRAFTSMITH_TORCH_CUDA})")
