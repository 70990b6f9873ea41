# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` does beyond the install() of each folder. Its components are client, dev,
# server, python, doc and debug; docs/install.md says what is in them.
include_guard(GLOBAL)
include(GNUInstallDirs)

# What is written into units and the manifest holds wherever it is read.
install(CODE [[get_filename_component(CMAKE_INSTALL_PREFIX "${CMAKE_INSTALL_PREFIX}" ABSOLUTE)]]
  ALL_COMPONENTS)

# Installed binaries are stripped, as by `cmake --install --strip`; the component debug has the rest
# of them. Tools that make packages strip by themselves: SPDLD_KEEP_SYMBOLS in the environment.
install(CODE [[if(NOT DEFINED ENV{SPDLD_KEEP_SYMBOLS})
  set(CMAKE_INSTALL_DO_STRIP TRUE)
endif()]] ALL_COMPONENTS)

# Paths that the scripts below need, and that are settled only by `--prefix`.
install(CODE "
  set(CMAKE_INSTALL_BINDIR \"${CMAKE_INSTALL_BINDIR}\")
  set(CMAKE_INSTALL_DOCDIR \"${CMAKE_INSTALL_DOCDIR}\")
  set(CMAKE_INSTALL_LIBDIR \"${CMAKE_INSTALL_LIBDIR}\")
  set(CMAKE_INSTALL_SYSCONFDIR \"${CMAKE_INSTALL_SYSCONFDIR}\")
  set(CMAKE_OBJCOPY \"${CMAKE_OBJCOPY}\")
  set(CMAKE_READELF \"${CMAKE_READELF}\")" ALL_COMPONENTS)
install(SCRIPT "${CMAKE_SOURCE_DIR}/cmake/install_debug_info.cmake" COMPONENT debug)

# spdld_install_debug_info(TARGET): its debug info, as a file that debuggers find by its build id.
function(spdld_install_debug_info target)
  install(CODE "spdld_install_debug_info(\"$<TARGET_FILE:${target}>\")" COMPONENT debug)
endfunction()

if(SPDLD_BUILD_SERVER)
  install(FILES deploy/systemd/spdld-control.socket deploy/systemd/spdld-data.socket
    DESTINATION lib/systemd/system COMPONENT server)
  install(FILES deploy/systemd/spdld.sysusers
    DESTINATION lib/sysusers.d RENAME spdld.conf COMPONENT server)
  install(FILES deploy/systemd/spdld.tmpfiles
    DESTINATION lib/tmpfiles.d RENAME spdld.conf COMPONENT server)
  install(SCRIPT "${CMAKE_SOURCE_DIR}/cmake/install_service.cmake" COMPONENT server)
endif()

# Not where systemd would read it: a node without a GPU keeps the devices out.
# Nor without http.listen the Internet.
install(FILES deploy/systemd/gpu.conf deploy/systemd/http.conf
  DESTINATION "${CMAKE_INSTALL_DOCDIR}/systemd" COMPONENT doc)
install(FILES deploy/prometheus/spdld.dashboard.json deploy/prometheus/spdld.rules.yml
  DESTINATION "${CMAKE_INSTALL_DOCDIR}/prometheus" COMPONENT doc)
install(FILES CHANGELOG.md LICENSE README.md DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT doc)
install(DIRECTORY docs config DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT doc)
