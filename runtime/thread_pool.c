/* See thread_pool.h. Every worker has a mailbox of its own: `ticket` is the number of the last job
 * posted to it, `claimed` of the last one that somebody began, `done` of the last one it finished.
 * A job is posted by one store per worker that takes part, and both sides spin for a short while
 * before they sleep on a futex, so that a dispatch between kernels costs a fraction of a microsecond
 * and an idle pool costs nothing.
 *
 * Each thread has a part of the job, in chunks. It takes half of what is left of them at a time,
 * from the front; whoever has none left takes from the back of the others' parts. (Front and back
 * change places in a job that runs backwards.) So nobody waits long for a thread that is still waking
 * up, or whose processor the system gave to somebody else.
 */
#include "thread_pool.h"

#include "float_mode.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define CACHE_LINE 64
#define STACK_BYTES (8u << 20)
#define SPIN_NANOSECONDS 30000
#define SPINS_PER_CLOCK_READ 64
#define CHUNKS 16 /* of a part, at most */

typedef struct worker {
  _Alignas(CACHE_LINE) _Atomic uint32_t ticket;
  _Atomic uint32_t sleeping;
  _Atomic uint32_t claimed;
#if defined(__linux__)
  _Atomic int32_t processor; /* that it finished its last job on */
  _Atomic bool moved;        /* off a processor, for one job */
  cpu_set_t allowed;         /* where it may run otherwise */
#endif
  _Alignas(CACHE_LINE) _Atomic uint32_t done;
  _Atomic uint32_t awaited;
  pthread_t thread;
  stepwell_pool *pool;
  uint32_t index;
} worker;

/* The chunks of a thread's part that nobody has taken: the first in the upper half, the end in the
 * lower. */
typedef struct part {
  _Alignas(CACHE_LINE) _Atomic uint64_t left;
} part;

struct stepwell_pool {
  pthread_mutex_t mutex;
  /* The job at hand: written before the tickets, read after them. */
  stepwell_task task;
  void *const *arguments;
  int64_t count;
  bool backwards;
  uint64_t float_mode; /* the caller's */
  uint32_t chunks;
  uint32_t parts;
  _Atomic int32_t processor; /* that the caller runs on */
  part *part;                /* one a thread */
  _Atomic bool stopping;
  uint32_t threads; /* asked for, the caller included */
  uint32_t workers; /* alive */
  stepwell_pool *next;
  worker *team; /* threads - 1 of them */
};

/* All pools, for the handler that restarts them in a forked child. */
static stepwell_pool *pools;
static pthread_mutex_t pools_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static _Thread_local uint32_t thread_number;

