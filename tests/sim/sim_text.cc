#include "tests/sim/sim_text.h"

#include <fmt/format.h>

#include <variant>

namespace sluice::sim {
namespace {

// One overload for each kind; the compiler says when one is missing.
struct Describe {
  static std::string set(SiteSet sites) { return fmt::format("{{{:b}}}", sites.bits); }
  static std::string key(EpochId epoch, RoundId round) { return fmt::format("{}/{}", epoch, round); }
  static std::string digest(Digest value) { return fmt::format("{:08x}", value.low & 0xFFFFFFFFU); }

  std::string operator()(const sync::LocalReady& e) const { return fmt::format("LocalReady base {}", digest(e.proposal.base_digest)); }
  std::string operator()(const sync::LocalGone& e) const { return "LocalGone " + e.reason; }
  std::string operator()(const sync::LocalState& e) const { return fmt::format("LocalState {} {}", e.round, digest(e.digest)); }
  std::string operator()(const sync::PeerUp& e) const { return fmt::format("PeerUp {}", e.site); }
  std::string operator()(const sync::PeerDown& e) const { return fmt::format("PeerDown {}", e.site); }
  std::string operator()(const sync::ProposalReceived& e) const {
    return fmt::format("ProposalReceived {} of {}", key(e.proposal.epoch, e.proposal.round), e.proposal.site);
  }
  std::string operator()(const sync::WithdrawReceived& e) const {
    return fmt::format("WithdrawReceived {} of {}", key(e.epoch, e.round), e.site);
  }
  std::string operator()(const sync::StateReportReceived& e) const { return fmt::format("StateReportReceived {} of {}", e.round, e.from); }
  std::string operator()(const sync::RecordSeen& e) const { return "RecordSeen " + sim::text_of(e.record); }
  std::string operator()(const sync::StoreLost& e) const { return "StoreLost " + e.reason; }
  std::string operator()(const sync::StoreFound&) const { return "StoreFound"; }
  std::string operator()(const sync::ContributionStored& e) const {
    return fmt::format("ContributionStored {} chunk {} of {}", key(e.epoch, e.round), e.chunk, e.site);
  }
  std::string operator()(const sync::UpdateStored& e) const {
    return fmt::format("UpdateStored {} chunk {} for {}", key(e.epoch, e.round), e.chunk, set(e.counted));
  }
  std::string operator()(const sync::OwnerStatusReceived& e) const {
    return fmt::format("OwnerStatusReceived {} attempt {} of {}: {}", key(e.epoch, e.round), e.attempt, e.from, set(e.complete));
  }
  std::string operator()(const sync::ConfirmReceived& e) const {
    return fmt::format("ConfirmReceived {} attempt {} of {} for {} {}", key(e.epoch, e.round), e.attempt, e.from, set(e.counted),
                       digest(e.update_digest));
  }
  std::string operator()(const sync::UpdateLost& e) const { return fmt::format("UpdateLost {}", e.round); }
  std::string operator()(const sync::Tick&) const { return "Tick"; }

  std::string operator()(const sync::SendProposal& a) const {
    return fmt::format("SendProposal {}", key(a.proposal.epoch, a.proposal.round));
  }
  std::string operator()(const sync::SendWithdraw& a) const { return fmt::format("SendWithdraw {} {}", key(a.epoch, a.round), a.reason); }
  std::string operator()(const sync::SendStateReport& a) const { return fmt::format("SendStateReport {} {}", a.round, digest(a.digest)); }
  std::string operator()(const sync::CompareAndSet& a) const {
    return fmt::format("CompareAndSet {}: {}", a.expected_version, sim::text_of(a.next));
  }
  std::string operator()(const sync::StartContribution& a) const {
    return fmt::format("StartContribution {} {}", key(a.record.epoch, a.record.round), a.is_member ? "member" : "guest");
  }
  std::string operator()(const sync::SendContributions& a) const {
    std::string text = fmt::format("SendContributions {} to", key(a.record.epoch, a.record.round));
    for (const SiteId site : a.to) text += fmt::format(" {}", site);
    return text;
  }
  std::string operator()(const sync::CombineChunk& a) const {
    return fmt::format("CombineChunk {} chunk {} for {}{}", key(a.epoch, a.round), a.chunk, set(a.counted), a.is_shared ? "" : " (own)");
  }
  std::string operator()(const sync::SendOwnerStatus& a) const {
    return fmt::format("SendOwnerStatus {} attempt {}: {}", key(a.epoch, a.round), a.attempt, set(a.complete));
  }
  std::string operator()(const sync::SendConfirm& a) const {
    return fmt::format("SendConfirm {} attempt {} for {} {}", key(a.epoch, a.round), a.attempt, set(a.counted), digest(a.update_digest));
  }
  std::string operator()(const sync::FinishRound& a) const { return fmt::format("FinishRound {}", sim::text_of(a.record)); }
  std::string operator()(const sync::SkipRound& a) const { return fmt::format("SkipRound {}: {}", key(a.epoch, a.round), a.reason); }
  std::string operator()(const sync::FetchUpdate& a) const { return fmt::format("FetchUpdate {}", a.record.round); }
  std::string operator()(const sync::CatchUpState& a) const { return fmt::format("CatchUpState {}: {}", a.round, a.reason); }
  std::string operator()(const sync::Announce& a) const { return fmt::format("Announce{} {}", a.is_solo ? " (solo)" : "", a.text); }
};

}  // namespace

std::string text_of(const sync::RoundRecord& record) {
  static constexpr const char* kPhases[] = {"idle", "open", "closed", "committed", "aborted"};
  std::string owners;
  if (sync::is_direct(record)) owners = "direct ";
  for (const SiteId owner : record.owners) owners += fmt::format("{}", owner);
  return fmt::format("v{} {}/{} {} attempt {} members {:b} counted {:b} owners {} committed {} base {} ({})", record.version, record.epoch,
                     record.round, kPhases[static_cast<std::size_t>(record.phase)], record.attempt, record.members.bits,
                     record.counted.bits, owners, record.committed_round, Describe::digest(record.base_digest), record.reason);
}

std::string text_of(const sync::Event& event) { return std::visit(Describe{}, event); }
std::string text_of(const sync::Action& action) { return std::visit(Describe{}, action); }

}  // namespace sluice::sim
