#pragma once

// What the world did to us, as a value: a stable code, the operation that failed, and the detail a person needs.
// Codes live in error_codes.def with their numbers and the operator's next step. Value type, any thread.

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

enum class ErrorCode : std::uint16_t {
#define SLUICE_ERROR_CODE(name, number, advice) name = number,
#include "base/error_codes.def"
#undef SLUICE_ERROR_CODE
};

// "kFrameTruncated"; "unknown" for a number that is not in the table.
std::string_view error_code_name(ErrorCode code);
// What the operator should do about it.
std::string_view error_code_advice(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string operation;  // verb and object: "decode frame", "load config"
  std::string detail;     // names the thing: file, peer, key, chunk, value

  // "decode frame: payload ends at byte 17 of 40 [kFrameTruncated 300]"
  [[nodiscard]] std::string to_string() const;
};

}  // namespace sluice
