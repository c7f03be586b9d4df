// What one core can do: fp32 multiply-adds a second, bytes read from memory, bytes copied in cache.
// Prints JSON. Built by machine.py with `cc -O3 -march=native`.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif
#define LANES (VECTOR_BYTES / sizeof(float))
#define CHAINS 12  // enough for two FMA units of latency 4 to 6, and few enough for 16 registers
#define REPEATS 5

typedef float vec __attribute__((vector_size(VECTOR_BYTES)));

static volatile float sink;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float sum(vec v) {
  float total = 0;
  for (size_t i = 0; i < LANES; i++) total += v[i];
  return total;
}

static double fma_gflops(void) {
  const long steps = 10000000;
  vec acc[CHAINS], scale, shift;
  for (size_t i = 0; i < LANES; i++) scale[i] = 0.999f, shift[i] = 0.001f;
  for (int c = 0; c < CHAINS; c++) acc[c] = shift * (float)c;
  double begin = now();
  for (long k = 0; k < steps; k++) {
#pragma GCC unroll 12
    for (int c = 0; c < CHAINS; c++) acc[c] = acc[c] * scale + shift;
  }
  double seconds = now() - begin;
  for (int c = 0; c < CHAINS; c++) sink = sum(acc[c]);
  return 2.0 * (double)LANES * CHAINS * (double)steps / seconds / 1e9;
}

// In four places at a time, which is faster than in one.
static double read_gbps(const vec *data, size_t bytes) {
  const size_t part = bytes / sizeof(vec) / 4;
  vec acc[8] = {0};
  double begin = now();
  for (size_t i = 0; i < part; i += 2) {
#pragma GCC unroll 8
    for (int c = 0; c < 8; c++) acc[c] += data[(size_t)(c / 2) * part + i + (size_t)(c % 2)];
  }
  double seconds = now() - begin;
  for (int c = 0; c < 8; c++) sink = sum(acc[c]);
  return (double)bytes / seconds / 1e9;
}

// Bytes read and written a second when `bytes` are copied over and over.
static double copy_gbps(const vec *from, vec *to, size_t bytes) {
  const size_t count = bytes / sizeof(vec);
  const int times = 200;
  double begin = now();
  for (int t = 0; t < times; t++) {
    for (size_t i = 0; i < count; i++) to[i] = from[i];
    __asm__ volatile("" : : "r"(to) : "memory");
  }
  return 2.0 * (double)bytes * times / (now() - begin) / 1e9;
}

int main(void) {
  const size_t large = (size_t)512 << 20, small = (size_t)2 << 20;
  vec *data = aligned_alloc(VECTOR_BYTES, large);
  if (!data) return 1;
  for (size_t i = 0; i < large / sizeof(float); i++) ((float *)data)[i] = 1.0f;
  double fma = 0, read = 0, copy = 0;
  for (int r = 0; r < REPEATS; r++) {
    double f = fma_gflops(), b = read_gbps(data, large);
    double c = copy_gbps(data, data + small / sizeof(vec), small);
    if (f > fma) fma = f;
    if (b > read) read = b;
    if (c > copy) copy = c;
  }
  printf("{\"fp32_gflops\": %.1f, \"read_gbps\": %.1f, \"copy_2mb_gbps\": %.1f}\n", fma, read, copy);
  free(data);
  return 0;
}
