#pragma once

// Bugs that the shell around the machine could have. The simulator must find each of them; see mutants_test.cc. The machine's own mutants
// are textual changes of its source: mutants/machine_mutants.cmake.

namespace sluice::sim {

enum class ShellMutant {
  kNone,
  kApplyTwice,              // the agents apply a committed update twice
  kIgnoreSkip,              // a void contribution is not given back
  kSkipFsync,               // commits are not durable before they are told
  kSameEpochAfterStart,     // the store's epoch does not grow at its start
  kQuorumOfOne,             // a quorum of one
  kIgnoreKeyOfFrames,       // frames count for the present round whatever round they were made for
  kIgnoreCountedOfUpdates,  // update frames count for the present set whatever set they sum
  kAcceptLateConfirms,      // confirmations count for the present attempt
  kForgetResend,            // kept frames are not sent again
  kDropKeptFrames,          // frames are forgotten once sent
  kContributeAfterRestart,  // agents contribute to a running round whether or not they are members
  kNoTicks,                 // timers never fire
  kNeverDown,               // lost links are not noticed
  kNoRecordOnConnect,       // the store does not tell the record to a site that connects
  kAcceptOldProposals,      // proposals count for the present round whatever round they were made for
  kSumAllKept,              // owners sum every frame that they hold, counted or not
  kIgnoreDigestOnApply,     // agents apply the update frames that came last, for whatever set
  kCount,
};

}  // namespace sluice::sim
