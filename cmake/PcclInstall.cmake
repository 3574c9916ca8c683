# What `./dev install` and the packages hold, in three parts: runtime (the library), dev (headers, archive, files for CMake
# and pkg-config), tools (programs, manual pages, completion, service).

if(TARGET pccl)
    # The unversioned name belongs to the library itself: programs linked against the original ask for it.
    install(TARGETS pccl EXPORT pcclTargets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT runtime
            INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
    install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT dev
            FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
    if(TARGET pccl_static)
        install(FILES "${PROJECT_BINARY_DIR}/lib/libpccl.a" DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT dev)
    endif()

    # Relative to the file itself, so that an installed tree can be moved.
    set(pccl_pc_folder "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
    file(RELATIVE_PATH pccl_pc_prefix "/${pccl_pc_folder}" "/")
    string(REGEX REPLACE "/$" "" pccl_pc_prefix "${pccl_pc_prefix}")
    if(TARGET pccl_miniupnpc)
        set(pccl_pc_upnp " -lminiupnpc")
    endif()
    file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/pccl.pc" @ONLY CONTENT [[
prefix=${pcfiledir}/@pccl_pc_prefix@
libdir=${prefix}/@CMAKE_INSTALL_LIBDIR@
includedir=${prefix}/@CMAKE_INSTALL_INCLUDEDIR@

Name: pccl
Description: Collective communication for peers that come and go
Version: @PROJECT_VERSION@
Libs: -L${libdir} -lpccl
Libs.private: -lprotobuf-lite -lsqlite3 -lssl -lcrypto@pccl_pc_upnp@ -lstdc++ -lm -pthread
Cflags: -I${includedir}
]])
    install(FILES "${PROJECT_BINARY_DIR}/pccl.pc" DESTINATION "${pccl_pc_folder}" COMPONENT dev)

    include(CMakePackageConfigHelpers)
    set(pccl_cmake_folder "${CMAKE_INSTALL_LIBDIR}/cmake/pccl")
    install(EXPORT pcclTargets NAMESPACE pccl:: DESTINATION "${pccl_cmake_folder}" COMPONENT dev)
    file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/pcclConfig.cmake" @ONLY CONTENT [[
include("${CMAKE_CURRENT_LIST_DIR}/pcclTargets.cmake")
]])
    write_basic_package_version_file("${PROJECT_BINARY_DIR}/pcclConfigVersion.cmake" COMPATIBILITY SameMajorVersion)
    install(FILES "${PROJECT_BINARY_DIR}/pcclConfig.cmake" "${PROJECT_BINARY_DIR}/pcclConfigVersion.cmake"
            DESTINATION "${pccl_cmake_folder}" COMPONENT dev)
endif()

set(pccl_tools)
foreach(tool pccl-master sim-run)
    if(TARGET ${tool})
        list(APPEND pccl_tools ${tool})
    endif()
endforeach()
if(pccl_tools)
    # Programs find the library beside them, wherever the tree is installed.
    file(RELATIVE_PATH pccl_bin_to_lib "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBDIR}")
    set_target_properties(${pccl_tools} PROPERTIES INSTALL_RPATH "$ORIGIN/${pccl_bin_to_lib}")
    install(TARGETS ${pccl_tools} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT tools)
    install(FILES "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/ccoip_master" DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT tools)
    install(FILES "${PROJECT_SOURCE_DIR}/packaging/pccl.bash-completion"
            DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" RENAME pccl-master COMPONENT tools)
    foreach(name sim-run ccoip_master)
        install(FILES "${PROJECT_SOURCE_DIR}/packaging/pccl.bash-completion"
                DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" RENAME ${name} COMPONENT tools)
    endforeach()
    if(EXISTS "${PROJECT_SOURCE_DIR}/packaging/pccl-master.service")
        install(FILES "${PROJECT_SOURCE_DIR}/packaging/pccl-master.service" DESTINATION lib/systemd/system COMPONENT tools)
    endif()

    # Manual pages come from --help, so they cannot say anything else.
    find_program(PCCL_HELP2MAN help2man)
    if(PCCL_HELP2MAN)
        set(pages)
        foreach(tool IN LISTS pccl_tools)
            set(page "${PROJECT_BINARY_DIR}/man/${tool}.1")
            add_custom_command(
                OUTPUT "${page}"
                COMMAND "${CMAKE_COMMAND}" -E make_directory "${PROJECT_BINARY_DIR}/man"
                COMMAND "${PCCL_HELP2MAN}" --no-info --no-discard-stderr "--version-string=${PROJECT_VERSION}"
                        "--source=PCCL ${PROJECT_VERSION}"
                        "--include=${PROJECT_SOURCE_DIR}/packaging/${tool}.h2m" "--output=${page}" "$<TARGET_FILE:${tool}>"
                DEPENDS ${tool} "${PROJECT_SOURCE_DIR}/packaging/${tool}.h2m"
                COMMENT "manual page ${tool}(1)"
                VERBATIM)
            list(APPEND pages "${page}")
        endforeach()
        add_custom_target(pccl_man ALL DEPENDS ${pages})
        install(FILES ${pages} DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT tools)
    endif()
endif()
