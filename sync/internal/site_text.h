#pragma once

// Sets of sites in sentences for people: "site 0 and site 2". Pure.

#include <string>
#include <vector>

#include "base/ids.h"

namespace sluice::sync {

std::string text_of(SiteSet sites);
std::string text_of(const std::vector<SiteId>& sites);

}  // namespace sluice::sync
