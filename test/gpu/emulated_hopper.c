// What sm_90a adds: barriers in shared memory that count threads and bytes, bulk copies of boxes of an
// array, and products of a warpgroup. PTX ISA, "mbarrier", "cp.async.bulk.tensor", "Asynchronous
// Warpgroup Level Matrix Instructions"; the swizzle of 128 bytes throughout.
//
// Copies come as late as they may: when no thread can go on; those from shared memory read it when their
// thread waits for that. Products are computed when they are asked
// for, but what they read must be the same when the warpgroup waits for them.
#include "emulator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COPIES = 4096, MAX_PRODUCTS = 64, ATOM = 1024, LINE = 128, RANKS = 5 };
enum { SHARED_WINDOW = 1 << 18 };

// Barriers: 8 bytes of shared memory.

enum { MAGIC = 0x2b };
typedef struct {
  int32_t bytes;  // still to come in this phase
  uint16_t pending : 12, phase : 4;
  uint8_t count, magic;
} barrier;

static barrier *barrier_at(void *address) {
  static barrier none;
  barrier *found = address;
  if ((uintptr_t)address % 8 == 0 && found->magic == MAGIC) return found;
  emulator_fail("a wait or an arrival at what is no barrier");
  none = (barrier){.pending = 1, .count = 1, .magic = MAGIC};
  return &none;
}
int emulator_is_in_phase(const void *address, int phase) {
  const barrier *found = address;
  return found->magic == MAGIC && found->phase == phase;
}
static barrier *barrier_of(void *address, int rank) { return barrier_at(emulator_of_block(address, rank)); }
static void complete(barrier *at) {
  if (at->pending || at->bytes) return;
  at->phase ^= 1;
  at->pending = at->count;
  emulator_moved();
}
static void arrive(barrier *at) {
  if (!at->pending) {
    emulator_fail("more threads arrive at a barrier than it waits for");
    return;
  }
  at->pending--;
  emulator_moved();
  complete(at);
}

void emulator_barrier_init(void *address, int32_t count) {
  *(barrier *)address = (barrier){.pending = (uint16_t)count, .count = (uint8_t)count, .magic = MAGIC};
}
int64_t emulator_barrier_arrive(void *address) { return arrive(barrier_at(address)), 0; }
// Of this thread's cluster.
static int first_rank(void) { return emulator_rank() / emulator_cluster() * emulator_cluster(); }
void emulator_barrier_arrive_at(void *address, int32_t rank) {
  arrive(barrier_of(address, rank < emulator_cluster() ? first_rank() + rank : -1));
}
void emulator_store_in_block(void *address, int32_t rank, void *counted, int32_t bits) {
  const int block = rank < emulator_cluster() ? first_rank() + rank : -1;
  memcpy(emulator_of_block(address, block), &bits, sizeof bits);
  barrier *at = barrier_of(counted, block);
  at->bytes -= (int32_t)sizeof bits;
  complete(at);
}
void emulator_barrier_expect(void *address, int32_t bytes) {
  barrier *at = barrier_at(address);
  at->bytes += bytes;
  arrive(at);
}
int32_t emulator_barrier_try(void *address, int32_t parity) {
  const barrier *at = barrier_at(address);
  if (at->phase == (parity & 1)) emulator_pause_for_phase(address, parity & 1);
  return at->phase != (parity & 1);
}

// Bulk copies

typedef struct {
  uint64_t address, strides[RANKS - 1];
  uint32_t sizes[RANKS];
  uint16_t box[RANKS];
  uint8_t rank, bytes, is_image, rounds;
  int32_t lower[RANKS], upper[RANKS];  // of an image: the first pixels that there are, by dimension
  uint8_t steps[RANKS];
} tensor_map;
_Static_assert(sizeof(tensor_map) <= MAP_WORDS * 8, "a tensor map has 128 bytes");

enum { TF32 = 11 };  // as f32 in memory
static const uint8_t element_bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4};