static void pause_briefly(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void sleep_while_equal(_Atomic uint32_t *word, uint32_t value) {
#if defined(__linux__)
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
#else
  (void)word;
  (void)value;
  sched_yield();
#endif
}

static void wake(_Atomic uint32_t *word) {
#if defined(__linux__)
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
#else
  (void)word;
#endif
}

/* Returns once `*word != value`: spins first, then sleeps with `*asleep` raised. The flag and the
 * word are sequentially consistent, so that a sleeper and a waker cannot miss each other. */
static uint32_t wait_for_change(_Atomic uint32_t *word, uint32_t value, _Atomic uint32_t *asleep) {
  uint32_t seen = atomic_load_explicit(word, memory_order_acquire);
  if (seen != value)
    return seen;
  const int64_t deadline = now() + SPIN_NANOSECONDS;
  do {
    for (int spin = 0; spin < SPINS_PER_CLOCK_READ; ++spin) {
      seen = atomic_load_explicit(word, memory_order_acquire);
      if (seen != value)
        return seen;
      pause_briefly();
    }
  } while (now() < deadline);
  atomic_store(asleep, 1);
  while ((seen = atomic_load(word)) == value)
    sleep_while_equal(word, value);
  atomic_store(asleep, 0);
  return seen;
}

static void publish(_Atomic uint32_t *word, uint32_t value, _Atomic uint32_t *asleep) {
  atomic_store(word, value);
  if (atomic_load(asleep))
    wake(word);
}

/* Linux may wake a thread on the processor of the caller, who is busy there, though others are idle,
 * and takes milliseconds to part the two: the halted processors of a virtual machine do not count as
 * idle. So `one` is confined to processors that nobody else of the pool ran on last, by the caller
 * before it wakes it, or by itself when it finds out, and free to move again when it is awake. */
static void part_from_caller(worker *one) {
#if defined(__linux__)
  const stepwell_pool *pool = one->pool;
  cpu_set_t others;
  if (atomic_load(&one->moved) || pthread_getaffinity_np(one->thread, sizeof others, &others))
    return;
  one->allowed = others;
  CPU_CLR((size_t)atomic_load_explicit(&pool->processor, memory_order_relaxed), &others);
  for (const worker *other = pool->team; other < pool->team + pool->workers; ++other)
    if (other != one)
      CPU_CLR((size_t)atomic_load_explicit(&other->processor, memory_order_relaxed), &others);
  if (CPU_COUNT(&others) && !pthread_setaffinity_np(one->thread, sizeof others, &others))
    atomic_store(&one->moved, true);
#else
  (void)one;
#endif
}

/* The processor that this runs on, -1 where nobody tells. */
static int32_t processor(void) {
#if defined(__linux__)
  return sched_getcpu();
#else
  return -1;
#endif
}

static void move_freely(worker *self) {
#if defined(__linux__)
  if (atomic_load(&self->moved)) {
    pthread_setaffinity_np(self->thread, sizeof self->allowed, &self->allowed);
    atomic_store(&self->moved, false);
  }
#else
  (void)self;
#endif
}

/* Where share `index` of `shares` of [0, count) begins; the first `count % shares` are longer by
 * one. */
static int64_t begin_of(int64_t count, int64_t shares, int64_t index) {
  const int64_t longer = count % shares;
  return index * (count / shares) + (index < longer ? index : longer);
}

/* Takes half of what is left of `from`, at its front or its back, and runs it; false when there is
 * nothing. */
static bool run_some(stepwell_pool *pool, part *from, bool back) {
  uint64_t left = atomic_load_explicit(&from->left, memory_order_relaxed);
  uint32_t begin, end, taken;
  do {
    begin = (uint32_t)(left >> 32), end = (uint32_t)left;
    if (begin == end)
      return false;
    taken = (end - begin + 1) / 2;
  } while (!atomic_compare_exchange_weak_explicit(
      &from->left, &left, back ? left - taken : left + ((uint64_t)taken << 32),
      memory_order_relaxed, memory_order_relaxed));
  const uint32_t first = back ? end - taken : begin;
  const int64_t low = begin_of(pool->count, pool->chunks, first);
  const int64_t high = begin_of(pool->count, pool->chunks, first + taken);
  if (!pool->backwards)
    pool->task(pool->arguments, low, high);
  else
    for (int64_t i = high - 1; i >= low; --i)
      pool->task(pool->arguments, i, i + 1);
  return true;
}

/* Does part `index` of the job, then what is left of the others. */
static void run_parts(stepwell_pool *pool, uint32_t index) {
  while (run_some(pool, &pool->part[index], pool->backwards))
    ;
  for (uint32_t i = 1; i < pool->parts; ++i)
    while (run_some(pool, &pool->part[(index + i) % pool->parts], !pool->backwards))
      ;
}

/* Whether the caller of this is the one to do job `ticket` of `self`. */
static bool claim(worker *self, uint32_t ticket) {
  uint32_t previous = ticket - 1;
  return atomic_compare_exchange_strong(&self->claimed, &previous, ticket);
}

static void *work(void *argument) {
  worker *self = argument;
  stepwell_pool *pool = self->pool;
  uint32_t ticket = 0;
  thread_number = self->index + 1;
  atomic_store_explicit(&self->processor, processor(), memory_order_relaxed);
  for (;;) {
    ticket = wait_for_change(&self->ticket, ticket, &self->sleeping);
    if (atomic_load_explicit(&pool->stopping, memory_order_relaxed))
      return NULL;
    if (processor() == atomic_load_explicit(&pool->processor, memory_order_relaxed))
      part_from_caller(self);
    move_freely(self);
    if (!claim(self, ticket))
      continue;
    if (stepwell_float_mode() != pool->float_mode)
      stepwell_set_float_mode(pool->float_mode);
    run_parts(pool, self->index + 1);
    atomic_store_explicit(&self->processor, processor(), memory_order_relaxed);
    publish(&self->done, ticket, &self->awaited);
  }
}

/* Starts the missing workers; a pool that cannot start them all works with those it has. */
static void start_workers(stepwell_pool *pool) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes))
    return;
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  while (pool->workers + 1 < pool->threads) {
    worker *self = &pool->team[pool->workers];
    atomic_store(&self->ticket, 0);
    atomic_store(&self->claimed, 0);
    atomic_store(&self->done, 0);
    atomic_store(&self->sleeping, 0);
    atomic_store(&self->awaited, 0);
#if defined(__linux__)
    atomic_store(&self->processor, -1);
    atomic_store(&self->moved, false);
#endif
    self->pool = pool;
    self->index = pool->workers;
    if (pthread_create(&self->thread, &attributes, work, self))
      break;
    pool->workers++;
  }
  pthread_attr_destroy(&attributes);
}

/* A forked child has none of its parent's threads: its pools start theirs again when first used. */
static void forget_threads(void) {
  pthread_mutex_init(&pools_mutex, NULL);
  for (stepwell_pool *pool = pools; pool; pool = pool->next) {
    pthread_mutex_init(&pool->mutex, NULL);
    pool->workers = 0;
  }
}

