# What `./dev install` puts under the prefix: headers, library, programs, pkg-config and CMake files.
include(GNUInstallDirs)

if(TARGET pccl)
    install(TARGETS pccl LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
    install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
            FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
    file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/pccl.pc" @ONLY CONTENT [[
prefix=@CMAKE_INSTALL_PREFIX@
libdir=@CMAKE_INSTALL_FULL_LIBDIR@
includedir=@CMAKE_INSTALL_FULL_INCLUDEDIR@

Name: pccl
Description: Collective communication for peers that come and go
Version: @PROJECT_VERSION@
Libs: -L${libdir} -lpccl
Cflags: -I${includedir}
]])
    install(FILES "${PROJECT_BINARY_DIR}/pccl.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

    file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/pcclConfig.cmake" @ONLY CONTENT [[
if(NOT TARGET pccl::pccl)
    add_library(pccl::pccl SHARED IMPORTED)
    set_target_properties(pccl::pccl PROPERTIES
        IMPORTED_LOCATION "@CMAKE_INSTALL_FULL_LIBDIR@/libpccl.so"
        IMPORTED_SONAME "libpccl.so.@PROJECT_VERSION_MAJOR@"
        INTERFACE_INCLUDE_DIRECTORIES "@CMAKE_INSTALL_FULL_INCLUDEDIR@")
endif()
]])
    include(CMakePackageConfigHelpers)
    write_basic_package_version_file("${PROJECT_BINARY_DIR}/pcclConfigVersion.cmake" COMPATIBILITY SameMajorVersion)
    install(FILES "${PROJECT_BINARY_DIR}/pcclConfig.cmake" "${PROJECT_BINARY_DIR}/pcclConfigVersion.cmake"
            DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/pccl")
endif()
if(TARGET pccl-master)
    install(TARGETS pccl-master RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
    install(CODE "file(CREATE_LINK pccl-master \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/ccoip_master\" SYMBOLIC)")
    # Not enabled by being there; `systemctl enable --now pccl-master` does that.
    install(FILES "${PROJECT_SOURCE_DIR}/packaging/pccl-master.service" DESTINATION lib/systemd/system)
endif()