int cuTensorMapEncodeTiled(void *out, int type, uint32_t rank, void *address, const uint64_t *sizes,
                           const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
                           int interleaved, int swizzle, int promotion, int filling) {
  tensor_map map = {.address = (uint64_t)(uintptr_t)address, .rank = (uint8_t)rank};
  if (type < 0 || type > TF32 || !rank || rank > RANKS || map.address % 16) return 1;
  if ((uintptr_t)out % 128 || interleaved || swizzle != 3 || promotion > 3 || filling) return 1;
  map.bytes = element_bytes[type], map.rounds = type == TF32;
  for (uint32_t i = 0; i < rank; i++) {
    if (!sizes[i] || sizes[i] > UINT32_MAX || !box[i] || box[i] > 256 || steps[i] != 1) return 1;
    if (i + 1 < rank && (strides[i] % 16 || !strides[i] || strides[i] >> 40)) return 1;
    map.sizes[i] = (uint32_t)sizes[i], map.box[i] = (uint16_t)box[i];
    if (i + 1 < rank) map.strides[i] = strides[i];
  }
  if (box[0] * map.bytes != LINE) return 1;
  memset(out, 0, MAP_WORDS * 8);
  memcpy(out, &map, sizeof map);
  return 0;
}

int cuTensorMapEncodeIm2col(void *out, int type, uint32_t rank, void *address, const uint64_t *sizes,
                            const uint64_t *strides, const int *lower, const int *upper,
                            uint32_t channels, uint32_t pixels, const uint32_t *steps,
                            int interleaved, int swizzle, int promotion, int filling) {
  const uint32_t box[RANKS] = {channels, 1, 1, 1, 1}, ones[RANKS] = {1, 1, 1, 1, 1};
  _Alignas(128) uint64_t plain[MAP_WORDS];
  tensor_map map;
  if (rank < 3 || rank > 5 || !pixels || pixels > 1024 || steps[0] != 1 || steps[rank - 1] != 1) return 1;
  const int most = 1 << (rank == 3 ? 15 : rank == 4 ? 7 : 4);
  if (cuTensorMapEncodeTiled(plain, type, rank, address, sizes, strides, box, ones, interleaved, swizzle,
                             promotion, filling))
    return 1;
  memcpy(&map, plain, sizeof map);
  map.is_image = 1, map.box[1] = (uint16_t)pixels;
  for (uint32_t i = 1; i <= rank - 2; i++) {
    const int low = lower[i - 1], high = (int)sizes[i] - 1 + upper[i - 1];
    if (low < -most || low >= most || upper[i - 1] < -most || upper[i - 1] >= most || high < low) return 1;
    if (!steps[i] || steps[i] > 8) return 1;
    map.lower[i] = low, map.upper[i] = high, map.steps[i] = (uint8_t)steps[i];
  }
  memset(out, 0, MAP_WORDS * 8);
  memcpy(out, &map, sizeof map);
  return 0;
}

static uintptr_t swizzled(uintptr_t address) { return address ^ ((address >> 7 & 7) << 4); }

typedef struct {
  char *shared;
  void *at;  // the barrier; NULL of a copy from shared memory
  int rank;  // of the block whose these are
  tensor_map map;
  int32_t first[RANKS], offsets[RANKS];  // offsets in an image, as first by dimension
  int thread;
  long group;  // of its thread's, from shared memory
} bulk_copy;
static bulk_copy waiting[MAX_COPIES], leaving[MAX_COPIES];
static int copies, leaving_count;
static long committed[MAX_THREADS];

// Line `line` of the box: its place in all dimensions but the innermost.
static void place_of_line(const bulk_copy *copy, int line, int64_t *places) {
  const tensor_map *map = &copy->map;
  for (int i = 1, rest = line; i < map->rank; rest /= map->box[i], i++)
    places[i] = copy->first[i] + rest % map->box[i];
}
// The same of an image, where a line is a row's pixel: rows follow one another in a line of the image,
// then in the next one, then in the next image.
static void place_of_row(const bulk_copy *copy, int row, int64_t *places) {
  const tensor_map *map = &copy->map;
  const int images = map->rank - 1;
  int64_t at[RANKS];
  for (int i = 1; i <= images; i++) at[i] = copy->first[i];
  for (; row; row--) {
    int i = 1;
    for (; i < images && (at[i] += map->steps[i]) > map->upper[i]; i++) at[i] = map->lower[i];
    if (i == images) at[i]++;
  }
  for (int i = 1; i <= images; i++) places[i] = at[i] + copy->offsets[i];
}

// To 10 bits of fraction, nearest. A sum that overflows them raises the exponent, as it should.
static void round_to_tf32(char *at) {
  uint32_t bits;
  memcpy(&bits, at, sizeof bits);
  if ((bits >> 23 & 0xff) != 0xff) bits = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
  memcpy(at, &bits, sizeof bits);
}

