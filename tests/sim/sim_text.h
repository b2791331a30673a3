#pragma once

// Events, actions and records in one line each, for traces.

#include <string>

#include "sync/round_machine.h"

namespace sluice::sim {

std::string text_of(const sync::RoundRecord& record);
std::string text_of(const sync::Event& event);
std::string text_of(const sync::Action& action);

}  // namespace sluice::sim
