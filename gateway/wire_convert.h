#pragma once

// Between our structs and the protobuf messages of proto/: the only place where the gateway's core types meet generated ones.
// Pure, any thread. Reading checks every field (these bytes come from a peer) and returns kWireBadMessage naming the field.

#include "base/result.h"
#include "proto/agent.pb.h"
#include "proto/peer.pb.h"
#include "sync/round_machine.h"
#include "sync/round_record.h"

namespace sluice::gateway {

void write_record(const sync::RoundRecord& record, wire::RoundRecord& out);
// `sites` is the number of configured sites: ids at or beyond it are refused.
Result<sync::RoundRecord> read_record(const wire::RoundRecord& message, std::uint16_t sites);

void write_proposal(const sync::Proposal& proposal, wire::Proposal& out);
// `from` is the authenticated sender: a site speaks only for itself.
Result<sync::Proposal> read_proposal(const wire::Proposal& message, SiteId from, std::uint16_t sites);

std::string write_digest(const Digest& digest);
Result<Digest> read_digest(const std::string& bytes, const char* field);
// 32 hexadecimal digits, high half first.
std::string digest_hex(const Digest& digest);

// Journal payloads.
ByteVector serialize_record(const sync::RoundRecord& record);
Result<sync::RoundRecord> parse_record(ByteSpan bytes, std::uint16_t sites);

}  // namespace sluice::gateway
