# What comes from outside. docs/dependencies.md says why each of them is here.

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

# --- protobuf: the lite runtime only -------------------------------------------------------------------------------
find_package(Protobuf 3.21 REQUIRED MODULE)
if(NOT TARGET protobuf::libprotobuf-lite)
    message(FATAL_ERROR "PCCL: libprotobuf-lite was not found")
endif()
set(PCCL_PROTOBUF_LITE protobuf::libprotobuf-lite)
# For what must not need the shared library, nor show its symbols: the runtime from its sources, of protoc's version.
set(PCCL_PROTOBUF_SOURCE "" CACHE PATH "Sources of protobuf, to build its lite runtime from")
if(PCCL_PROTOBUF_SOURCE)
    file(STRINGS "${PCCL_PROTOBUF_SOURCE}/cmake/libprotobuf-lite.cmake" pccl_protobuf_files REGEX "/src/.*\\.cc$")
    list(TRANSFORM pccl_protobuf_files REPLACE "^.*/src/" "${PCCL_PROTOBUF_SOURCE}/src/")
    add_library(pccl_protobuf_lite STATIC EXCLUDE_FROM_ALL ${pccl_protobuf_files})
    target_include_directories(pccl_protobuf_lite SYSTEM PUBLIC "${PCCL_PROTOBUF_SOURCE}/src")
    target_compile_definitions(pccl_protobuf_lite PRIVATE HAVE_PTHREAD)
    target_compile_options(pccl_protobuf_lite PRIVATE -w)
    target_link_libraries(pccl_protobuf_lite PUBLIC Threads::Threads)
    set(PCCL_PROTOBUF_LITE pccl_protobuf_lite)
endif()

# --- xxHash: header only -------------------------------------------------------------------------------------------
find_path(PCCL_XXHASH_INCLUDE xxhash.h REQUIRED)
add_library(pccl_xxhash INTERFACE)
target_include_directories(pccl_xxhash SYSTEM INTERFACE "${PCCL_XXHASH_INCLUDE}")
# Prefetching farther ahead than by default hashes what lies in memory, not in a cache, about an eighth faster.
target_compile_definitions(pccl_xxhash INTERFACE "XXH_INLINE_ALL=" "XXH_PREFETCH_DIST=4096")

# --- {fmt}: header only, its code is in core/base/format.cpp ---------------------------------------------------------
find_path(PCCL_FMT_INCLUDE fmt/core.h REQUIRED)
add_library(pccl_fmt INTERFACE)
target_include_directories(pccl_fmt SYSTEM INTERFACE "${PCCL_FMT_INCLUDE}")

# --- Boost.Asio, compiled once -------------------------------------------------------------------------------------
find_path(PCCL_BOOST_INCLUDE boost/asio.hpp REQUIRED)
file(STRINGS "${PCCL_BOOST_INCLUDE}/boost/version.hpp" _boost_version REGEX "^#define BOOST_VERSION ")
string(REGEX MATCH "[0-9]+" _boost_version "${_boost_version}")
if(_boost_version LESS 108100)
    message(FATAL_ERROR "PCCL: Boost 1.81 or later is needed, found ${_boost_version} in ${PCCL_BOOST_INCLUDE}")
endif()
add_library(pccl_asio STATIC EXCLUDE_FROM_ALL "${PROJECT_SOURCE_DIR}/cmake/asio_impl.cpp")
target_include_directories(pccl_asio SYSTEM PUBLIC "${PCCL_BOOST_INCLUDE}")
target_compile_definitions(pccl_asio PUBLIC BOOST_ASIO_NO_DEPRECATED BOOST_ASIO_SEPARATE_COMPILATION)
target_link_libraries(pccl_asio PUBLIC Threads::Threads)

# --- SQLite: the master's journal -----------------------------------------------------------------------------------
find_path(PCCL_SQLITE_INCLUDE sqlite3.h REQUIRED)
find_library(PCCL_SQLITE_LIBRARY sqlite3 REQUIRED)
add_library(pccl_sqlite INTERFACE)
target_include_directories(pccl_sqlite SYSTEM INTERFACE "${PCCL_SQLITE_INCLUDE}")
target_link_libraries(pccl_sqlite INTERFACE "${PCCL_SQLITE_LIBRARY}")

# --- OpenSSL: the connections of a secure run -------------------------------------------------------------------------
find_package(OpenSSL 3.0 REQUIRED)

# --- miniupnpc, where it is: peers that ask their router for a port by UPnP -------------------------------------------
find_path(PCCL_MINIUPNPC_INCLUDE miniupnpc/upnpreplyparse.h)
find_library(PCCL_MINIUPNPC_LIBRARY miniupnpc)
if(PCCL_MINIUPNPC_INCLUDE AND PCCL_MINIUPNPC_LIBRARY)
    add_library(pccl_miniupnpc INTERFACE)
    target_include_directories(pccl_miniupnpc SYSTEM INTERFACE "${PCCL_MINIUPNPC_INCLUDE}")
    target_link_libraries(pccl_miniupnpc INTERFACE "${PCCL_MINIUPNPC_LIBRARY}")
else()
    message(STATUS "PCCL: without UPnP, because libminiupnpc-dev was not found")
endif()

# --- jemalloc, where it is: a fifth of the simulator's time is the allocator of the C library -------------------------
find_library(PCCL_JEMALLOC_LIBRARY jemalloc)

# --- CLI11: header only ---------------------------------------------------------------------------------------------
find_path(PCCL_CLI11_INCLUDE CLI/CLI.hpp REQUIRED)
add_library(pccl_cli11 INTERFACE)
target_include_directories(pccl_cli11 SYSTEM INTERFACE "${PCCL_CLI11_INCLUDE}")

# --- tests ---------------------------------------------------------------------------------------------------------
if(PCCL_BUILD_TESTS)
    find_path(PCCL_CATCH2_INCLUDE catch2/catch.hpp REQUIRED)
    find_library(PCCL_CATCH2_LIBRARY Catch2WithMain REQUIRED)
    add_library(pccl_catch2 INTERFACE)
    target_include_directories(pccl_catch2 SYSTEM INTERFACE "${PCCL_CATCH2_INCLUDE}")
    target_link_libraries(pccl_catch2 INTERFACE "${PCCL_CATCH2_LIBRARY}")

    find_path(PCCL_RAPIDCHECK_INCLUDE rapidcheck.h REQUIRED)
    find_library(PCCL_RAPIDCHECK_LIBRARY rapidcheck REQUIRED)
    add_library(pccl_rapidcheck INTERFACE)
    target_include_directories(pccl_rapidcheck SYSTEM INTERFACE "${PCCL_RAPIDCHECK_INCLUDE}")
    target_link_libraries(pccl_rapidcheck INTERFACE "${PCCL_RAPIDCHECK_LIBRARY}")
endif()
