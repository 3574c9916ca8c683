# pccl_core: the protocol of peer and master, without I/O. The shipped library and the simulator link the same archive.

file(GLOB_RECURSE PCCL_CORE_SOURCES CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/core/*.cpp")
file(GLOB_RECURSE PCCL_CORE_PROTOS CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/core/*.proto")

set(PCCL_GENERATED_DIR "${PROJECT_BINARY_DIR}/generated")
file(MAKE_DIRECTORY "${PCCL_GENERATED_DIR}")
set(pccl_pb_sources)
foreach(proto IN LISTS PCCL_CORE_PROTOS)
    file(RELATIVE_PATH rel "${PROJECT_SOURCE_DIR}" "${proto}")
    string(REGEX REPLACE "\\.proto$" "" stem "${rel}")
    add_custom_command(
        OUTPUT "${PCCL_GENERATED_DIR}/${stem}.pb.cc" "${PCCL_GENERATED_DIR}/${stem}.pb.h"
        COMMAND protobuf::protoc "--proto_path=${PROJECT_SOURCE_DIR}" "--cpp_out=lite:${PCCL_GENERATED_DIR}" "${rel}"
        WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
        DEPENDS ${PCCL_CORE_PROTOS}
        COMMENT "protoc ${rel}"
        VERBATIM)
    list(APPEND pccl_pb_sources "${PCCL_GENERATED_DIR}/${stem}.pb.cc")
endforeach()
set_source_files_properties(${pccl_pb_sources} PROPERTIES COMPILE_OPTIONS "-w")

add_library(pccl_core STATIC ${PCCL_CORE_SOURCES} ${pccl_pb_sources})
target_include_directories(pccl_core PUBLIC "${PROJECT_SOURCE_DIR}")
target_include_directories(pccl_core SYSTEM PUBLIC "${PCCL_GENERATED_DIR}")
target_compile_options(pccl_core PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-exceptions> $<$<COMPILE_LANGUAGE:CXX>:-fno-rtti>)
target_link_libraries(pccl_core PUBLIC ${PCCL_PROTOBUF_LITE} pccl_fmt PRIVATE pccl_xxhash)
