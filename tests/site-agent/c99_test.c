/* Goal: sluice_agent.h is C99 and the library can be used from it.
 * Method: this file is compiled as strict C99 and run without a gateway. */

#include "site-agent/sluice_agent.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define CHECK(condition)                                                 \
  do {                                                                   \
    if (!(condition)) {                                                  \
      fprintf(stderr, "line %d: %s\n", __LINE__, #condition);            \
      return 1;                                                          \
    }                                                                    \
  } while (0)

int main(void) {
  sluice_agent_options options = SLUICE_AGENT_OPTIONS_INIT;
  sluice_agent* agent = NULL;
  float values[6] = {1, 2, 3, 4, 5, 6};
  const uint64_t shape[2] = {2, 3};
  sluice_agent_step_result result;
  sluice_agent_statistics statistics;
  uint64_t announcements = 0;
  memset(&result, 0, sizeof result);
  memset(&statistics, 0, sizeof statistics);
  result.struct_bytes = sizeof result;
  statistics.struct_bytes = sizeof statistics;

  CHECK(sluice_agent_abi_version() == SLUICE_AGENT_ABI_VERSION);
  options.gateway = "nonsense";
  CHECK(sluice_agent_create(&options) == NULL);
  CHECK(strstr(sluice_agent_last_error(NULL), "nonsense") != NULL);

  options.gateway = "unix:/nonexistent/agent.sock";
  options.start_timeout_us = 1000;
  agent = sluice_agent_create(&options);
  CHECK(agent != NULL);
  CHECK(sluice_agent_step(agent, 1, 0.0, NULL) == 603);
  CHECK(sluice_agent_add_tensor(agent, "weight", 1, shape, 2, values) == 100);
  CHECK(sluice_agent_add_tensor(agent, "weight", SLUICE_FLOAT32, shape, 2, values) == SLUICE_OK);
  CHECK(sluice_agent_start(agent) == SLUICE_OK);
  CHECK(sluice_agent_next_is_boundary(agent) == 0);
  CHECK(sluice_agent_step(agent, 10, NAN, &result) == SLUICE_OK);
  CHECK(result.outcome == SLUICE_STEP_INNER);
  CHECK(sluice_agent_exchange(agent, &result) == SLUICE_OK);
  CHECK(result.outcome == SLUICE_STEP_SOLO && result.tensors_written == 0);
  CHECK(sluice_agent_stats(agent, &statistics) == SLUICE_OK);
  CHECK(statistics.values == 6 && statistics.steps == 1 && statistics.is_solo == 1 && statistics.is_connected == 0);
  CHECK(strstr(sluice_agent_announcement(agent, &announcements), "training alone") != NULL && announcements == 1);
  CHECK(values[0] == 1.0f && values[5] == 6.0f);
  sluice_agent_destroy(agent);
  sluice_agent_destroy(NULL);
  return 0;
}
