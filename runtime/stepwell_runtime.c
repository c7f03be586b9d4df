/* Contexts, runs and traces: what a compiled model sees of the world. */
#include "stepwell_runtime.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "float_mode.h"
#include "thread_pool.h"

typedef struct context_state {
  stepwell_context context;
  stepwell_pool *pool;
  uint64_t flushing; /* what is added to the caller's mode of floats */
  uint64_t capacity;
  uint64_t recorded;
  stepwell_share *shares;
  uint64_t share_capacity;
  _Atomic uint64_t shared;
  stepwell_event events[];
} context_state;

/* What `run_traced` runs a part of. */
typedef struct traced_job {
  context_state *state;
  stepwell_task task;
  void *const *arguments;
} traced_job;

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void parallel_for(stepwell_context *context, stepwell_task task, void *const *arguments,
                         int64_t count) {
  const context_state *state = context->state;
  stepwell_pool_parallel_for(state->pool, task, arguments, count);
}

static void sequential_for(stepwell_context *context, stepwell_task task, void *const *arguments,
                           int64_t count) {
  (void)context;
  if (count > 0)
    task(arguments, 0, count);
  for (int64_t i = -count - 1; i >= 0; --i)
    task(arguments, i, i + 1);
}

static void record(stepwell_context *context, int64_t kernel) {
  context_state *state = context->state;
  if (state->recorded == state->capacity)
    return;
  stepwell_event *event = &state->events[state->recorded++];
  event->kernel = kernel;
  event->nanoseconds = now();
}

static void run_traced(void *const *arguments, int64_t begin, int64_t end) {
  const traced_job *job = (const void *)arguments;
  const int64_t started = now();
  job->task(job->arguments, begin, end);
  const int64_t finished = now();
  const uint64_t place = atomic_fetch_add_explicit(&job->state->shared, 1, memory_order_relaxed);
  if (place < job->state->share_capacity)
    job->state->shares[place] =
        (stepwell_share){job->state->recorded - 1, stepwell_pool_thread(), started, finished};
}

/* Takes the place of `parallel_for` while shares are recorded: with that off, it costs nothing. */
static void traced_for(stepwell_context *context, stepwell_task task, void *const *arguments,
                       int64_t count) {
  context_state *state = context->state;
  if (state->recorded == state->capacity) { /* the event before this may have been dropped */
    parallel_for(context, task, arguments, count);
    return;
  }
  const traced_job job = {state, task, arguments};
  parallel_for(context, run_traced, (const void *)&job, count < 0 ? -count : count);
}

stepwell_context *stepwell_context_create(stepwell_pool *pool, uint64_t trace_capacity) {
  context_state *state =
      calloc(1, sizeof *state + (size_t)trace_capacity * sizeof(stepwell_event));
  if (!state)
    return NULL;
  state->pool = pool;
  state->capacity = trace_capacity;
  state->context.parallel_for = pool ? parallel_for : sequential_for;
  state->context.abi_version = STEPWELL_ABI_VERSION;
  state->context.threads = pool ? stepwell_pool_threads(pool) : 1;
  state->context.state = state;
  return &state->context;
}

void stepwell_context_destroy(stepwell_context *context) {
  if (context)
    free(context->state);
}

void stepwell_context_flush_subnormals(stepwell_context *context) {
  ((context_state *)context->state)->flushing = STEPWELL_FLUSHING;
}

void stepwell_run(stepwell_context *context, stepwell_entry entry, void *const *inputs,
                  void *const *outputs, const void *weights, void *arena) {
  const context_state *state = context->state;
  if (state->pool)
    stepwell_pool_acquire(state->pool);
  const uint64_t mode = stepwell_float_mode();
  if (state->flushing)
    stepwell_set_float_mode(mode | state->flushing);
  entry(context, inputs, outputs, weights, arena);
  if (state->flushing)
    stepwell_set_float_mode(mode);
  if (state->pool)
    stepwell_pool_release(state->pool);
}

void stepwell_trace_start(stepwell_context *context) {
  context_state *state = context->state;
  state->recorded = 0;
  context->trace = record;
}

void stepwell_trace_start_shares(stepwell_context *context, stepwell_share *shares,
                                 uint64_t capacity) {
  context_state *state = context->state;
  state->shares = shares;
  state->share_capacity = capacity;
  atomic_store(&state->shared, 0);
  if (state->pool)
    context->parallel_for = traced_for;
  stepwell_trace_start(context);
}

uint64_t stepwell_trace_stop(stepwell_context *context, const stepwell_event **events) {
  const context_state *state = context->state;
  context->trace = NULL;
  if (state->pool)
    context->parallel_for = parallel_for;
  *events = state->events;
  return state->recorded;
}

uint64_t stepwell_trace_shares(const stepwell_context *context) {
  const context_state *state = context->state;
  return atomic_load(&state->shared);
}
