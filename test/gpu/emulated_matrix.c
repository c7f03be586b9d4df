// Asynchronous copies and matrix instructions of sm_80, as one thread of a warp sees them: PTX ISA,
// "Matrix Fragments for mma.m16n8k16" and its neighbours for other types, "ldmatrix", "cp.async".
#include "emulator.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Copies: those of a group arrive when the thread waits for it, or at once.

typedef struct {
  void *to;
  char bytes[16];
  const void *from;
  int read;
} copy;
enum { MAX_COPIES = 1024 };
typedef struct {
  copy *list;
  int begun, committed, arrived, groups, ends[64];
} copies;
static copies pending[MAX_THREADS];

void emulator_reset_copies(int threads) {
  for (int i = 0; i < threads; i++)
    pending[i].begun = pending[i].committed = pending[i].arrived = pending[i].groups = 0;
}

static void arrive(const copy *one) {
  char bytes[16] = {0};
  memcpy(bytes, one->from, (size_t)one->read);
  memcpy(one->to, bytes, 16);
}

void emulator_copy_async(void *to, const void *from, int32_t read) {
  copies *mine = &pending[emulator_thread];
  if ((uintptr_t)to % 16 || (read && (uintptr_t)from % 16)) {
    emulator_fail("cp.async of 16 bytes from or to an address that is no multiple of 16");
    return;
  }
  const copy one = {.to = to, .from = from, .read = read};
  if (emulator_backwards) {
    arrive(&one);
    return;
  }
  if (!mine->list) mine->list = malloc(MAX_COPIES * sizeof(copy));
  if (mine->begun == MAX_COPIES) {
    emulator_fail("a thread has begun more copies than it ever waits for");
    return;
  }
  mine->list[mine->begun++] = one;
}

void emulator_commit_copies(void) {
  copies *mine = &pending[emulator_thread];
  if (mine->groups == 64) {
    emulator_fail("a thread has made more groups of copies than it ever waits for");
    return;
  }
  mine->ends[mine->groups++] = mine->begun;
}

void emulator_wait_copies(int32_t left) {
  copies *mine = &pending[emulator_thread];
  const int done = mine->groups - left;
  if (done <= 0) return;
  const int end = mine->ends[done - 1];
  for (int i = 0; i < end; i++) arrive(&mine->list[i]);
  mine->begun -= end, mine->groups -= done;
  memmove(mine->list, mine->list + end, (size_t)mine->begun * sizeof(copy));
  for (int i = 0; i < mine->groups; i++) mine->ends[i] = mine->ends[i + done] - end;
}

// Registers that the threads of a warp show each other.

static uint64_t shown[MAX_THREADS][4];

void emulator_load_matrices(uint32_t *result, const void *row, int32_t count, int32_t transpose) {
  const int thread = emulator_thread, lane = thread % WARP;
  const uint64_t(*warp)[4] = (const uint64_t(*)[4])shown + (thread - lane);
  shown[thread][0] = (uint64_t)(uintptr_t)row;
  emulator_meet_warp();
  for (int matrix = 0; matrix < count; matrix++) {
    uint16_t halves[2];
    for (int e = 0; e < 2; e++) {
      const int r = transpose ? 2 * (lane % 4) + e : lane / 4;
      const int c = transpose ? lane / 4 : 2 * (lane % 4) + e;
      const uint64_t start = warp[8 * matrix + r][0];
      if (start % 16) {
        emulator_fail("ldmatrix of a row whose address is no multiple of 16");
        return;
      }
      halves[e] = ((const uint16_t *)(uintptr_t)start)[c];
    }
    result[matrix] = halves[0] | (uint32_t)halves[1] << 16;
  }
  emulator_meet_warp();
}

void emulator_store_matrices(const uint32_t *registers, char *row, int32_t count, int32_t transpose) {
  const int thread = emulator_thread, lane = thread % WARP;
  const uint64_t(*warp)[4] = (const uint64_t(*)[4])shown + (thread - lane);
  for (int i = 0; i < count; i++) shown[thread][i] = registers[i];
  emulator_meet_warp();
  if ((uintptr_t)row % 16) emulator_fail("stmatrix of a row whose address is no multiple of 16");
  const int matrix = lane / 8, own = lane % 8;
  if (matrix < count) {
    for (int c = 0; c < 8; c++) {
      const int owner = transpose ? 4 * c + own / 2 : 4 * own + c / 2;
      const uint16_t half = (uint16_t)(warp[owner][matrix] >> 16 * ((transpose ? own : c) % 2));
      memcpy(row + 2 * c, &half, 2);
    }
    emulator_wrote(row, 16);
  }
  emulator_meet_warp();
}

