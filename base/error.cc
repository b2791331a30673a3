#include "base/error.h"

#include <fmt/format.h>

namespace sluice {

std::string_view error_code_name(ErrorCode code) {
  switch (code) {
#define SLUICE_ERROR_CODE(name, number, advice) \
  case ErrorCode::name:                         \
    return #name;
#include "base/error_codes.def"
#undef SLUICE_ERROR_CODE
  }
  return "unknown";
}

std::string_view error_code_advice(ErrorCode code) {
  switch (code) {
#define SLUICE_ERROR_CODE(name, number, advice) \
  case ErrorCode::name:                         \
    return advice;
#include "base/error_codes.def"
#undef SLUICE_ERROR_CODE
  }
  return "unknown";
}

std::string Error::to_string() const {
  return fmt::format("{}: {} [{} {}]", operation, detail, error_code_name(code), static_cast<unsigned>(code));
}

}  // namespace sluice
