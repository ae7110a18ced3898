# Two precompiled headers: of the layers with LibTorch, and of those without (targets.cmake shares them). Both are compiled
# with the flags that every target has.

add_library(draftsmith_precompiled_plain STATIC "${CMAKE_SOURCE_DIR}/cmake/precompiled_plain.cpp")
target_include_directories(draftsmith_precompiled_plain PRIVATE "${CMAKE_SOURCE_DIR}")
target_link_libraries(draftsmith_precompiled_plain PRIVATE draftsmith::fmt draftsmith::torch nlohmann_json::nlohmann_json)
target_precompile_headers(draftsmith_precompiled_plain PRIVATE "${CMAKE_SOURCE_DIR}/cmake/precompiled_plain.h")

add_library(draftsmith_precompiled_torch STATIC "${CMAKE_SOURCE_DIR}/cmake/precompiled_torch.cpp")
target_include_directories(draftsmith_precompiled_torch PRIVATE "${CMAKE_SOURCE_DIR}")
target_link_libraries(draftsmith_precompiled_torch PRIVATE draftsmith::fmt draftsmith::torch nlohmann_json::nlohmann_json)
target_precompile_headers(draftsmith_precompiled_torch PRIVATE "${CMAKE_SOURCE_DIR}/cmake/precompiled_torch.h")
