# SPDX-License-Identifier: Apache-2.0
# Run by `cmake --install`: installs the service unit, which names the program and its
# configuration, and the configuration.

# CMAKE_INSTALL_FULL_* of the prefix that is installed to; /etc for the prefix /usr.
include(GNUInstallDirs)
get_filename_component(source_dir "${CMAKE_CURRENT_LIST_DIR}" DIRECTORY)

set(unit "${CMAKE_INSTALL_PREFIX}/lib/systemd/system/spdld.service")
message(STATUS "Installing: $ENV{DESTDIR}${unit}")
configure_file("${source_dir}/deploy/systemd/spdld.service.in" "$ENV{DESTDIR}${unit}"
  @ONLY NO_SOURCE_PERMISSIONS)
list(APPEND CMAKE_INSTALL_MANIFEST_FILES "${unit}")

# The configuration is the administrator's once it is there: it is neither replaced nor completed,
# and it is not in the manifest by which one uninstalls.
set(config_dir "$ENV{DESTDIR}${CMAKE_INSTALL_FULL_SYSCONFDIR}/spdld")
if(EXISTS "${config_dir}/spdld.yaml")
  message(STATUS "Keeping: ${config_dir}; "
    "the defaults of this version are in ${CMAKE_INSTALL_FULL_DOCDIR}/config")
else()
  message(STATUS "Installing: ${config_dir}")
  file(COPY "${source_dir}/config/spdld.yaml" DESTINATION "${config_dir}" NO_SOURCE_PERMISSIONS)
  # Those that come as examples read from places that are elsewhere on each machine.
  file(MAKE_DIRECTORY "${config_dir}/pipelines")
endif()
