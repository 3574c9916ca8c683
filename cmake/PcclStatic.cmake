# libpccl.a: one relocatable object in which everything but the functions of the interface is local, so that a program that
# links it statically meets no name of ours and can bring its own Asio.

# pccl_add_relocatable(target OUTPUT archive OBJECTS object_library LIBS target...)
function(pccl_add_relocatable target)
    cmake_parse_arguments(arg "" "OUTPUT;OBJECTS" "LIBS" ${ARGN})
    set(object "${PROJECT_BINARY_DIR}/generated/${target}.o")
    set(archives)
    foreach(lib IN LISTS arg_LIBS)
        list(APPEND archives "$<TARGET_FILE:${lib}>")
    endforeach()
    # GNU ld by name: other linkers do not take groups of inline functions apart, and a group must not lose a member that
    # has become local to another object's copy of it.
    find_program(PCCL_GNU_LD NAMES ld.bfd ld REQUIRED)
    add_custom_command(
        OUTPUT "${arg_OUTPUT}"
        COMMAND "${PCCL_GNU_LD}" -r --force-group-allocation -o "${object}" --whole-archive
                "$<TARGET_OBJECTS:${arg_OBJECTS}>" ${archives} --no-whole-archive
        COMMAND "${CMAKE_OBJCOPY}" --wildcard "--keep-global-symbol=pccl*" --strip-debug "${object}"
        COMMAND "${CMAKE_COMMAND}" -E rm -f "${arg_OUTPUT}"
        COMMAND "${CMAKE_AR}" rcs "${arg_OUTPUT}" "${object}"
        DEPENDS ${arg_LIBS} "$<TARGET_OBJECTS:${arg_OBJECTS}>"
        COMMENT "relocatable object of ${target}"
        COMMAND_EXPAND_LISTS VERBATIM)
    add_custom_target(${target} ALL DEPENDS "${arg_OUTPUT}")
endfunction()
