/* How the calling thread treats subnormal numbers, and rounds: a register of each processor. */
#ifndef STEPWELL_FLOAT_MODE_H
#define STEPWELL_FLOAT_MODE_H

#include <stdint.h>

#if defined(__x86_64__)

#include <xmmintrin.h>

/* Results are flushed to zero, operands are taken for zero (MXCSR). */
#define STEPWELL_FLUSHING UINT64_C(0x8040)
/* Flags of what has happened, which belong to each thread. */
#define STEPWELL_FLOAT_FLAGS UINT64_C(0x3f)

static inline uint64_t stepwell_float_mode(void) {
  return _mm_getcsr() & ~STEPWELL_FLOAT_FLAGS;
}

static inline void stepwell_set_float_mode(uint64_t mode) { _mm_setcsr((uint32_t)mode); }

#elif defined(__aarch64__)

/* Both, and of numbers of 16 bits as well (FPCR). */
#define STEPWELL_FLUSHING UINT64_C(0x1080000)

static inline uint64_t stepwell_float_mode(void) {
  uint64_t mode;
  __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
  return mode;
}

static inline void stepwell_set_float_mode(uint64_t mode) {
  __asm__ volatile("msr fpcr, %0" : : "r"(mode));
}

#else

#define STEPWELL_FLUSHING UINT64_C(0)

static inline uint64_t stepwell_float_mode(void) { return 0; }

static inline void stepwell_set_float_mode(uint64_t mode) { (void)mode; }

#endif
#endif
