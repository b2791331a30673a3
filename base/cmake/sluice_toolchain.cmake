# Language level, warnings and sanitizers, the same for every target of the project. Third-party headers are SYSTEM.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()
find_program(SLUICE_CCACHE ccache)
if(SLUICE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${SLUICE_CCACHE})
endif()
# Debug sections compressed: sanitizer builds of every test are what fills a disk.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-gz>)

add_library(sluice_warnings INTERFACE)
target_compile_options(sluice_warnings INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wold-style-cast;-Wnon-virtual-dtor>"
  "$<$<COMPILE_LANGUAGE:CXX>:-Woverloaded-virtual;-Wformat=2;-Werror>"
  # Under g++, -Wconversion leaves signs alone; clang's would not.
  "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-sign-conversion>"
  "$<$<COMPILE_LANGUAGE:CXX>:-fstack-protector-strong>"
  # The arithmetic of the codec is specified to the bit: no fused multiply-add, no value-changing shortcuts.
  "$<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>"
  "$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;-Xcompiler=-Wall,-Wextra,-Werror,-ffp-contract=off>")
target_compile_definitions(sluice_warnings INTERFACE _GLIBCXX_ASSERTIONS)

# Every object of the build is instrumented: a sanitizer that sees half of a program reports what is not there.
set(SLUICE_SANITIZE "" CACHE STRING "Sanitizers of the build: empty, \"address,undefined\" or \"thread\"")
if(SLUICE_SANITIZE)
  add_compile_options(-fsanitize=${SLUICE_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${SLUICE_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Instrumented code confuses two warnings of g++ 12, which the dev build checks.
    add_compile_options(-Wno-maybe-uninitialized -Wno-array-bounds)
    if(SLUICE_SANITIZE STREQUAL "thread")
      add_compile_options(-Wno-tsan)  # its thread sanitizer knows no fences; Asio has one where no data race hangs on it
    endif()
  endif()
endif()
# A fuzzer steers by what it sees covered, so the libraries are instrumented too, not only the target's own file.
if(SLUICE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 at -O3 sees an overlapping copy in `std::string + const char*` that is not there (GCC bug 105651).
  target_compile_options(sluice_warnings INTERFACE -Wno-restrict)
endif()
