# SPDX-License-Identifier: Apache-2.0
# Run by `cmake --install`: installs the debug info of a binary of the build tree.

# As lib/debug/.build-id/NN/REST.debug, which is where gdb and perf look by the id that the linker
# has put into the binary, and that stripping leaves there.
function(spdld_install_debug_info binary)
  execute_process(COMMAND "${CMAKE_READELF}" --notes --wide "${binary}"
    OUTPUT_VARIABLE notes COMMAND_ERROR_IS_FATAL ANY)
  if(NOT notes MATCHES "Build ID: ([0-9a-f][0-9a-f])([0-9a-f]+)")
    message(FATAL_ERROR "${binary} has no build id: link it with -Wl,--build-id")
  endif()
  set(directory "${CMAKE_INSTALL_PREFIX}/lib/debug/.build-id/${CMAKE_MATCH_1}")
  set(installed "${directory}/${CMAKE_MATCH_2}.debug")
  message(STATUS "Installing: $ENV{DESTDIR}${installed}")
  file(MAKE_DIRECTORY "$ENV{DESTDIR}${directory}")
  execute_process(COMMAND "${CMAKE_OBJCOPY}" --only-keep-debug --compress-debug-sections
      "${binary}" "$ENV{DESTDIR}${installed}" COMMAND_ERROR_IS_FATAL ANY)
  file(CHMOD "$ENV{DESTDIR}${installed}"
    PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  list(APPEND CMAKE_INSTALL_MANIFEST_FILES "${installed}")
  set(CMAKE_INSTALL_MANIFEST_FILES "${CMAKE_INSTALL_MANIFEST_FILES}" PARENT_SCOPE)
endfunction()
