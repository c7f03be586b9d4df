/* A fork-join team of threads: one job at a time, no queue and no allocation. */
#ifndef STEPWELL_THREAD_POOL_H
#define STEPWELL_THREAD_POOL_H

#include "stepwell_runtime.h"

/* Takes the pool for one run, so that runs from several threads take turns. */
void stepwell_pool_acquire(stepwell_pool *pool);
void stepwell_pool_release(stepwell_pool *pool);

uint32_t stepwell_pool_threads(const stepwell_pool *pool);

/* The number of the thread that calls this, in its pool: 0 for whoever runs a model on one. */
uint32_t stepwell_pool_thread(void);

/* Runs `task` over [0, count), in contiguous pieces: each thread begins with a part of its own, of
 * even size, and helps the others then. With -count, it begins at the end of its part, and `task` gets
 * one at a time, from the last to the first. Returns when all is done. */
void stepwell_pool_parallel_for(stepwell_pool *pool, stepwell_task task, void *const *arguments,
                                int64_t count);

#endif