static void deliver(const bulk_copy *copy) {
  const tensor_map *map = &copy->map;
  char *shared = emulator_of_block(copy->shared, copy->rank);
  int lines = 1;
  for (int i = 1; i < map->rank; i++) lines *= map->box[i];
  for (int line = 0; line < lines; line++) {
    uint64_t from = map->address;
    int inside = 1;
    int64_t places[RANKS];
    (map->is_image ? place_of_row : place_of_line)(copy, line, places);
    for (int i = 1; i < map->rank; i++) {
      const int64_t place = places[i];
      inside &= place >= 0 && place < (int64_t)map->sizes[i];
      from += (uint64_t)place * map->strides[i - 1];
    }
    for (int i = 0; i < map->box[0]; i++) {
      const int64_t place = copy->first[0] + i;
      char *at = (char *)swizzled((uintptr_t)(shared + line * LINE + i * map->bytes));
      char *there = (char *)(uintptr_t)from + place * map->bytes;
      const int exists = inside && place >= 0 && place < (int64_t)map->sizes[0];
      if (!copy->at && exists) memcpy(there, at, map->bytes);
      if (copy->at && exists) memcpy(at, there, map->bytes);
      if (copy->at && exists && map->rounds) round_to_tf32(at);
      if (copy->at && !exists) memset(at, 0, map->bytes);
    }
  }
  if (!copy->at) return;
  barrier *at = barrier_of(copy->at, copy->rank);
  at->bytes -= lines * LINE;
  complete(at);
}

// What threads have written to shared memory (words of 4 bytes): who did last, and which of its fences
// comes next. The copies' engine sees it when the thread has come to that fence.
typedef struct {
  int32_t thread;
  uint32_t fence;
} change;
static change changes[MAX_TOGETHER][SHARED_WINDOW / 4];
static uint32_t fences[MAX_THREADS];

void emulator_wrote(const void *address, int32_t bytes) {
  const uintptr_t first = (uintptr_t)address - (uintptr_t)emulator_shared();
  for (uintptr_t at = first; at < first + (uintptr_t)bytes && at < SHARED_WINDOW; at++)
    changes[emulator_rank()][at / 4] = (change){emulator_thread, fences[emulator_thread]};
}
void emulator_show_stores(void) { fences[emulator_thread]++; }
static int are_seen(const void *address, int bytes) {
  const change *found = changes[emulator_rank()];
  const intptr_t first = (const char *)address - emulator_shared();
  for (intptr_t at = first / 4; at < (first + bytes) / 4; at++)
    if (found[at].fence == fences[found[at].thread]) return 0;
  return 1;
}

