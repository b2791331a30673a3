#pragma once

/* The site agent: what a training process uses to take part in a Sluice run. C99; implemented by libsluice_agent.so.
 *
 *     sluice_agent_options options = SLUICE_AGENT_OPTIONS_INIT;
 *     options.gateway = "unix:/run/sluice/agents.sock";
 *     sluice_agent* agent = sluice_agent_create(&options);
 *     for each parameter: sluice_agent_add_tensor(agent, name, SLUICE_FLOAT32, shape, dimensions, data);
 *     sluice_agent_start(agent);
 *     after every optimizer step: sluice_agent_step(agent, tokens, loss, &result);
 *     sluice_agent_destroy(agent);
 *
 * Behaviour. Every `inner_steps` steps (the gateway says how many) a step is a boundary: it exchanges the parameters' change with the other
 * sites and writes the run's new parameters into the registered tensors. Between boundaries a step costs nothing. When the gateway or the
 * other sites are away, training goes on with the local parameters, and the result says so. No function waits without a bound.
 *
 * Ownership. Tensor memory belongs to the caller and must stay valid, at its address, until sluice_agent_destroy. It is read and written
 * only inside sluice_agent_start, _step, _exchange and _load_state. Strings passed in are copied. Strings handed out belong to the agent.
 *
 * Threads. One thread at a time calls create, add_tensor, start, next_is_boundary, step, exchange, save_state, load_state and destroy.
 * stats, last_error and announcement may be called from any thread while the agent exists. The agent runs one thread of its own for the
 * gateway. A forked child must not use its parent's agent.
 *
 * Errors. Functions return SLUICE_OK (0) or a positive error code of docs/ERRORS.md; sluice_agent_last_error has the text. An error of
 * sluice_agent_step never means that training has to stop: the tensors then hold the local parameters.
 *
 * Units. Times are microseconds, sizes bytes, counts values, unless the name says otherwise. */
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(SLUICE_AGENT_BUILDING)
#define SLUICE_API __attribute__((visibility("default")))
#else
#define SLUICE_API
#endif

/* Grows when a function or field is added; never changes the meaning of an older one. */
#define SLUICE_AGENT_ABI_VERSION 1
SLUICE_API uint32_t sluice_agent_abi_version(void);

#define SLUICE_OK 0

/* Element types of tensors. Only fp32 master parameters are exchanged. */
#define SLUICE_FLOAT32 0

typedef struct sluice_agent sluice_agent;

typedef struct sluice_agent_options {
  uint32_t struct_bytes;        /* sizeof(sluice_agent_options) of the caller */
  uint32_t rank;                /* of this process within its site, from 0 */
  uint32_t ranks;               /* processes of the site, at least 1 */
  uint32_t reserved;            /* 0 */
  const char* gateway;          /* "unix:/path" or "tls:host:port" */
  const char* certificate_file; /* tls: PEM files of this agent and of the run's authority */
  const char* key_file;
  const char* authority_file;
  const char* listen;           /* interface ("lo", "ib0") or address for traffic between the ranks; NULL: 127.0.0.1 behind a Unix
                                   socket, this host's name behind TLS. Unused with one rank. */
  uint64_t start_timeout_us;    /* how long start waits for gateway, group and first state; 0: 30 s */
  uint64_t group_timeout_us;    /* how long a boundary waits for the other ranks of the site; 0: 10 min. A rank that dies ends the
                                   wait at once; this is for one that is alive and late, writing a checkpoint for example. */
} sluice_agent_options;

#define SLUICE_AGENT_OPTIONS_INIT {sizeof(sluice_agent_options), 0, 1, 0, NULL, NULL, NULL, NULL, NULL, 0, 0}

/* What a step did. */
#define SLUICE_STEP_INNER 0     /* no boundary */
#define SLUICE_STEP_COMMITTED 1 /* a round was committed and counts this site; the tensors hold the run's new parameters */
#define SLUICE_STEP_LEFT_OUT 2  /* a round was committed without this site's contribution; the tensors hold the run's new parameters */
#define SLUICE_STEP_CAUGHT_UP 3 /* the state was behind and has been replaced: the tensors hold the run's parameters */
#define SLUICE_STEP_SKIPPED 4   /* the round was called off; local training goes on and the next round carries the longer delta */
#define SLUICE_STEP_SOLO 5      /* no gateway, quorum or group: local training goes on */

