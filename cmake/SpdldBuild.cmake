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
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    list(PREPEND CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_SOURCE_DIR}/cmake/launch_clang.sh")
  endif()
  set(CMAKE_C_COMPILER_LAUNCHER "${SPDLD_CCACHE}")
endif()

# lld links what clang builds, the large programs of sanitizers above all, in a third of bfd's time.
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  include(CheckLinkerFlag)
  check_linker_flag(CXX -fuse-ld=lld SPDLD_HAVE_LLD)
  if(SPDLD_HAVE_LLD)
    add_link_options(-fuse-ld=lld)
  endif()
endif()

find_package(Threads REQUIRED)

add_library(spdld_options INTERFACE)
target_compile_options(spdld_options INTERFACE -Wall -Wextra -Werror
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
  # As ccache must have them to tell precompiled headers apart by their contents.
  $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>
  "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")

# Tests are compiled more often than debugged: line numbers do. And what is slow is what they test.
add_library(spdld_test_options INTERFACE)
target_link_libraries(spdld_test_options INTERFACE spdld_options)
target_compile_options(spdld_test_options INTERFACE -g1 $<$<NOT:$<BOOL:${SPDLD_SANITIZE}>>:-O1>)

# SPDLD_SANITIZE: "", "address" (with undefined) or "thread".
set(SPDLD_SANITIZE "" CACHE STRING "address | thread")
if(SPDLD_SANITIZE STREQUAL "address")
  # Without vptr: that check asks the kernel through a pipe what it may read, and reports a sound
  # object where there is no descriptor left for one, which tests bring about.
  add_compile_options(-fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=all
    -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(SPDLD_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_compile_definitions(SPDLD_THREAD_SANITIZED)
  add_link_options(-fsanitize=thread)
endif()

if(SPDLD_SANITIZE)
  add_compile_definitions(SPDLD_SANITIZED)
endif()

# libFuzzer's targets (tests/fuzz), and everything made so that it sees which branches were taken.
option(SPDLD_FUZZERS "build libFuzzer's targets" OFF)
if(SPDLD_FUZZERS)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# Sanitizers' builds are not optimised, which is half of what instrumented code costs to compile. But
# what goes through pixels and sound would then be most of their tests' time.
function(spdld_optimise target)
  if(SPDLD_SANITIZE)
    target_compile_options(${target} PRIVATE -O1)
    set_target_properties(${target} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)  # other flags
  endif()
endfunction()

# Places at which a test makes the daemon die or fail (base/failpoint.h). Never in what is shipped.
option(SPDLD_FAILPOINTS "build failpoints in" OFF)
if(SPDLD_FAILPOINTS)
  add_compile_definitions(SPDLD_FAILPOINTS)
endif()

# Headers that nearly every source includes, compiled once for the libraries and once for the tests.
# Every source still includes what it uses: `./dev lint FILE` reads it without this.
option(SPDLD_PCH "precompiled headers" ON)

# spdld_precompiled_headers(NAME HEADERS... LIBS... [PROGRAMS]): for libraries, or programs, that
# are compiled with the definitions and flags of LIBS.
function(spdld_precompiled_headers name)
  if(NOT SPDLD_PCH)
    return()
  endif()
  cmake_parse_arguments(ARG "PROGRAMS" "" "HEADERS;LIBS" ${ARGN})
  set(source "${CMAKE_BINARY_DIR}/${name}.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "")
  if(ARG_PROGRAMS)  # which are PIE, not PIC
    add_executable(${name} EXCLUDE_FROM_ALL "${source}")
  else()
    add_library(${name} OBJECT EXCLUDE_FROM_ALL "${source}")
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_LIBS})
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
endfunction()

function(spdld_use_precompiled_headers target name)
  if(SPDLD_PCH)
    target_precompile_headers(${target} REUSE_FROM ${name})
  endif()
endfunction()

# spdld_library(NAME SOURCES... PUBLIC libs... PRIVATE libs...): one static library for one folder;
# includes are written from server/'s root.
function(spdld_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC "${CMAKE_SOURCE_DIR}/server")
  target_link_libraries(${name} PUBLIC ${ARG_PUBLIC} PRIVATE spdld_options ${ARG_PRIVATE})
  spdld_use_precompiled_headers(${name} spdld_pch)
  # Highway includes these again for each instruction set, which only one of a unit could have.
  set(kernels ${ARG_SOURCES})
  list(FILTER kernels INCLUDE REGEX "_kernels")
  set_source_files_properties(${kernels} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  if(kernels AND SPDLD_SANITIZE AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
    # Highway emulates vectors for an x86-64 without SSSE3, with loops that keep clang 14 busy for minutes.
    # The warning is of files that hold nothing for the lowest set.
    set_source_files_properties(${kernels} PROPERTIES
      COMPILE_OPTIONS "-mssse3;-Wno-pragma-clang-attribute")
    if(SPDLD_SANITIZE STREQUAL "thread")  # of which one instruction set shows as much as all
      set_source_files_properties(${kernels} PROPERTIES COMPILE_DEFINITIONS HWY_COMPILE_ONLY_STATIC)
    endif()
  endif()
endfunction()

# spdld_test(NAME SOURCES... LIBS... [LABELS...] [ENVIRONMENT VAR=VALUE...] [TIMEOUT SECONDS]): one
# GoogleTest binary, run by ctest. tests/support/test_main.cpp is the watchdog of each of its tests;
# TIMEOUT, for tests that take long, is that of one test and of all of them. The label `threads` is for
# suites that ThreadSanitizer has something to look for in.
function(spdld_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBS;LABELS;ENVIRONMENT" ${ARGN})
  set(timeout 300)
  if(ARG_TIMEOUT)
    set(timeout ${ARG_TIMEOUT})
  endif()
  if(SPDLD_SANITIZE)  # not optimised, and looked at in every step
    math(EXPR timeout "3 * ${timeout}")
  endif()
  if(ARG_TIMEOUT)  # ctest would end the program without a word on the test
    math(EXPR seconds "${timeout} - 10")
    list(APPEND ARG_ENVIRONMENT SPDLD_TEST_SECONDS=${seconds})
  endif()
  add_executable(${name} ${ARG_SOURCES} $<TARGET_OBJECTS:spdld_test_main>)
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE spdld_test_options ${ARG_LIBS} GTest::gmock)
  spdld_use_precompiled_headers(${name} spdld_test_pch)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout} LABELS "${ARG_LABELS}"
    ENVIRONMENT "${ARG_ENVIRONMENT}")
endfunction()