static int is_possible(bulk_copy *made, const void *map, int32_t rank, const int32_t *first, int count) {
  memcpy(&made->map, map, sizeof made->map);
  if (rank != made->map.rank || (uintptr_t)made->shared % ATOM || count == MAX_COPIES) {
    emulator_fail("a bulk copy of another rank than its map, or at an address that is no multiple "
                  "of 1024, or one of too many");
    return 0;
  }
  memcpy(made->first, first, (size_t)rank * sizeof *first);
  return 1;
}
// `first` has the place in all dimensions; of an image, offsets of the inner ones follow. `blocks` has a
// bit for each block of the cluster that gets the copy, at its own addresses.
void emulator_bulk_copy(void *to, void *at, const void *map, int32_t rank, const int32_t *first,
                        int32_t is_image, int32_t blocks) {
  bulk_copy made = {.shared = to, .at = at};
  if (!is_possible(&made, map, rank, first, copies)) return;
  if (is_image != made.map.is_image) {
    emulator_fail("a bulk copy of another kind than its map");
    return;
  }
  if (is_image)
    for (int i = 1; i <= rank - 2; i++) {
      const int most = rank == 3 ? 65535 : rank == 4 ? 255 : 31;
      made.offsets[i] = first[rank + i - 1];
      if (made.offsets[i] < 0 || made.offsets[i] > most) emulator_fail("an offset of too many pixels");
      if (first[i] < made.map.lower[i] || first[i] > made.map.upper[i])
        emulator_fail("a window that begins at no row's first pixel");
    }
  if (blocks >> emulator_cluster()) emulator_fail("a copy to blocks beyond the cluster");
  if (!blocks) blocks = 1 << (emulator_rank() - first_rank());
  for (int i = 0; i < emulator_cluster(); i++) {
    if (!(blocks >> i & 1)) continue;
    made.rank = first_rank() + i;
    if (emulator_backwards)
      deliver(&made);
    else if (copies < MAX_COPIES)
      waiting[copies++] = made;
  }
}
void emulator_bulk_store(void *from, const void *map, int32_t rank, const int32_t *first) {
  const int thread = emulator_thread;
  bulk_copy made = {.shared = from, .thread = thread, .group = committed[thread]};
  made.rank = emulator_rank();
  if (!is_possible(&made, map, rank, first, leaving_count)) return;
  int lines = 1;
  for (int i = 1; i < rank; i++) lines *= made.map.box[i];
  if (!are_seen(from, lines * LINE))
    emulator_fail("a bulk copy of what a thread wrote and did not show to the engine by a fence");
  if (emulator_backwards)
    deliver(&made);
  else
    leaving[leaving_count++] = made;
}
void emulator_bulk_commit(void) { committed[emulator_thread]++; }
void emulator_bulk_wait(int32_t pending) {
  const long done = committed[emulator_thread] - pending;
  int kept = 0;
  for (int i = 0; i < leaving_count; i++)
    if (leaving[i].thread == emulator_thread && leaving[i].group < done)
      deliver(&leaving[i]);
    else
      leaving[kept++] = leaving[i];
  leaving_count = kept;
}
int emulator_deliver_copy(int rank) {
  int i = 0;
  while (i < copies && rank >= 0 && waiting[i].rank != rank) i++;
  if (i == copies) return 0;
  const bulk_copy oldest = waiting[i];
  memmove(waiting + i, waiting + i + 1, (size_t)(--copies - i) * sizeof *waiting);
  return deliver(&oldest), 1;
}

// Products of a warpgroup: D (64 x columns) += A (64 x 32 bytes) B, both from shared memory.

typedef struct {
  uint64_t left, right, digest;
  int columns, kind, transposed, from_registers;  // the left operand
} product;
typedef struct {
  meeting place;
  long decoded;
  float left[64][32], right[32][4][64];  // by row; by k, which threads have a column, and which of theirs
  product asked[MAX_PRODUCTS];
  int count, ends[MAX_PRODUCTS], groups;
  long committed, done;  // groups of products so far
} warpgroup;
static warpgroup groups_of_warps[MAX_THREADS / WARPGROUP];
static uint64_t shown[MAX_THREADS][2];

// Sums that a thread has asked for and may not read yet. Until it waits for them, its registers hold NaNs
// that say which they are.
enum { LATE = 4096, LATE_NAN = 0x7fe00000 };
typedef struct {
  float value;
  long group;
} late_sum;
static late_sum late_sums[MAX_THREADS][LATE];
static uint32_t late_counts[MAX_THREADS];

static const late_sum *late_of(uint32_t bits) {
  return (bits & ~(LATE - 1u)) == LATE_NAN ? &late_sums[emulator_thread][bits % LATE] : NULL;
}
static uint32_t late(float value, long group) {
  const uint32_t number = late_counts[emulator_thread]++ % LATE;
  late_sums[emulator_thread][number] = (late_sum){value, group};
  return LATE_NAN | number;
}
void emulator_receive_products(uint32_t *sums, int32_t count) {
  for (int i = 0; i < count; i++) {
    const late_sum *found = late_of(sums[i]);
    if (found && found->group < groups_of_warps[emulator_thread / WARPGROUP].done)
      memcpy(&sums[i], &found->value, sizeof found->value);
  }
}

void emulator_reset_bulk(void) {
  copies = leaving_count = 0;
  memset(committed, 0, sizeof committed);
  for (int i = 0; i < MAX_THREADS; i++) fences[i]++;
  for (int i = 0; i < MAX_THREADS / WARPGROUP; i++) {
    groups_of_warps[i].place = (meeting){0};
    groups_of_warps[i].decoded = -1;
    groups_of_warps[i].count = groups_of_warps[i].groups = 0;
    groups_of_warps[i].committed = groups_of_warps[i].done = 0;
  }
}

// 0 of f16, 1 of bf16, 2 of tf32, 3 of s8, 4 of e4m3, 5 of e5m2.
static const int bytes_of_kind[] = {2, 2, 4, 1, 1, 1, 1, 1};

