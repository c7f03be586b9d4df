/* Contexts, runs and traces: what a compiled model sees of the world. */
#include "stepwell_runtime.h"

#include <stdlib.h>
#include <time.h>

#include "thread_pool.h"

typedef struct context_state {
  stepwell_context context;
  stepwell_pool *pool;
  uint64_t capacity;
  uint64_t recorded;
  stepwell_event events[];
} context_state;

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
}

static void record(stepwell_context *context, int64_t kernel) {
  context_state *state = context->state;
  if (state->recorded == state->capacity)
    return;
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  stepwell_event *event = &state->events[state->recorded++];
  event->kernel = kernel;
  event->nanoseconds = (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
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

void stepwell_run(stepwell_context *context, stepwell_entry entry, void *const *inputs,
                  void *const *outputs, const void *weights, void *arena) {
  stepwell_pool *pool = ((context_state *)context->state)->pool;
  if (pool)
    stepwell_pool_acquire(pool);
  entry(context, inputs, outputs, weights, arena);
  if (pool)
    stepwell_pool_release(pool);
}

void stepwell_trace_start(stepwell_context *context) {
  context_state *state = context->state;
  state->recorded = 0;
  context->trace = record;
}

uint64_t stepwell_trace_stop(stepwell_context *context, const stepwell_event **events) {
  const context_state *state = context->state;
  context->trace = NULL;
  *events = state->events;
  return state->recorded;
}
