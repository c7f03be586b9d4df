/* The C ABI between compiled models and the runtime that calls them.
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
  /* Runs `task` over [0, count), split over the threads at hand; returns when all of it is done. */
  void (*parallel_for)(stepwell_context *context, stepwell_task task, void *const *arguments,
                       int64_t count);
  /* Called before kernel `kernel` (its index in the manifest) and, with -1, after the last one. NULL when off. */
  void (*trace)(stepwell_context *context, int64_t kernel);
  uint32_t abi_version;
  uint32_t threads;
  void *state; /* the runtime's own */
};

/* `weights` is the start of the mapped weights section (64-byte aligned), `arena` at least the
 * manifest's arena_bytes (64-byte aligned). Inputs and outputs are dense row-major buffers. */
typedef void (*stepwell_entry)(stepwell_context *context, void *const *inputs,
                               void *const *outputs, const void *weights, void *arena);

#ifdef __cplusplus
}
#endif
#endif
