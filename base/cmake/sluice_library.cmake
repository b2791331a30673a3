# The shapes a target of the project can have. Sources are listed, never globbed.

# Collections that ./run builds by name.
add_custom_target(sluice_unit_and_sim_tests)
add_custom_target(sluice_benches)
add_custom_target(sluice_fuzzers)

# sluice_library(NAME <folder> SRCS ... HDRS ... DEPS ...): one folder, one static library, sluice::<folder>.
# HDRS form a FILE_SET, so that the target all_verify_interface_header_sets compiles each of them alone.
function(sluice_library)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;HDRS;DEPS" ${ARGN})
  string(REPLACE "-" "_" target "sluice_${ARG_NAME}")
  string(REPLACE "-" "_" alias "sluice::${ARG_NAME}")
  add_library(${target} STATIC ${ARG_SRCS})
  add_library(${alias} ALIAS ${target})
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARG_HDRS})
  target_link_libraries(${target} PUBLIC ${ARG_DEPS} PRIVATE sluice_warnings)
endfunction()

# sluice_test(NAME <name> SRCS ... DEPS ... [LABEL unit|sim|e2e|gpu] [TIMEOUT seconds]): one GoogleTest program, its cases known to ctest
# one by one. End-to-end cases run one at a time: they start several processes each. Timeouts are five times longer under a sanitizer.
function(sluice_test)
  cmake_parse_arguments(ARG "" "NAME;LABEL;TIMEOUT" "SRCS;DEPS" ${ARGN})
  if(NOT SLUICE_TESTS)
    return()
  endif()
  sluice_test_properties("${ARG_LABEL}" "${ARG_TIMEOUT}")
  add_executable(${ARG_NAME} ${ARG_SRCS})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS} sluice_warnings GTest::gmock GTest::gtest_main)
  target_compile_definitions(${ARG_NAME} PRIVATE
    SLUICE_SOURCE_DIR="${PROJECT_SOURCE_DIR}" SLUICE_BINARY_DIR="${PROJECT_BINARY_DIR}" SLUICE_PYTHON="${SLUICE_PYTHON}")
  gtest_discover_tests(${ARG_NAME} DISCOVERY_TIMEOUT 60 PROPERTIES ${test_properties})
  if(test_label MATCHES "^(unit|sim)$")
    add_dependencies(sluice_unit_and_sim_tests ${ARG_NAME})
  endif()
endfunction()

# sluice_python_test(NAME <name> SCRIPT <file.py> [ARGS ...] [LABEL ...] [TIMEOUT seconds]): a Python program that exits with 0, or 77 to
# skip after printing why. Runs with the package on its path and SLUICE_BINARY_DIR set. Not under sanitizers: the interpreter has none.
function(sluice_python_test)
  cmake_parse_arguments(ARG "" "NAME;SCRIPT;LABEL;TIMEOUT" "ARGS" ${ARGN})
  if(NOT SLUICE_TESTS OR SLUICE_SANITIZE)
    return()
  endif()
  sluice_test_properties("${ARG_LABEL}" "${ARG_TIMEOUT}")
  cmake_path(ABSOLUTE_PATH ARG_SCRIPT BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
  add_test(NAME ${ARG_NAME} COMMAND ${SLUICE_PYTHON} ${ARG_SCRIPT} ${ARG_ARGS})
  set_tests_properties(${ARG_NAME} PROPERTIES ${test_properties} SKIP_RETURN_CODE 77 ENVIRONMENT
    "PYTHONPATH=${PROJECT_SOURCE_DIR}/site-agent/python;PYTHONDONTWRITEBYTECODE=1;SLUICE_BINARY_DIR=${PROJECT_BINARY_DIR}")
endfunction()

# Sets test_label and test_properties in the caller.
function(sluice_test_properties label timeout)
  if(NOT label)
    set(label unit)
  endif()
  if(NOT label MATCHES "^(unit|sim|e2e|gpu)$")
    message(FATAL_ERROR "Test label \"${label}\" is none of unit, sim, e2e, gpu.")
  endif()
  if(NOT timeout)
    set(timeout 120)
  endif()
  if(SLUICE_SANITIZE)
    math(EXPR timeout "${timeout} * 5")
  endif()
  set(properties LABELS ${label} TIMEOUT ${timeout})
  if(label STREQUAL "e2e")
    list(APPEND properties RUN_SERIAL TRUE)
  endif()
  set(test_label ${label} PARENT_SCOPE)
  set(test_properties ${properties} PARENT_SCOPE)
endfunction()

# sluice_bench(NAME <name>_bench SRCS ... DEPS ...): a measuring program; `./run bench <name>` builds it in release and runs it.
function(sluice_bench)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;DEPS" ${ARGN})
  if(NOT SLUICE_BENCH)
    return()
  endif()
  add_executable(${ARG_NAME} ${ARG_SRCS})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS} sluice_warnings)
  add_dependencies(sluice_benches ${ARG_NAME})
  if(NOT SLUICE_TESTS)
    set_target_properties(${ARG_NAME} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# sluice_fuzzer(NAME <name>_fuzz SRCS ... DEPS ...): LLVMFuzzerTestOneInput in SRCS. With SLUICE_FUZZ a libFuzzer program; otherwise a test
# that feeds it tests/fuzz/corpus/<name>_fuzz/ and a few thousand mutations of it, so that every compiler and sanitizer sees the target.
function(sluice_fuzzer)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;DEPS" ${ARGN})
  if(NOT SLUICE_FUZZ AND NOT SLUICE_TESTS)
    return()
  endif()
  add_executable(${ARG_NAME} ${ARG_SRCS})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS} sluice_warnings)
  if(SLUICE_FUZZ)
    target_compile_options(${ARG_NAME} PRIVATE -fsanitize=fuzzer)
    target_link_options(${ARG_NAME} PRIVATE -fsanitize=fuzzer)
    add_dependencies(sluice_fuzzers ${ARG_NAME})
  else()
    target_sources(${ARG_NAME} PRIVATE ${PROJECT_SOURCE_DIR}/tests/support/fuzz_replay_main.cc)
    sluice_test_properties(unit 120)
    add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME} ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${ARG_NAME})
    set_tests_properties(${ARG_NAME} PROPERTIES ${test_properties})
    add_dependencies(sluice_unit_and_sim_tests ${ARG_NAME})
  endif()
endfunction()
