/* The C runtime by itself: pieces cover [0, count) once, forks restart threads, threads keep apart. */
#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "stepwell_runtime.h"

#define LARGEST 1000

static _Atomic int visits[LARGEST];
static _Atomic int pieces;

static _Atomic int longest;

static void visit(void *const *arguments, int64_t begin, int64_t end) {
  (void)arguments;
  atomic_fetch_add(&pieces, 1);
  if (end - begin > longest)
    longest = (int)(end - begin);
  for (int64_t i = begin; i < end; ++i)
    atomic_fetch_add(&visits[i], 1);
}

/* Input 0 is the count; trace marks kernel 0. */
static void entry(stepwell_context *context, void *const *inputs, void *const *outputs,
                  const void *weights, void *arena) {
  (void)weights;
  (void)arena;
  assert(context->abi_version == STEPWELL_ABI_VERSION);
  if (context->trace)
    context->trace(context, 0);
  context->parallel_for(context, visit, outputs, *(const int64_t *)inputs[0]);
  if (context->trace)
    context->trace(context, -1);
}

static void check_cover(stepwell_context *context, int64_t count) {
  memset(visits, 0, sizeof visits);
  pieces = 0;
  void *inputs[] = {&count};
  stepwell_run(context, entry, inputs, NULL, NULL, NULL);
  for (int64_t i = 0; i < LARGEST; ++i)
    assert(visits[i] == (i < count));
  assert(pieces >= (count < (int64_t)context->threads ? count : (int64_t)context->threads));
}

static int64_t previous;

static void visit_backwards(void *const *arguments, int64_t begin, int64_t end) {
  visit(arguments, begin, end);
  assert(begin < previous);
  previous = begin;
}

static void backwards_alone(stepwell_context *context, void *const *inputs, void *const *outputs,
                            const void *weights, void *arena) {
  (void)inputs, (void)weights, (void)arena;
  context->parallel_for(context, visit_backwards, outputs, -LARGEST);
}

/* With a negative count, all is done as well, one at a time; by one thread from the last to the
 * first. */
static void check_backwards(uint32_t threads) {
  stepwell_pool *pool = stepwell_pool_create(threads);
  stepwell_context *context = stepwell_context_create(pool, 0);
  const int64_t counts[] = {1, 2, 7, LARGEST};
  for (size_t c = 0; c < sizeof counts / sizeof *counts; ++c) {
    int64_t count = -counts[c];
    void *inputs[] = {&count};
    memset(visits, 0, sizeof visits);
    longest = 0;
    stepwell_run(context, entry, inputs, NULL, NULL, NULL);
    for (int64_t i = 0; i < LARGEST; ++i)
      assert(visits[i] == (i < counts[c]));
    assert(threads == 1 || longest == 1);
  }
  stepwell_context_destroy(context);
  stepwell_pool_destroy(pool);
  context = stepwell_context_create(NULL, 0);
  memset(visits, 0, sizeof visits);
  previous = LARGEST;
  stepwell_run(context, backwards_alone, NULL, NULL, NULL, NULL);
  for (int64_t i = 0; i < LARGEST; ++i)
    assert(visits[i] == 1);
  stepwell_context_destroy(context);
}

static void check_counts(uint32_t threads) {
  stepwell_pool *pool = stepwell_pool_create(threads);
  assert(pool);
  stepwell_context *context = stepwell_context_create(pool, 4);
  assert(context && context->threads == threads);
  const int64_t counts[] = {0, 1, 2, 3, 7, 64, LARGEST};
  for (int repeat = 0; repeat < 200; ++repeat)
    for (size_t i = 0; i < sizeof counts / sizeof *counts; ++i)
      check_cover(context, counts[i]);
  usleep(1000); /* let the workers fall asleep, then wake them */
  check_cover(context, LARGEST);
  stepwell_context_destroy(context);
  stepwell_pool_destroy(pool);
}

