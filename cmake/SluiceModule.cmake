# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0

# sluice_module(NAME name SOURCES ... HEADERS ... DEPS ... [FUZZED]): one static library `sluice_<name>` with alias
# sluice::<name>. Headers go into a file set, so that the target all_verify_interface_header_sets compiles each alone.
# FUZZED: tests/fuzz sees which of its branches an input takes.
function(sluice_module)
  cmake_parse_arguments(ARG "FUZZED" "NAME" "SOURCES;HEADERS;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(sluice_${ARG_NAME} STATIC ${ARG_SOURCES})
  add_library(sluice::${ARG_NAME} ALIAS sluice_${ARG_NAME})
  target_sources(sluice_${ARG_NAME} PUBLIC FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}" FILES ${ARG_HEADERS})
  target_link_libraries(sluice_${ARG_NAME} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
  if(ARG_FUZZED AND SLUICE_SANITIZER STREQUAL "address")
    target_compile_options(sluice_${ARG_NAME} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()

# The tests that CI runs under a sanitizer, and nothing else, so that its builds stay affordable.
add_custom_target(sluice_asan_tests)
add_custom_target(sluice_tsan_tests)

# sluice_test(NAME name SOURCES ... DEPS ... [LABELS ...] [ENVIRONMENT ...] [ARGS ...]): a GoogleTest binary and its CTest
# entry. Tests name their label (unit, conformance, sim, fault, integration, interop, gpu, dev) and
# the sanitizers they run under in CI (asan, tsan).
function(sluice_test)
  cmake_parse_arguments(ARG "" "NAME;TIMEOUT" "SOURCES;DEPS;LABELS;ENVIRONMENT;ARGS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME} ${ARG_ARGS})
  foreach(sanitizer IN ITEMS asan tsan)
    if("${sanitizer}" IN_LIST ARG_LABELS)
      add_dependencies(sluice_${sanitizer}_tests ${ARG_NAME})
    endif()
  endforeach()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(SLUICE_SANITIZER)
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 4")
  endif()
  if(SLUICE_SANITIZER STREQUAL "thread")
    # Debian's gRPC is not instrumented; what is known to be false is listed, with its reason, in that file.
    list(APPEND ARG_ENVIRONMENT
      "TSAN_OPTIONS=ignore_noninstrumented_modules=1:suppressions=${PROJECT_SOURCE_DIR}/tests/support/tsan.supp")
  endif()
  set_tests_properties(${ARG_NAME} PROPERTIES LABELS "${ARG_LABELS}" ENVIRONMENT "${ARG_ENVIRONMENT}" TIMEOUT ${ARG_TIMEOUT})
endfunction()
