# Embeds the kernel sources of a library (*.cu, *.cuh), which the program compiles at run time (base/nvrtc.h).

# draftsmith_embed_kernels(NAME): the function NAME_kernel_texts() of base/kernel_texts.h, with all files of the folder.
function(draftsmith_embed_kernels name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cu" "${CMAKE_CURRENT_SOURCE_DIR}/*.cuh")
  set(names "")
  foreach(source IN LISTS sources)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${CMAKE_SOURCE_DIR}")
    list(APPEND names "${source}")
  endforeach()
  list(SORT names)
  set(output "${CMAKE_CURRENT_BINARY_DIR}/kernel_texts.cpp")
  set(script "${CMAKE_SOURCE_DIR}/cmake/write_kernel_texts.cmake")
  add_custom_command(
    OUTPUT "${output}"
    COMMAND "${CMAKE_COMMAND}" "-DROOT=${CMAKE_SOURCE_DIR}" "-DFUNCTION=${name}_kernel_texts" "-DNAMES=${names}"
      "-DOUTPUT=${output}" -P "${script}"
    DEPENDS ${sources} "${script}"
    COMMENT "Embedding the kernels of ${name}" VERBATIM)
  target_sources(draftsmith_${name} PRIVATE "${output}")
endfunction()