static void check_trace(void) {
  stepwell_context *context = stepwell_context_create(NULL, 3);
  int64_t count = 4;
  void *inputs[] = {&count};
  stepwell_trace_start(context);
  stepwell_run(context, entry, inputs, NULL, NULL, NULL);
  stepwell_run(context, entry, inputs, NULL, NULL, NULL);
  const stepwell_event *events;
  assert(stepwell_trace_stop(context, &events) == 3); /* the fourth found no room */
  assert(events[0].kernel == 0 && events[1].kernel == -1);
  assert(events[1].nanoseconds >= events[0].nanoseconds);
  stepwell_context_destroy(context);
}

/* Shares tell the thread and lie between the events; off, there are none. */
static void check_shares(uint32_t threads) {
  enum { ROOM = 64 };
  stepwell_share shares[ROOM];
  stepwell_pool *pool = threads > 1 ? stepwell_pool_create(threads) : NULL;
  stepwell_context *context = stepwell_context_create(pool, 4);
  int64_t count = LARGEST;
  void *inputs[] = {&count};
  pieces = 0;
  stepwell_trace_start_shares(context, shares, ROOM);
  stepwell_run(context, entry, inputs, NULL, NULL, NULL);
  stepwell_run(context, entry, inputs, NULL, NULL, NULL);
  const stepwell_event *events;
  assert(stepwell_trace_stop(context, &events) == 4);
  const uint64_t recorded = stepwell_trace_shares(context);
  assert(recorded == (pool ? (uint64_t)pieces : 0)); /* without a pool, a kernel is one share */
  for (uint64_t i = 0; i < recorded && i < ROOM; ++i) {
    const stepwell_share *share = &shares[i];
    assert(share->thread < threads && (share->event == 0 || share->event == 2));
    assert(events[share->event].nanoseconds <= share->begin && share->begin <= share->end);
    assert(share->end <= events[share->event + 1].nanoseconds);
  }
  stepwell_run(context, entry, inputs, NULL, NULL, NULL);
  assert(stepwell_trace_shares(context) == recorded);
  stepwell_trace_start_shares(context, shares, 1);
  stepwell_run(context, entry, inputs, NULL, NULL, NULL);
  stepwell_trace_stop(context, &events);
  assert(!pool || stepwell_trace_shares(context) > 1); /* counted, though one has room */
  stepwell_context_destroy(context);
  stepwell_pool_destroy(pool);
}

static void check_fork(void) {
  stepwell_pool *pool = stepwell_pool_create(3);
  stepwell_context *context = stepwell_context_create(pool, 0);
  check_cover(context, 64);
  const pid_t child = fork();
  if (child == 0) {
    check_cover(context, 64);
    _exit(0);
  }
  int status;
  assert(waitpid(child, &status, 0) == child && status == 0);
  check_cover(context, 64);
  stepwell_context_destroy(context);
  stepwell_pool_destroy(pool);
}

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static pthread_t caller;
static cpu_set_t helpers_set;
static int helpers_processor;

static void note_helper(void *const *arguments, int64_t begin, int64_t end) {
  (void)arguments;
  if (helpers_processor < 0 && !pthread_equal(pthread_self(), caller)) {
    pthread_getaffinity_np(pthread_self(), sizeof helpers_set, &helpers_set);
    helpers_processor = sched_getcpu();
  }
  const int64_t deadline = now() + 100000 * (end - begin);
  while (now() < deadline) {
  }
}

static void notes_helper(stepwell_context *context, void *const *inputs, void *const *outputs,
                         const void *weights, void *arena) {
  (void)inputs, (void)weights, (void)arena;
  context->parallel_for(context, note_helper, outputs, 64);
}

/* A worker that sleeps is woken beside a busy caller, not behind it, and may run anywhere after. */
static void check_apart(void) {
  cpu_set_t before, one;
  assert(!pthread_getaffinity_np(pthread_self(), sizeof before, &before));
  if (CPU_COUNT(&before) < 2)
    return;
  caller = pthread_self();
  stepwell_pool *pool = stepwell_pool_create(2);
  stepwell_context *context = stepwell_context_create(pool, 0);
  int helped = 0;
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (!CPU_ISSET(processor, &before))
      continue;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    assert(!pthread_setaffinity_np(caller, sizeof one, &one));
    usleep(2000); /* the worker falls asleep, perhaps where the caller is now */
    helpers_processor = -1;
    stepwell_run(context, notes_helper, NULL, NULL, NULL, NULL);
    if (helpers_processor < 0)
      continue; /* others kept it from running */
    helped++;
    assert(helpers_processor != processor && CPU_EQUAL(&helpers_set, &before));
  }
  assert(helped);
  assert(!pthread_setaffinity_np(caller, sizeof before, &before));
  stepwell_context_destroy(context);
  stepwell_pool_destroy(pool);
}

