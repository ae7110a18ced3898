# Embeds the kernel sources of a library (*.cu, *.cuh), which the program compiles at run time (base/kernel_loader.h).

# draftsmith_embed_kernels(NAME): the function NAME_kernel_texts() of base/kernel_texts.h, with all files of the folder.
function(draftsmith_embed_kernels name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cu" "${CMAKE_CURRENT_SOURCE_DIR}/*.cuh")
  list(SORT sources)
  set(names "")
  foreach(source IN LISTS sources)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${CMAKE_SOURCE_DIR}" OUTPUT_VARIABLE name_below_root)
    list(APPEND names "${name_below_root}")
  endforeach()
  draftsmith_embed_texts(draftsmith_${name} FUNCTION ${name}_kernel_texts HEADER base/kernel_texts.h
    NAMESPACE draftsmith FILES ${sources} NAMES ${names})
endfunction()
