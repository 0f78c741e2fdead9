# Language level, warnings and sanitizers for every target of ours, carried by tern_options.
option(TERN_WERROR "Treat warnings as errors" OFF)
set(TERN_SANITIZE "" CACHE STRING "Comma-separated list for -fsanitize=")
option(TERN_DEBUG_CHECKS "Check lock ranks and other invariants at run time" OFF)
option(TERN_FUZZ "Build the libFuzzer targets (needs clang)" OFF)

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")

add_library(tern_options INTERFACE)
target_compile_definitions(tern_options INTERFACE _GNU_SOURCE TERN_VERSION="${PROJECT_VERSION}")
target_compile_options(tern_options INTERFACE
    -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla
    $<$<BOOL:${TERN_WERROR}>:-Werror>)
target_include_directories(tern_options INTERFACE
    "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/lib")
if(TERN_DEBUG_CHECKS)
    target_compile_definitions(tern_options INTERFACE TERN_DEBUG_CHECKS)
endif()
if(TERN_SANITIZE)
    target_compile_options(tern_options INTERFACE
        -fsanitize=${TERN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(tern_options INTERFACE -fsanitize=${TERN_SANITIZE})
endif()
if(TERN_FUZZ)
    target_compile_options(tern_options INTERFACE -fsanitize=fuzzer-no-link)
    target_link_options(tern_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
