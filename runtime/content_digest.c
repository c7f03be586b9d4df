/* Fast digests of buffers, to see whether they changed since they were last read. Not for adversaries:
 * each word, xored with a key that moves with its place, is added to a rotating sum; 32 sums run
 * side by side, in registers, so that the memory sets the pace. */
#include <string.h>

#include "stepwell_runtime.h"
#include "thread_pool.h"

#define LANES 4
#define STREAMS 8

typedef uint64_t words __attribute__((vector_size(LANES * sizeof(uint64_t)), aligned(8)));

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_ALL_VECTORS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_ALL_VECTORS
#endif

static const uint64_t GOLDEN = 0x9E3779B97F4A7C15u;

static uint64_t mixed(uint64_t value) {
  value ^= value >> 30;
  value *= 0xBF58476D1CE4E5B9u;
  value ^= value >> 27;
  value *= 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

FOR_ALL_VECTORS
static uint64_t digest_of(const words *data, uint64_t blocks, uint64_t digest) {
  words sums[STREAMS] = {{0}}, key;
  for (int lane = 0; lane < LANES; ++lane) key[lane] = mixed((uint64_t)lane + 1);
  for (uint64_t block = 0; block < blocks; ++block, data += STREAMS, key += GOLDEN)
    for (int stream = 0; stream < STREAMS; ++stream)
      sums[stream] = ((sums[stream] << 29) | (sums[stream] >> 35)) + (data[stream] ^ key);
  for (int stream = 0; stream < STREAMS; ++stream)
    for (int lane = 0; lane < LANES; ++lane) digest = mixed(digest ^ sums[stream][lane]) + GOLDEN;
  return digest;
}

static uint64_t digest(const void *data, uint64_t bytes) {
  words rest[STREAMS] = {{0}};
  const uint64_t blocks = bytes / sizeof rest;
  memcpy(rest, (const char *)data + blocks * sizeof rest, bytes % sizeof rest);
  return digest_of(rest, 1, digest_of(data, blocks, bytes));
}

static void digest_some(void *const *arguments, int64_t begin, int64_t end) {
  const void *const *data = arguments[0];
  const uint64_t *bytes = arguments[1];
  uint64_t *digests = arguments[2];
  for (int64_t i = begin; i < end; ++i) digests[i] = digest(data[i], bytes[i]);
}

void stepwell_digests(stepwell_pool *pool, const void *const *data, const uint64_t *bytes,
                      uint64_t *digests, int64_t count) {
  void *const arguments[] = {(void *)data, (void *)bytes, digests};
  if (!pool) {
    digest_some(arguments, 0, count);
    return;
  }
  stepwell_pool_acquire(pool);
  stepwell_pool_parallel_for(pool, digest_some, arguments, count);
  stepwell_pool_release(pool);
}
