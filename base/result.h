#pragma once

// Result<T>: a value or an Error. The only file that names tl::expected, so that a later move to std::expected touches one file.
//     Result<Frame> decode(...);
//     SLUICE_TRY(auto frame, decode(bytes));      // returns the error to the caller
//     SLUICE_CHECK_OK(write(bytes));              // the same for Result<void>
//     return fail(ErrorCode::kFrameTruncated, "decode frame", "payload ends at byte 17 of 40");
// A dropped Result is a compile error.

#include <tl/expected.hpp>

#include <string>
#include <type_traits>
#include <utility>

#include "base/error.h"

namespace sluice {

template <typename T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using Base = tl::expected<T, Error>;
  using Base::Base;
  Result(Base base) : Base(std::move(base)) {}  // NOLINT: results of map() and and_then() convert back
};

using Status = Result<void>;

[[nodiscard]] inline tl::unexpected<Error> fail(ErrorCode code, std::string operation, std::string detail) {
  return tl::unexpected<Error>(Error{code, std::move(operation), std::move(detail)});
}

[[nodiscard]] inline tl::unexpected<Error> fail(Error error) { return tl::unexpected<Error>(std::move(error)); }

}  // namespace sluice

#define SLUICE_CONCAT_INNER(a, b) a##b
#define SLUICE_CONCAT(a, b) SLUICE_CONCAT_INNER(a, b)

#define SLUICE_TRY(declaration, ...) SLUICE_TRY_INNER(SLUICE_CONCAT(sluice_try_, __LINE__), declaration, __VA_ARGS__)
#define SLUICE_TRY_INNER(name, declaration, ...)    \
  auto name = (__VA_ARGS__);                        \
  if (!name) [[unlikely]] {                         \
    return ::sluice::fail(std::move(name).error()); \
  }                                                 \
  declaration = std::move(*name)

#define SLUICE_CHECK_OK(...)                                   \
  do {                                                         \
    auto sluice_status = (__VA_ARGS__);                        \
    if (!sluice_status) [[unlikely]] {                         \
      return ::sluice::fail(std::move(sluice_status).error()); \
    }                                                          \
  } while (false)
