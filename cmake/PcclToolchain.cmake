# Language level, flags and output folders that hold for every target.

set(CMAKE_C_STANDARD 99)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Release | Debug" FORCE)
endif()
foreach(lang C CXX)
    set(CMAKE_${lang}_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")
    set(CMAKE_${lang}_FLAGS_DEBUG "-O0 -g1")
endforeach()

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")

# The same bytes on every machine: no fused multiply-add behind our back.
add_compile_options(-Wall -Wextra -Wconversion -ffp-contract=off -fno-fast-math)
if(PCCL_WERROR)
    add_compile_options(-Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Warns about the layout of std::pair and similar between two old releases of the compiler.
    add_compile_options(-Wno-psabi)
    # Unique symbols cannot be made local (libpccl.a), and keep a library loaded for ever.
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-gnu-unique>)
    # gcc 12 warns about overlapping copies inside std::string that cannot happen.
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()

if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # clang counts these under -Wconversion, gcc does not.
    add_compile_options(-Wno-sign-conversion -Wno-implicit-int-float-conversion -Wno-string-conversion)
endif()

if(PCCL_SANITIZE)
    add_compile_options(-fsanitize=${PCCL_SANITIZE} -fno-omit-frame-pointer)
    add_link_options(-fsanitize=${PCCL_SANITIZE})
    if(PCCL_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        # Header code of Asio uses fences, which gcc's ThreadSanitizer does not model; it only says so.
        add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-tsan>)
    endif()
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        # Instrumented code of Boost.Beast seems to use memory that has no value; without a sanitizer gcc sees that it has.
        add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
    endif()
    if(PCCL_SANITIZE MATCHES "undefined")
        # vptr needs the type information that core is built without.
        add_compile_options(-fno-sanitize-recover=undefined -fno-sanitize=vptr)
        if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
            # clang 14 mixes up coroutine frames and function type checks.
            add_compile_options(-fno-sanitize=function)
            add_link_options(-fno-sanitize=function)
        endif()
    endif()
endif()
if(PCCL_FUZZ)
    if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "PCCL_FUZZ needs clang")
    endif()
    add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize=function,vptr
                        -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
    add_link_options(-fsanitize=address,undefined -fno-sanitize=function)
endif()

find_program(PCCL_CCACHE ccache)
if(PCCL_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_C_COMPILER_LAUNCHER "${PCCL_CCACHE}")
    set(CMAKE_CXX_COMPILER_LAUNCHER "${PCCL_CCACHE}")
endif()
find_program(PCCL_MOLD mold)
if(PCCL_MOLD)
    add_link_options(-fuse-ld=mold)
endif()
