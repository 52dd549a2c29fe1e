# SPDX-License-Identifier: MIT
# Install rules: headers, a CMake package with components, pkg-config files. Each component has its own export file,
# so that a consumer needs only the libraries of the components it asks for.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Headers and package files are the same for every architecture.
set(_package_dir "${CMAKE_INSTALL_DATADIR}/cmake/pvring")
set(_pc_dir "${CMAKE_INSTALL_DATADIR}/pkgconfig")

foreach(_component IN LISTS PVRING_COMPONENTS)
  install(
    TARGETS pvring_${_component}
    EXPORT pvring_${_component}
    FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
  install(
    EXPORT pvring_${_component}
    NAMESPACE pvring::
    FILE pvring-${_component}.cmake
    DESTINATION "${_package_dir}")
endforeach()

configure_package_config_file(cmake/pvringConfig.cmake.in "${PROJECT_BINARY_DIR}/package/pvringConfig.cmake"
                              INSTALL_DESTINATION "${_package_dir}")
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/package/pvringConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES "${PROJECT_BINARY_DIR}/package/pvringConfig.cmake"
              "${PROJECT_BINARY_DIR}/package/pvringConfigVersion.cmake" cmake/FindLibaio.cmake cmake/FindLiburing.cmake
              cmake/FindLibnbd.cmake cmake/FindXenTools.cmake
        DESTINATION "${_package_dir}")

# pvring_install_pc(NAME DESCRIPTION REQUIRES LIBS)
function(pvring_install_pc PC_NAME PC_DESCRIPTION PC_REQUIRES PC_LIBS)
  configure_file(cmake/pvring.pc.in "${PROJECT_BINARY_DIR}/package/${PC_NAME}.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/package/${PC_NAME}.pc" DESTINATION "${_pc_dir}")
endfunction()
pvring_install_pc(pvring "${PROJECT_DESCRIPTION}" "" "-pthread")
if(TARGET pvring_libaio)
  pvring_install_pc(pvring-libaio "pvring's libaio engine" "pvring = ${PROJECT_VERSION}" "-laio")
endif()
if(TARGET pvring_uring)
  pvring_install_pc(pvring-uring "pvring's io_uring engine" "pvring = ${PROJECT_VERSION} liburing" "")
endif()
if(TARGET pvring_nbd)
  pvring_install_pc(pvring-nbd "pvring's NBD engine" "pvring = ${PROJECT_VERSION} libnbd" "")
endif()
if(TARGET pvring_xen)
  pvring_install_pc(pvring-xen "pvring on a Xen host" "pvring = ${PROJECT_VERSION} xengnttab xenevtchn xenstore" "")
endif()
if(TARGET pvring_testing)
  pvring_install_pc(pvring-testing "pvring's test kit" "pvring = ${PROJECT_VERSION} gtest" "")
endif()