static float element(const char *at, int kind) {
  uint32_t bits = 0;
  float value;
  memcpy(&bits, at, (size_t)bytes_of_kind[kind]);
  if (kind == 3) return (float)(int8_t)bits;
  if (kind > 3) return emulator_float8((uint8_t)bits, 7 - kind);
  if (kind == 0) {
    _Float16 half;
    memcpy(&half, &bits, 2);
    return (float)half;
  }
  bits = kind == 1 ? bits << 16 : bits & 0xffffe000u;
  memcpy(&value, &bits, 4);
  return value;
}

// Where element `k` of line `line` lies: lines run along k, eight to an atom, atoms a stride apart; or
// (transposed) along the lines, 128 bytes of them for each place of k.
static const char *place_of(uint64_t descriptor, int line, int k, int kind, int transposed) {
  char *shared = emulator_shared();
  const uint32_t low = (uint32_t)((uintptr_t)shared & (SHARED_WINDOW - 1));
  const uint32_t start = (uint32_t)(descriptor & 0x3fff) << 4;
  const uint32_t leading = (uint32_t)(descriptor >> 16 & 0x3fff) << 4;
  const uint32_t stride = (uint32_t)(descriptor >> 32 & 0x3fff) << 4;
  const int size = bytes_of_kind[kind];
  uint32_t at;
  if (transposed) {
    const int held = LINE / size;
    at = (uint32_t)(line / held) * leading + (uint32_t)(k / 8) * stride +
         (uint32_t)(k % 8 * LINE + line % held * size);
  } else {
    at = (uint32_t)(line / 8) * stride + (uint32_t)(line % 8 * LINE + k * size);
  }
  char *address = shared + ((start - low) & (SHARED_WINDOW - 1)) + at;
  return (const char *)swizzled((uintptr_t)address);
}

// Runs of 16 bytes stay together in the swizzle.
enum { RUN = 16 };

// The operands as numbers, unless `group` is NULL; returns a digest of their bytes.
static uint64_t read_operands(const product *of, warpgroup *group) {
  const int size = bytes_of_kind[of->kind], held = RUN / size, depth = 32 / size;
  uint64_t digest = 14695981039346656037u;
  for (int right = of->from_registers; right < 2; right++) {
    const int lines = right ? of->columns : 64, transposed = of->transposed >> right & 1;
    const int kind = emulator_operand(of->kind, right);
    const int line_step = transposed ? held : 1, k_step = transposed ? 1 : held;
    for (int line = 0; line < lines; line += line_step)
      for (int k = 0; k < depth; k += k_step) {
        const char *run = place_of(right ? of->right : of->left, line, k, of->kind, transposed);
        uint64_t words[RUN / 8];
        memcpy(words, run, RUN);
        for (int i = 0; i < RUN / 8; i++) {
          digest = (digest ^ words[i]) * 1099511628211u;
          digest ^= digest >> 32;
        }
        for (int i = 0; group && i < held; i++) {
          const float value = element(run + i * size, kind);
          const int l = line + (transposed ? i : 0), at = k + (transposed ? 0 : i);
          if (right)
            group->right[at][l % 8 / 2][l / 8 * 2 + l % 2] = value;
          else
            group->left[l][at] = value;
        }
      }
  }
  return digest;
}

// Columns that are summed in registers.
enum { COLUMNS = 16 };

