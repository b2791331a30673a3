#include "sync/internal/site_text.h"

#include <fmt/format.h>

namespace sluice::sync {

std::string text_of(const std::vector<SiteId>& sites) {
  if (sites.empty()) return "no site";
  std::string text;
  for (std::size_t index = 0; index < sites.size(); ++index) {
    if (index > 0) text += index + 1 == sites.size() ? " and " : ", ";
    text += fmt::format("site {}", sites[index]);
  }
  return text;
}

std::string text_of(SiteSet sites) {
  std::vector<SiteId> list;
  sites.for_each([&](SiteId site) { list.push_back(site); });
  return text_of(list);
}

}  // namespace sluice::sync