#define WORK_NANOSECONDS 5000
#define DISPATCHES 200
#define BATCHES 200

/* Takes `WORK_NANOSECONDS` for an even share of 64. */
static void busy(void *const *outputs, int64_t begin, int64_t end) {
  const int64_t threads = *(const uint32_t *)outputs[0];
  const int64_t deadline = now() + WORK_NANOSECONDS * threads * (end - begin) / 64;
  while (now() < deadline) {
  }
}

static void dispatch(stepwell_context *context, void *const *inputs, void *const *outputs,
                     const void *weights, void *arena) {
  (void)inputs, (void)weights, (void)arena;
  for (int i = 0; i < DISPATCHES; ++i)
    context->parallel_for(context, busy, outputs, 64);
}

/* Not a test: prints what one dispatch adds to the time of its parts, at best, when asked to. */
static void print_dispatch_cost(uint32_t threads) {
  stepwell_pool *pool = stepwell_pool_create(threads);
  stepwell_context *context = stepwell_context_create(pool, 0);
  int64_t each = INT64_MAX;
  for (int batch = 0; batch < BATCHES; ++batch) {
    const int64_t begin = now();
    void *outputs[] = {&threads};
    stepwell_run(context, dispatch, NULL, outputs, NULL, NULL);
    const int64_t spent = (now() - begin) / DISPATCHES;
    each = spent < each ? spent : each;
  }
  printf("dispatch over %u threads: %.2f us\n", threads,
         (double)(each - WORK_NANOSECONDS) / 1e3);
  stepwell_context_destroy(context);
  stepwell_pool_destroy(pool);
}

static uint64_t digest_of(const void *data, uint64_t bytes) {
  uint64_t digest = 0;
  stepwell_digests(NULL, &data, &bytes, &digest, 1);
  return digest;
}

/* Every byte counts, at its place, and so does the length. */
static void check_digest(void) {
  enum { SIZE = 1000 };
  unsigned char data[SIZE + 1];
  for (int i = 0; i < SIZE; ++i) data[i] = (unsigned char)(i * 7 + i / 256);
  const uint64_t digest = digest_of(data, SIZE);
  assert(digest == digest_of(data, SIZE));
  assert(digest != digest_of(data, SIZE - 1));
  for (int i = 0; i < SIZE; ++i) {
    data[i] ^= 1;
    assert(digest != digest_of(data, SIZE));
    data[i] ^= 1;
  }
  unsigned char moved[SIZE];
  memcpy(moved, data + 256, 256);
  memcpy(moved + 256, data, 256);
  memcpy(moved + 512, data + 512, SIZE - 512);
  assert(digest != digest_of(moved, SIZE));

  enum { COUNT = 100 };
  const void *parts[COUNT];
  uint64_t sizes[COUNT], digests[COUNT];
  for (int i = 0; i < COUNT; ++i) parts[i] = data + i, sizes[i] = (uint64_t)(SIZE - 5 * i);
  stepwell_pool *pool = stepwell_pool_create(3);
  stepwell_digests(pool, parts, sizes, digests, COUNT);
  for (int i = 0; i < COUNT; ++i) assert(digests[i] == digest_of(parts[i], sizes[i]));
  stepwell_pool_destroy(pool);
}

int main(int argc, char **argv) {
  if (argc > 1) {
    print_dispatch_cost((uint32_t)atoi(argv[1]));
    return 0;
  }
  for (uint32_t threads = 1; threads <= 4; ++threads) {
    check_counts(threads);
    check_backwards(threads);
  }
  check_trace();
  for (uint32_t threads = 1; threads <= 3; ++threads)
    check_shares(threads);
  check_fork();
  check_apart();
  check_digest();
  puts("ok");
  return 0;
}