// `sums` are this thread's: of rows r and r + 8, two columns of every 8; the left operand's four registers,
// if it lies in them: of both rows, two places of k, then those 8 further. With `comes_late`, sums can be
// read after emulator_receive_products.
static void multiply_group(uint32_t *sums, uint64_t left, const uint32_t *registers, uint64_t right,
                           int32_t columns, int32_t kind, int32_t transposed, int32_t comes_late) {
  const int thread = emulator_thread, number = thread / WARPGROUP, lane = thread % WARP;
  const int row = thread % WARPGROUP / WARP * 16 + lane / 4;
  warpgroup *group = &groups_of_warps[number];
  shown[thread][0] = left, shown[thread][1] = right;
  for (int i = 0; registers && i < 8; i++)
    group->left[row + 8 * (i / 2 % 2)][2 * (lane % 4) + i % 2 + 8 * (i / 4)] =
        element((const char *)registers + 2 * i, kind);
  emulator_meet(&group->place, WARPGROUP);
  if (group->decoded != group->place.generation) {
    group->decoded = group->place.generation;
    for (int i = number * WARPGROUP; i < (number + 1) * WARPGROUP; i++)
      if (shown[i][0] != left || shown[i][1] != right)
        emulator_fail("threads of a warpgroup multiply different operands");
    if ((!registers && (left >> 62 != 1 || left >> 49 & 7)) || right >> 62 != 1 || (right >> 49 & 7))
      emulator_fail("an operand of a warpgroup that is not swizzled by 128 bytes, or has an offset");
    if (group->count == MAX_PRODUCTS) {
      emulator_fail("a warpgroup asks for more products than it ever waits for");
      return;
    }
    product *asked = &group->asked[group->count++];
    *asked = (product){left, right, 0, columns, kind, transposed, registers != NULL};
    asked->digest = read_operands(asked, group);
  }
  const int depth = 32 / bytes_of_kind[kind];
  double products[2][64];
  for (int first = 0; first < columns / 4; first += COLUMNS) {
    double upper[COLUMNS] = {0}, lower[COLUMNS] = {0};
    for (int k = 0; k < depth; k++) {
      const double a = group->left[row][k], b = group->left[row + 8][k];
      const float *factors = group->right[k][lane % 4] + first;
      for (int i = 0; i < COLUMNS; i++) upper[i] += a * factors[i];
      for (int i = 0; i < COLUMNS; i++) lower[i] += b * factors[i];
    }
    memcpy(products[0] + first, upper, sizeof upper);
    memcpy(products[1] + first, lower, sizeof lower);
  }
  for (int tile = 0; tile < columns / 8; tile++)
    for (int i = 0; i < 4; i++) {
      uint32_t *out = &sums[4 * tile + i];
      const double sum = products[i / 2][2 * tile + i % 2];
      if (kind == 3) {
        *out += (uint32_t)(int32_t)sum;
        continue;
      }
      const late_sum *before = late_of(*out);
      float total;
      memcpy(&total, before ? (const void *)&before->value : out, 4);
      total = (float)(total + sum);
      memcpy(out, &total, 4);
      if (comes_late) *out = late(total, group->committed);
    }
  emulator_meet(&group->place, WARPGROUP);
}
void emulator_multiply_group(uint32_t *sums, uint64_t left, uint64_t right, int32_t columns,
                             int32_t kind, int32_t transposed, int32_t comes_late) {
  multiply_group(sums, left, NULL, right, columns, kind, transposed, comes_late);
}
void emulator_multiply_registers(uint32_t *sums, const uint32_t *left, uint64_t right, int32_t columns,
                                 int32_t kind, int32_t transposed, int32_t comes_late) {
  multiply_group(sums, 0, left, right, columns, kind, transposed, comes_late);
}

void emulator_commit_products(void) {
  warpgroup *group = &groups_of_warps[emulator_thread / WARPGROUP];
  emulator_meet(&group->place, WARPGROUP);
  if (emulator_thread % WARPGROUP == 0 && group->groups < MAX_PRODUCTS) {
    group->ends[group->groups++] = group->count;
    group->committed++;
  }
  emulator_meet(&group->place, WARPGROUP);
}

void emulator_wait_products(int64_t left) {
  warpgroup *group = &groups_of_warps[emulator_thread / WARPGROUP];
  emulator_meet(&group->place, WARPGROUP);
  const int done = group->groups - (int)left;
  if (emulator_thread % WARPGROUP == 0 && done > 0) {
    const int end = group->ends[done - 1];
    for (int i = 0; i < end; i++)
      if (read_operands(&group->asked[i], NULL) != group->asked[i].digest)
        emulator_fail("shared memory changed while a warpgroup multiplied it");
    group->count -= end, group->groups -= done, group->done += done;
    memmove(group->asked, group->asked + end, (size_t)group->count * sizeof *group->asked);
    for (int i = 0; i < group->groups; i++) group->ends[i] = group->ends[i + done] - end;
  }
  emulator_meet(&group->place, WARPGROUP);
}

void emulator_check_products(void) {
  for (int i = 0; i < MAX_THREADS / WARPGROUP; i++)
    if (groups_of_warps[i].count) emulator_fail("a warpgroup does not wait for its products");
  if (copies) emulator_fail("a block ends before its bulk copies arrive");
  if (leaving_count) emulator_fail("a block ends before its bulk copies have read shared memory");
}
