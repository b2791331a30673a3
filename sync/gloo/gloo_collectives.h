#pragma once

// Collectives over Gloo's TCP transport (Debian's libgloo): the ranks' data is in CPU memory. Gloo's own thread moves bytes; calls block
// the caller. Gloo throws: every call is wrapped here and exceptions do not leave this file.

#include <memory>
#include <string>

#include "sync/collectives.h"

namespace sluice::sync {

struct GlooOptions {
  RankId rank;
  std::uint32_t ranks = 1;
  std::string group;      // name of this group: prefix of its keys in the store; never used twice
  std::string interface;  // network interface to listen on ("lo", "ib0"); empty: `address`
  std::string address;    // host name or address to listen on; both empty: 127.0.0.1
  Duration timeout{};     // for all ranks to meet
};

// Blocks until all ranks have called it with the same group, at most `timeout`. The store is not used after it returns.
// Errors: kGroupBroken.
Result<std::unique_ptr<Collectives>> form_gloo_group(KeyValueStore& store, const GlooOptions& options);

}  // namespace sluice::sync