typedef struct sluice_agent_step_result {
  uint32_t struct_bytes;    /* set by the caller: sizeof(sluice_agent_step_result) */
  uint32_t outcome;         /* SLUICE_STEP_... */
  uint32_t tensors_written; /* 1 when the registered tensors were changed */
  uint32_t sites_counted;   /* of the committed round */
  uint64_t round;           /* last round that the parameters include */
  uint64_t exchange_us;     /* time spent in this call */
} sluice_agent_step_result;

typedef struct sluice_agent_statistics {
  uint32_t struct_bytes;  /* set by the caller: sizeof(sluice_agent_statistics) */
  uint32_t is_connected;  /* to the gateway */
  uint32_t is_solo;       /* training on its own for now */
  uint32_t inner_steps;   /* between boundaries; 0 until the gateway has said so */
  uint64_t round;         /* last round applied */
  uint64_t steps;         /* all inner steps so far */
  uint64_t steps_since_round;
  uint64_t rounds_committed;  /* that counted this site */
  uint64_t rounds_left_out;
  uint64_t rounds_skipped;
  uint64_t catch_ups;
  uint64_t solo_boundaries;
  uint64_t deltas_withheld; /* NaN or Inf in the delta */
  uint64_t reconnects;
  uint64_t values;          /* in all tensors */
  uint64_t bytes_sent;      /* to and from the gateway */
  uint64_t bytes_received;
  uint64_t exchange_us;     /* sums over all boundaries; exchange_us includes the following */
  uint64_t encode_us;
  uint64_t decode_us;
  uint64_t wait_us;         /* for the gateway */
  uint64_t group_us;        /* in collectives among the site's ranks */
} sluice_agent_statistics;

/* NULL when the options are unusable; sluice_agent_last_error(NULL) then has the reason (of this thread). */
SLUICE_API sluice_agent* sluice_agent_create(const sluice_agent_options* options);

/* Before start, in the same order with the same names and shapes in every rank of every site. `data` is contiguous, row-major. */
SLUICE_API int sluice_agent_add_tensor(sluice_agent* agent, const char* name, uint32_t type, const uint64_t* shape, uint32_t dimensions,
                                       void* data);

/* Takes the tensors' values as the state of round 0 (unless load_state was called), connects, and waits for the gateway, the site's other
 * ranks and a first catch-up, at most start_timeout. SLUICE_OK also when nothing was reached: the agent keeps trying. */
SLUICE_API int sluice_agent_start(sluice_agent* agent);

/* 1 when the next sluice_agent_step will be a boundary, so that a caller whose parameters live elsewhere copies them into the registered
 * memory
 * first; the next step then is one for certain, and is none after 0. */
SLUICE_API int sluice_agent_next_is_boundary(sluice_agent* agent);

/* After every optimizer step. `tokens`: seen by this rank in this step; they weigh the site's contribution. `loss`: NaN when unknown.
 * `result` may be NULL. Blocks at boundaries only, at most the exchange timeout that the gateway's configuration states. */
SLUICE_API int sluice_agent_step(sluice_agent* agent, uint64_t tokens, double loss, sluice_agent_step_result* result);

/* A boundary now, whatever the step count. All ranks of the site must call it at the same point. */
SLUICE_API int sluice_agent_exchange(sluice_agent* agent, sluice_agent_step_result* result);

SLUICE_API int sluice_agent_stats(sluice_agent* agent, sluice_agent_statistics* statistics);

/* Text of the last error or refusal; empty when there was none. Valid until the next call of this function from the same thread. */
SLUICE_API const char* sluice_agent_last_error(sluice_agent* agent);

/* The last thing a person should know ("training alone: ..."), and how many there have been. Valid until the next call from the same
 * thread. */
SLUICE_API const char* sluice_agent_announcement(sluice_agent* agent, uint64_t* count);

/* The agent's own state (global parameters, outer momentum, residual, round) of this rank's shard, for a checkpoint beside the trainer's.
 * Written to a temporary file, synced and renamed. After start, between steps. */
SLUICE_API int sluice_agent_save_state(sluice_agent* agent, const char* path);
/* After add_tensor and before start. The file must be of the same manifest, rank and number of ranks. */
SLUICE_API int sluice_agent_load_state(sluice_agent* agent, const char* path);

/* Says goodbye to the gateway and frees everything. NULL is allowed. */
SLUICE_API void sluice_agent_destroy(sluice_agent* agent);

#ifdef __cplusplus
}
#endif
