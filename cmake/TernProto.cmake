# tern_proto(target a.proto …): C code from .proto files of this folder, as an object-like static library.
function(tern_proto target)
    set(generated)
    foreach(proto ${ARGN})
        get_filename_component(name ${proto} NAME_WE)
        set(out "${CMAKE_CURRENT_BINARY_DIR}/${name}.pb-c")
        add_custom_command(
            OUTPUT ${out}.c ${out}.h
            COMMAND ${PROTOC_C} --c_out=${CMAKE_CURRENT_BINARY_DIR}
                    -I ${CMAKE_CURRENT_SOURCE_DIR} ${proto}
            DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${proto}
            WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}
            VERBATIM)
        list(APPEND generated ${out}.c ${out}.h)
    endforeach()
    add_library(${target} STATIC ${generated})
    target_include_directories(${target} PUBLIC
        "${PROJECT_BINARY_DIR}" "${CMAKE_CURRENT_BINARY_DIR}")
    target_link_libraries(${target} PUBLIC PkgConfig::PROTOBUF_C)
    if(TERN_SANITIZE)
        target_compile_options(${target} PRIVATE -fsanitize=${TERN_SANITIZE} -fno-sanitize-recover=all)
    endif()
endfunction()
