#pragma once

// The dashboard: gateway/dashboard.html as it was when the program was built.

#include <string_view>

namespace sluice::gateway {

// kDashboardNonce stands where each response puts its own nonce for the page's one script.
extern const std::string_view kDashboardPage;
inline constexpr std::string_view kDashboardNonce = "SLUICE-NONCE";

}  // namespace sluice::gateway
