# Debian packages: scripts/packages.sh makes them, tests/packages/in_a_clean_root.sh tries them.
set(HONE_PACKAGE_REVISION 1 CACHE STRING "Debian's revision of the packages")
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME hone)
set(CPACK_PACKAGE_VENDOR hone)
set(CPACK_PACKAGE_CONTACT "the authors of hone <hone@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "fast tensor kernels for every program on a machine")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_SET_DESTDIR ON)  # units name the programs by the prefix of the installation
set(CPACK_STRIP_FILES ON)
if(HONE_EDGE)
  set(CPACK_COMPONENTS_ALL hone-edge libhone)
else()
  set(CPACK_COMPONENTS_ALL honed hone-edge libhone libhone-dev python3-hone)
endif()
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${HONE_PACKAGE_REVISION})
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(version "${PROJECT_VERSION}-${HONE_PACKAGE_REVISION}")

set(CPACK_DEBIAN_HONED_PACKAGE_NAME honed)
set(CPACK_DEBIAN_HONED_PACKAGE_SECTION science)
set(CPACK_COMPONENT_HONED_DESCRIPTION "kernel service: honed, the hone command, and what builds and checks kernels")
set(CPACK_DEBIAN_HONED_PACKAGE_DEPENDS "init-system-helpers, systemd | systemd-standalone-sysusers | systemd-sysusers")
# Drivers that make devices of the processor; a GPU's own come with it.
set(CPACK_DEBIAN_HONED_PACKAGE_SUGGESTS "pocl-opencl-icd, ocl-icd-libopencl1 | libopencl1, mesa-vulkan-drivers")
set(CPACK_DEBIAN_HONED_PACKAGE_CONTROL_EXTRA
    "${CMAKE_SOURCE_DIR}/packaging/honed/postinst;${CMAKE_SOURCE_DIR}/packaging/honed/prerm;${CMAKE_SOURCE_DIR}/packaging/honed/postrm")

set(CPACK_DEBIAN_HONE-EDGE_PACKAGE_NAME hone-edge)
set(CPACK_DEBIAN_HONE-EDGE_PACKAGE_SECTION science)
set(CPACK_COMPONENT_HONE-EDGE_DESCRIPTION "kernel service for devices without a compiler: honed-edge, and what checks and times kernels")
set(CPACK_DEBIAN_HONE-EDGE_PACKAGE_DEPENDS "init-system-helpers")
# They listen at one place, and bring the same hone-runner.
set(CPACK_DEBIAN_HONE-EDGE_PACKAGE_CONFLICTS honed)
set(CPACK_DEBIAN_HONE-EDGE_PACKAGE_CONTROL_EXTRA
    "${CMAKE_SOURCE_DIR}/packaging/hone-edge/postinst;${CMAKE_SOURCE_DIR}/packaging/hone-edge/prerm;${CMAKE_SOURCE_DIR}/packaging/hone-edge/postrm")

set(CPACK_DEBIAN_LIBHONE_PACKAGE_NAME libhone)
set(CPACK_DEBIAN_LIBHONE_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBHONE_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_COMPONENT_LIBHONE_DESCRIPTION "libraries for programs that take kernels from honed or run networks by them")
set(CPACK_DEBIAN_LIBHONE_PACKAGE_RECOMMENDS honed)
# What libhone_opencl and libhone_vulkan call, if it is there.
set(CPACK_DEBIAN_LIBHONE_PACKAGE_SUGGESTS "ocl-icd-libopencl1 | libopencl1, libvulkan1")

set(CPACK_DEBIAN_LIBHONE-DEV_PACKAGE_NAME libhone-dev)
set(CPACK_DEBIAN_LIBHONE-DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBHONE-DEV_PACKAGE_DEPENDS "libhone (= ${version})")
set(CPACK_DEBIAN_LIBHONE-DEV_PACKAGE_SUGGESTS "opencl-headers, libvulkan-dev")  # for hone_opencl.h and hone_vulkan.h
set(CPACK_COMPONENT_LIBHONE-DEV_DESCRIPTION "headers and build files of libhone")

set(CPACK_DEBIAN_PYTHON3-HONE_PACKAGE_NAME python3-hone)
set(CPACK_DEBIAN_PYTHON3-HONE_PACKAGE_SECTION python)
set(CPACK_DEBIAN_PYTHON3-HONE_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_PYTHON3-HONE_PACKAGE_DEPENDS "python3 (>= 3.9), python3-numpy, libhone (= ${version})")
set(CPACK_COMPONENT_PYTHON3-HONE_DESCRIPTION "Python package on libhone")

# Debian's place for Python packages; not part of other installations, which have the wheel.
install(DIRECTORY ${CMAKE_SOURCE_DIR}/python/hone DESTINATION lib/python3/dist-packages COMPONENT python3-hone EXCLUDE_FROM_ALL
        PATTERN __pycache__ EXCLUDE PATTERN "*.so" EXCLUDE)
foreach(package ${CPACK_COMPONENTS_ALL})
  install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} RENAME copyright COMPONENT ${package}
          EXCLUDE_FROM_ALL)
endforeach()
include(CPack)
