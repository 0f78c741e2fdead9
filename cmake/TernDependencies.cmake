# Third-party libraries, all from Debian 12. Each has a line in docs/decisions/ that says why it is here.
include(FindPkgConfig)

function(tern_require_pkg target module package)
    pkg_check_modules(${target} QUIET IMPORTED_TARGET ${module})
    if(NOT ${target}_FOUND)
        message(FATAL_ERROR "TernMQ needs ${module}, which pkg-config does not find. "
                            "On Debian: apt-get install ${package}")
    endif()
endfunction()

find_package(Threads REQUIRED)
find_package(nng 1.5.2 CONFIG QUIET)
if(NOT nng_FOUND)
    message(FATAL_ERROR "TernMQ needs NNG 1.5.2 or newer with its CMake package. "
                        "On Debian: apt-get install libnng-dev")
endif()
tern_require_pkg(PROTOBUF_C libprotobuf-c libprotobuf-c-dev)
tern_require_pkg(YAML yaml-0.1 libyaml-dev)
tern_require_pkg(ISAL libisal libisal-dev)
tern_require_pkg(JANSSON jansson libjansson-dev)

find_path(UTHASH_INCLUDE_DIR uthash.h)
if(NOT UTHASH_INCLUDE_DIR)
    message(FATAL_ERROR "TernMQ needs uthash.h. On Debian: apt-get install uthash-dev")
endif()
find_program(PROTOC_C NAMES protoc-c)
if(NOT PROTOC_C)
    message(FATAL_ERROR "TernMQ needs protoc-c. On Debian: apt-get install protobuf-c-compiler")
endif()
find_package(cmocka CONFIG QUIET)
if(NOT cmocka_FOUND)
    message(FATAL_ERROR "TernMQ's tests need cmocka. On Debian: apt-get install libcmocka-dev")
endif()