static void install_fork_handler(void) { pthread_atfork(NULL, NULL, forget_threads); }

static void stop_workers(stepwell_pool *pool) {
  atomic_store(&pool->stopping, true);
  for (uint32_t i = 0; i < pool->workers; ++i) {
    worker *self = &pool->team[i];
    publish(&self->ticket, atomic_load(&self->ticket) + 1, &self->sleeping);
  }
  for (uint32_t i = 0; i < pool->workers; ++i)
    pthread_join(pool->team[i].thread, NULL);
}

static void release(stepwell_pool *pool) {
  free(pool->team);
  free(pool->part);
  free(pool);
}

stepwell_pool *stepwell_pool_create(uint32_t threads) {
  pthread_once(&fork_once, install_fork_handler);
  stepwell_pool *pool = calloc(1, sizeof *pool);
  if (!pool)
    return NULL;
  pool->threads = threads ? threads : 1;
  if (pool->threads > 1) {
    pool->team = aligned_alloc(CACHE_LINE, sizeof(worker) * (pool->threads - 1));
    pool->part = aligned_alloc(CACHE_LINE, sizeof(part) * pool->threads);
    if (!pool->team || !pool->part) {
      release(pool);
      return NULL;
    }
  }
  pthread_mutex_init(&pool->mutex, NULL);
  start_workers(pool);
  if (pool->workers + 1 < pool->threads) {
    stop_workers(pool);
    release(pool);
    return NULL;
  }
  pthread_mutex_lock(&pools_mutex);
  pool->next = pools;
  pools = pool;
  pthread_mutex_unlock(&pools_mutex);
  return pool;
}

void stepwell_pool_destroy(stepwell_pool *pool) {
  if (!pool)
    return;
  pthread_mutex_lock(&pools_mutex);
  for (stepwell_pool **link = &pools; *link; link = &(*link)->next) {
    if (*link == pool) {
      *link = pool->next;
      break;
    }
  }
  pthread_mutex_unlock(&pools_mutex);
  stop_workers(pool);
  pthread_mutex_destroy(&pool->mutex);
  release(pool);
}

void stepwell_pool_acquire(stepwell_pool *pool) {
  pthread_mutex_lock(&pool->mutex);
  if (pool->workers + 1 < pool->threads)
    start_workers(pool);
}

void stepwell_pool_release(stepwell_pool *pool) { pthread_mutex_unlock(&pool->mutex); }

uint32_t stepwell_pool_threads(const stepwell_pool *pool) { return pool->threads; }

uint32_t stepwell_pool_thread(void) { return thread_number; }

void stepwell_pool_parallel_for(stepwell_pool *pool, stepwell_task task, void *const *arguments,
                                int64_t count) {
  const bool backwards = count < 0;
  count = backwards ? -count : count;
  const uint32_t threads = pool->workers + 1;
  const uint32_t parts = count < threads ? (uint32_t)count : threads;
  if (parts <= 1) {
    if (count > 0)
      task(arguments, 0, count);
    return;
  }
  pool->task = task;
  pool->arguments = arguments;
  pool->count = count;
  pool->backwards = backwards;
  pool->float_mode = stepwell_float_mode();
  pool->parts = parts;
  pool->chunks = count < parts * CHUNKS ? (uint32_t)count : parts * CHUNKS;
  for (uint32_t i = 0; i < parts; ++i) {
    const uint64_t begin = (uint64_t)begin_of(pool->chunks, parts, i);
    const uint64_t end = (uint64_t)begin_of(pool->chunks, parts, i + 1);
    atomic_store_explicit(&pool->part[i].left, begin << 32 | end, memory_order_relaxed);
  }
  atomic_store_explicit(&pool->processor, processor(), memory_order_relaxed);
  for (uint32_t i = 0; i + 1 < parts; ++i) {
    worker *other = &pool->team[i];
    const uint32_t ticket = atomic_load_explicit(&other->ticket, memory_order_relaxed);
    if (atomic_load_explicit(&other->sleeping, memory_order_relaxed))
      part_from_caller(other);
    publish(&other->ticket, ticket + 1, &other->sleeping);
  }
  run_parts(pool, 0);
  for (uint32_t i = 0; i + 1 < parts; ++i) {
    worker *other = &pool->team[i];
    const uint32_t ticket = atomic_load_explicit(&other->ticket, memory_order_relaxed);
    if (claim(other, ticket)) {
      atomic_store_explicit(&other->done, ticket, memory_order_relaxed);
      continue;
    }
    uint32_t done = atomic_load_explicit(&other->done, memory_order_acquire);
    while (done != ticket)
      done = wait_for_change(&other->done, done, &other->awaited);
  }
}
