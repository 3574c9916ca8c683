# Debian packages, made by `./dev package`: libpccl1, libpccl-dev, pccl-tools.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME pccl)
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_PACKAGE_CONTACT "The PCCL authors <pccl@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "collective communication for peers that come and go")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime dev tools)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# dpkg-shlibdeps looks here for libpccl.so, which is not installed at that time.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${PROJECT_BINARY_DIR}/lib")

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libpccl${PROJECT_VERSION_MAJOR})
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_DESCRIPTION "collective communication for peers that come and go (library)
 Peers reduce tensors over a ring of TCP connections and hold a shared state
 that is bit-identical on all of them, whichever peer joins, stalls or dies.")
# Makes dpkg run ldconfig after the library is installed or removed.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA "${PROJECT_SOURCE_DIR}/packaging/triggers")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libpccl-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_SHLIBDEPS OFF)
# A program that links libpccl.a also needs protobuf, SQLite and libstdc++.
if(TARGET pccl_miniupnpc)
    set(pccl_deb_upnp ", libminiupnpc-dev")
endif()
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS
    "libpccl${PROJECT_VERSION_MAJOR} (= ${PROJECT_VERSION}), libprotobuf-dev, libsqlite3-dev, libssl-dev${pccl_deb_upnp}, libstdc++-12-dev | libstdc++-dev")
set(CPACK_DEBIAN_DEV_DESCRIPTION "collective communication for peers that come and go (headers)
 Headers, the static library, and files for CMake and pkg-config.")

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME pccl-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION net)
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "libpccl${PROJECT_VERSION_MAJOR} (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_TOOLS_DESCRIPTION "collective communication for peers that come and go (programs)
 pccl-master, which coordinates a run, and sim-run, which replays one from a
 seed.")
include(CPack)
