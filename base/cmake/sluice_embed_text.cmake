# cmake -DINPUT=<file> -DOUTPUT=<file.cc> -DSYMBOL=<name> -DHEADER=<path of the header that declares it> -P sluice_embed_text.cmake
# Makes a text file part of the program: OUTPUT defines `const std::string_view SYMBOL` in sluice::gateway.
file(READ "${INPUT}" text)
string(FIND "${text}" ")sluice_text\"" clash)
if(NOT clash EQUAL -1)
  message(FATAL_ERROR "${INPUT} contains the end mark of the embedded text")
endif()
file(WRITE "${OUTPUT}.tmp" "#include \"${HEADER}\"

namespace sluice::gateway {

const std::string_view ${SYMBOL} = R\"sluice_text(${text})sluice_text\";

}  // namespace sluice::gateway
")
file(RENAME "${OUTPUT}.tmp" "${OUTPUT}")
