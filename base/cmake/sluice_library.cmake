# sluice_library(NAME <folder> SRCS ... HDRS ... DEPS ...): one folder, one static library, sluice::<folder>.
# HDRS form a FILE_SET, so that the build compiles each of them alone (CMAKE_VERIFY_INTERFACE_HEADER_SETS).
function(sluice_library)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;HDRS;DEPS" ${ARGN})
  string(REPLACE "-" "_" target "sluice_${ARG_NAME}")
  string(REPLACE "-" "_" alias "sluice::${ARG_NAME}")
  add_library(${target} STATIC ${ARG_SRCS})
  add_library(${alias} ALIAS ${target})
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARG_HDRS})
  target_link_libraries(${target} PUBLIC ${ARG_DEPS} PRIVATE sluice_warnings)
endfunction()

# sluice_test(NAME <name> SRCS ... DEPS ... [LABEL unit|sim|e2e|gpu]): one GoogleTest program, its cases known to ctest one by one.
function(sluice_test)
  cmake_parse_arguments(ARG "" "NAME;LABEL;TIMEOUT" "SRCS;DEPS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${ARG_NAME} ${ARG_SRCS})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS} sluice_warnings GTest::gmock GTest::gtest_main)
  target_compile_definitions(${ARG_NAME} PRIVATE
    SLUICE_SOURCE_DIR="${PROJECT_SOURCE_DIR}" SLUICE_BINARY_DIR="${PROJECT_BINARY_DIR}")
  gtest_discover_tests(${ARG_NAME} DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
endfunction()
