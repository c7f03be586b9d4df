/* The C ABI between compiled models and the runtime that calls them, and the runtime's own API.
 *
 * A compiled model has one entry point. It allocates nothing, has no external symbols beyond memcpy,
 * memmove and memset, and reaches threads only through the context.
 */
#ifndef STEPWELL_RUNTIME_H
#define STEPWELL_RUNTIME_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STEPWELL_ABI_VERSION 1

typedef struct stepwell_context stepwell_context;

/* Runs iterations [begin, end) of one kernel; `arguments` are its buffers. */
typedef void (*stepwell_task)(void *const *arguments, int64_t begin, int64_t end);

struct stepwell_context {
  /* Runs `task` over [0, count), split over the threads at hand; returns when all of it is done. With
   * -count, each thread goes from the end of what it does to the beginning, one at a time. */
  void (*parallel_for)(stepwell_context *context, stepwell_task task, void *const *arguments,
                       int64_t count);
  /* Called before kernel `kernel` (its index in the manifest) and, with -1, after the last one.
   * NULL when off. */
  void (*trace)(stepwell_context *context, int64_t kernel);
  uint32_t abi_version;
  uint32_t threads;
  void *state; /* the runtime's own */
};

/* `weights` is the start of the mapped weights section (64-byte aligned), `arena` at least the
 * manifest's arena_bytes (64-byte aligned). Inputs and outputs are dense row-major buffers. The
 * addresses of the manifest's functions, of LAPACK for instance, follow those of the inputs. */
typedef void (*stepwell_entry)(stepwell_context *context, void *const *inputs,
                               void *const *outputs, const void *weights, void *arena);

#if defined(_WIN32)
#define STEPWELL_API __declspec(dllexport)
#else
#define STEPWELL_API __attribute__((visibility("default")))
#endif

/* A team of threads that stays alive between runs. Runs on one pool take turns. */
typedef struct stepwell_pool stepwell_pool;

/* A pool of `threads` threads, the caller of stepwell_run being one of them. NULL when memory or
 * threads ran out. */
STEPWELL_API stepwell_pool *stepwell_pool_create(uint32_t threads);
STEPWELL_API void stepwell_pool_destroy(stepwell_pool *pool);

/* A context that splits its work over `pool` (NULL: the calling thread alone), able to record
 * `trace_capacity` events. NULL when memory ran out. The pool must outlive it. */
STEPWELL_API stepwell_context *stepwell_context_create(stepwell_pool *pool,
                                                       uint64_t trace_capacity);
STEPWELL_API void stepwell_context_destroy(stepwell_context *context);

/* Let runs of this context take subnormal numbers for zeros, on all their threads. Otherwise these do
 * with them what the thread does that calls stepwell_run. */
STEPWELL_API void stepwell_context_flush_subnormals(stepwell_context *context);

/* Calls a compiled model. One context runs one model at a time; nothing is allocated. */
STEPWELL_API void stepwell_run(stepwell_context *context, stepwell_entry entry,
                               void *const *inputs, void *const *outputs, const void *weights,
                               void *arena);

/* Reads every page of the loaded library that holds `entry`: to be called once after dlopen. Masked
 * loads of constants whose lanes are all off do not fault, so that a page that nothing else reads would
 * stay absent, and each such load take hundreds of cycles. */
STEPWELL_API void stepwell_touch_code(const void *entry);

/* A digest of each of `count` buffers, by which a change shows. The threads of `pool` share the work
 * (NULL: the calling thread alone). */
STEPWELL_API void stepwell_digests(stepwell_pool *pool, const void *const *data,
                                   const uint64_t *bytes, uint64_t *digests, int64_t count);

/* One recorded call of the trace hook: the kernel about to run (-1: none), and the clock. */
typedef struct stepwell_event {
  int64_t kernel;
  int64_t nanoseconds;
} stepwell_event;

/* Tasks of a kernel that one thread ran without a pause, and when. `event` is the number of the
 * recorded event before them; thread 0 is the caller of stepwell_run. */
typedef struct stepwell_share {
  uint64_t event;
  uint64_t thread;
  int64_t begin;
  int64_t end;
} stepwell_share;

/* Clears the record and starts recording; events beyond the capacity are dropped. */
STEPWELL_API void stepwell_trace_start(stepwell_context *context);
/* The same, and what the threads of the pool do of each kernel that is split over them is written
 * into `shares`, in no order; those beyond `capacity` are dropped. */
STEPWELL_API void stepwell_trace_start_shares(stepwell_context *context, stepwell_share *shares,
                                              uint64_t capacity);
/* Stops recording; returns the number of events and points `events` at them. */
STEPWELL_API uint64_t stepwell_trace_stop(stepwell_context *context,
                                          const stepwell_event **events);
/* After the stop, how many shares there were, those without room among them. */
STEPWELL_API uint64_t stepwell_trace_shares(const stepwell_context *context);

#ifdef __cplusplus
}
#endif
#endif
