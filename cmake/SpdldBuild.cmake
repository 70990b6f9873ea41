# SPDX-License-Identifier: Apache-2.0
# The compiler's settings and the two verbs that every folder uses: spdld_library and spdld_test.
include_guard(GLOBAL)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()

find_program(SPDLD_CCACHE ccache)
if(SPDLD_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${SPDLD_CCACHE}")
  set(CMAKE_C_COMPILER_LAUNCHER "${SPDLD_CCACHE}")
endif()

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

add_library(spdld_options INTERFACE)
target_compile_options(spdld_options INTERFACE -Wall -Wextra -Werror
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>)

# SPDLD_SANITIZE: "", "address" (with undefined) or "thread".
set(SPDLD_SANITIZE "" CACHE STRING "address | thread")
if(SPDLD_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(SPDLD_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
endif()

if(SPDLD_SANITIZE)
  add_compile_definitions(SPDLD_SANITIZED)
endif()

# Places at which a test makes the daemon die or fail (base/failpoint.h). Never in what is shipped.
option(SPDLD_FAILPOINTS "build failpoints in" OFF)
if(SPDLD_FAILPOINTS)
  add_compile_definitions(SPDLD_FAILPOINTS)
endif()

# spdld_library(NAME SOURCES... PUBLIC libs... PRIVATE libs...): one static library for one folder;
# includes are written from server/'s root.
function(spdld_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC "${CMAKE_SOURCE_DIR}/server")
  target_link_libraries(${name} PUBLIC ${ARG_PUBLIC} PRIVATE spdld_options ${ARG_PRIVATE})
endfunction()

# spdld_test(NAME SOURCES... LIBS...): one GoogleTest binary, run by ctest under a watchdog.
function(spdld_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE spdld_options ${ARG_LIBS} GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT})
endfunction()