static float number(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
static float of_half(uint16_t bits) {
  _Float16 value;
  memcpy(&value, &bits, 2);
  return (float)value;
}

static float float8(uint8_t code, int mantissa) {
  const int exponent = (code & 0x7f) >> mantissa, part = code & ((1 << mantissa) - 1);
  const int bias = mantissa == 3 ? 7 : 15, steps = 1 << mantissa;
  const float sign = code & 0x80 ? -1.0f : 1.0f;
  if (mantissa == 3 && (code & 0x7f) == 0x7f) return NAN;
  if (mantissa == 2 && exponent == 31) return part ? NAN : sign * INFINITY;
  const int least = exponent ? exponent : 1;
  return sign * ldexpf((float)(part + (exponent ? steps : 0)), least - bias - mantissa);
}
float emulator_float8(uint8_t code, int mantissa) {
  static float numbers[2][256];
  static int are_known;
  for (int i = 0; i < 512 && !are_known; i++) numbers[i / 256][i % 256] = float8((uint8_t)i, 2 + i / 256);
  are_known = 1;
  return numbers[mantissa - 2][code];
}

// The element of a register: 0 of f16, 1 of bf16, 2 of tf32 (the upper 19 bits of f32), 3 of s8,
// 4 of e4m3, 5 of e5m2. Of products, 6 is e4m3 by e5m2, and 7 e5m2 by e4m3.
int emulator_operand(int kind, int right) {
  return kind == 6 ? 4 + right : kind == 7 ? 5 - right : kind;
}
static double element(uint32_t bits, int index, int kind) {
  const uint16_t part = (uint16_t)(bits >> 16 * (index % 2));
  switch (kind) {
    case 0: return of_half(part);
    case 1: return number((uint32_t)part << 16);
    case 2: return number(bits & 0xffffe000u);
    case 3: return (int8_t)(bits >> 8 * (index % 4));
    default: return emulator_float8((uint8_t)(bits >> 8 * (index % 4)), 7 - kind);
  }
}

// The operands of a warp's product, as numbers: 16 x k and k x 8.
enum { DEEPEST = 32 };
static double lefts[MAX_THREADS / WARP][16][DEEPEST], rights[MAX_THREADS / WARP][DEEPEST][8];

// Sums of a 16 x 8 tile: rows r and r + 8 of two columns a thread.
void emulator_multiply(uint32_t *result, const uint32_t *left, const uint32_t *right,
                       const uint32_t *sums, int32_t kind) {
  const int lane = emulator_thread % WARP, row = lane / 4;
  double(*all_left)[DEEPEST] = lefts[emulator_thread / WARP];
  double(*all_right)[8] = rights[emulator_thread / WARP];
  const int held = kind >= 3 ? 4 : kind == 2 ? 1 : 2;  // elements of a register
  for (int e = 0; e < held; e++) {
    const int k = held * (lane % 4) + e;
    for (int i = 0; i < 4; i++)
      all_left[row + 8 * (i % 2)][k + 4 * held * (i / 2)] = element(left[i], e, emulator_operand(kind, 0));
    for (int i = 0; i < 2; i++)
      all_right[k + 4 * held * i][row] = element(right[i], e, emulator_operand(kind, 1));
  }
  emulator_meet_warp();
  double products[2][2] = {0};
  for (int k = 0; k < 8 * held; k++)
    for (int high = 0; high < 2; high++)
      for (int e = 0; e < 2; e++)
        products[high][e] += all_left[row + 8 * high][k] * all_right[k][2 * (lane % 4) + e];
  for (int high = 0; high < 2; high++) {
    for (int e = 0; e < 2; e++) {
      const double sum = products[high][e];
      uint32_t *out = &result[2 * high + e];
      const uint32_t before = sums[2 * high + e];
      if (kind == 3) {
        int64_t total = (int64_t)sum + (int32_t)before;
        total = total > INT32_MAX ? INT32_MAX : total < INT32_MIN ? INT32_MIN : total;
        *out = (uint32_t)total;
      } else {
        const float total = (float)(sum + number(before));
        memcpy(out, &total, 4);
      }
    }
  }
  emulator_meet_warp();
}

// What LLVM calls to round to bf16 where the CPU has no instruction for it. The 16 bits come back in
// the lowest ones of the register that a float is in.

float emulator_round_to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  if ((bits & 0x7fffffff) > 0x7f800000)
    bits |= 0x400000;
  else
    bits += 0x7fff + (bits >> 16 & 1);
  bits >>= 16;
  float result;
  memcpy(&result, &bits, 4);
  return result;
}
