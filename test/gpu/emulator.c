// A stand-in for the CUDA driver that runs kernels on the CPU: the LLVM IR that becomes PTX, compiled
// for this machine (emulator.py), one fiber a GPU thread, blocks one after another, and
// those of a cluster together, as are those that wait for each other's flags.
//
// Memory starts as 0xff bytes (NaNs), device memory and each block's shared memory alike, so that
// what was never written shows. Threads that wait for others which never come are reported.
#include "emulator.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>

enum { MAX_KERNELS = 4096, MAX_SHARED = 64, STACK = 128 << 10 };
enum { NO_BINARY = 209, NOT_FOUND = 500, LAUNCH_FAILED = 719, OUT_OF_MEMORY = 2, NOT_READY = 600 };
enum { CAPTURE_UNSUPPORTED = 900, EVENT_IN_GRAPH = 1, CLUSTER_DIMENSION = 4, PROGRAMMATIC_SERIALIZATION = 6, DYNAMIC_SHARED_BYTES = 8, BEYOND = 0x5a };

typedef void (*kernel_function)(void **parameters);

typedef struct {
  char name[128];
  kernel_function function;
  int fibers;  // whether its threads wait for each other
  int parameters, maps;  // pointers, then tensor maps by value
  int cluster;           // blocks that run together
  int waits_for_blocks;  // by flags in global memory
  char *dynamic;         // shared memory that launches ask for
  size_t most_dynamic, allowed_dynamic;
  struct {
    void *address;
    size_t bytes;
  } shared[MAX_SHARED];
  int shared_count;
} kernel;

static kernel kernels[MAX_KERNELS];
static int kernel_count;

// Read by the kernels themselves.
int32_t emulator_tid, emulator_ctaid, emulator_ntid, emulator_nctaid;

int32_t emulator_thread;

static char message[256];
static int failure;
static long launches, copies, graph_launches;
static int capability[2] = {9, 0}, driver_version = 13000, device_count = 1, broken_launches;
int emulator_backwards;
static int no_graphs, no_pinned, multiprocessors = 4, pairs = 2;
static long pinned_blocks, pinned_copies;

void emulator_reset(void) {
  kernel_count = 0;
  launches = copies = graph_launches = pinned_copies = 0;
  message[0] = 0;
}
void emulator_configure(int major, int minor, int version, int devices, int failing, int backwards,
                        int graphs, int pinned, int multiprocessor_count, int pair_count) {
  multiprocessors = multiprocessor_count, pairs = pair_count;
  capability[0] = major, capability[1] = minor, no_graphs = !graphs, no_pinned = !pinned;
  driver_version = version, device_count = devices, broken_launches = failing, emulator_backwards = backwards;
}
const char *emulator_message(void) { return message; }
long emulator_launches(void) { return launches; }
long emulator_copies(void) { return copies; }
long emulator_graph_launches(void) { return graph_launches; }
long emulator_pinned_blocks(void) { return pinned_blocks; }
long emulator_pinned_copies(void) { return pinned_copies; }

int emulator_register(const char *name, kernel_function function, int fibers, int count, int maps,
                      int cluster, int waits_for_blocks) {
  if (kernel_count == MAX_KERNELS || cluster > MAX_CLUSTER) return -1;
  kernel *entry = &kernels[kernel_count];
  *entry = (kernel){.function = function, .fibers = fibers, .parameters = count, .maps = maps};
  entry->cluster = cluster, entry->waits_for_blocks = waits_for_blocks;
  snprintf(entry->name, sizeof entry->name, "%s", name);
  return kernel_count++;
}
void emulator_share(int number, void *address, size_t bytes) {
  kernel *entry = &kernels[number];
  entry->shared[entry->shared_count].address = address;
  entry->shared[entry->shared_count++].bytes = bytes;
}
void emulator_share_dynamic(int number, void *address, size_t most) {
  kernels[number].dynamic = address, kernels[number].most_dynamic = most;
}

// Fibers: started by ucontext, switched by setjmp, which makes no system calls. Each runs a thread of
// one block after another; one that was left within a block that failed is not gone on with.

static ucontext_t start_context, scheduler_context;
static jmp_buf scheduler, fibers[MAX_THREADS];
static char *stacks[MAX_THREADS];
static int state[MAX_THREADS];  // 0 new, 1 running, 2 done
static int is_idle[MAX_THREADS];  // whether there is a fiber that has come to the end of a kernel
static struct {
  const long *generation;  // of the meeting that a thread waits at
  long reached;
  char *barrier;  // in shared memory, whose phase it waits for the end of
  int phase;
} waits[MAX_THREADS];
static long progress;
static kernel *current;
static void **parameters;

static void enter(void) {
  for (;;) {
    current->function(parameters);
    state[emulator_thread] = 2;
    is_idle[emulator_thread] = 1;
    progress++;
    emulator_pause();
  }
}

static int first_block;
static int together;
int emulator_cluster(void) { return current->cluster; }
int emulator_together(void) { return together; }
int emulator_rank(void) { return emulator_thread / emulator_ntid; }
static void set_thread(int thread) {
  emulator_thread = thread, emulator_tid = thread % emulator_ntid;
  emulator_ctaid = first_block + thread / emulator_ntid;
}

static void resume(int thread) {
  set_thread(thread);
  if (_setjmp(scheduler)) return;
  const int exists = state[thread] == 1 || is_idle[thread];
  state[thread] = 1, is_idle[thread] = 0;
  if (exists) _longjmp(fibers[thread], 1);
  if (!stacks[thread]) stacks[thread] = malloc(STACK);
  getcontext(&start_context);
  start_context.uc_stack.ss_sp = stacks[thread];
  start_context.uc_stack.ss_size = STACK;
  start_context.uc_link = 0;
  makecontext(&start_context, enter, 0);
  swapcontext(&scheduler_context, &start_context);
}

void emulator_pause(void) {
  if (!_setjmp(fibers[emulator_thread])) _longjmp(scheduler, 1);
}

void emulator_give_way(void) {
  progress++;
  emulator_pause();
}

static meeting cluster_meetings[MAX_TOGETHER], block_meetings[MAX_TOGETHER][16], warp_meetings[MAX_THREADS / WARP];

void emulator_moved(void) { progress++; }

void emulator_meet(meeting *place, int size) {
  const long generation = place->generation;
  progress++;
  if (++place->waiting == size) {
    place->waiting = 0;
    place->generation++;
    return;
  }
  waits[emulator_thread].generation = &place->generation, waits[emulator_thread].reached = generation;
  while (place->generation == generation) emulator_pause();
  waits[emulator_thread].generation = NULL;
}
void emulator_pause_for_phase(void *barrier, int phase) {
  waits[emulator_thread].barrier = barrier, waits[emulator_thread].phase = phase;
  emulator_pause();
  waits[emulator_thread].barrier = NULL;
}

void emulator_fail(const char *sentence) {
  failure = 1;
  snprintf(message, sizeof message, "%s", sentence);
}

void emulator_barrier(int32_t number) {
  if (number < 0 || number > 15) {
    emulator_fail("a barrier beyond the 16 that there are");
    number = 0;
  }
  emulator_meet(&block_meetings[emulator_rank()][number], emulator_ntid);
}

void emulator_barrier_some(int32_t number, int32_t threads) {
  if (number < 0 || number > 15 || threads % WARP) {
    emulator_fail("a barrier beyond the 16 that there are, or for no whole warps");
    return;
  }
  emulator_meet(&block_meetings[emulator_rank()][number], threads);
}

void emulator_barrier_pass(int32_t number, int32_t threads) {
  meeting *place = &block_meetings[emulator_rank()][number & 15];
  if (number < 0 || number > 15 || threads % WARP) {
    emulator_fail("a barrier beyond the 16 that there are, or for no whole warps");
    return;
  }
  progress++;
  if (++place->waiting == threads) place->waiting = 0, place->generation++;
}

void emulator_barrier_cluster(void) {
  emulator_meet(&cluster_meetings[emulator_rank() / current->cluster], emulator_ntid * current->cluster);
}

static uint32_t exchanged[MAX_THREADS];

static int warp_size(void) {
  const int rest = emulator_ntid - emulator_tid / WARP * WARP;
  return rest < WARP ? rest : WARP;
}

void emulator_meet_warp(void) { emulator_meet(&warp_meetings[emulator_thread / WARP], warp_size()); }

int32_t emulator_shuffle_xor(int32_t mask, int32_t value, int32_t offset, int32_t clamp) {
  (void)clamp;
  const int thread = emulator_thread, warp = thread / WARP, source = thread ^ offset;
  if (mask != -1) emulator_fail("a shuffle among some threads of a warp");
  exchanged[thread] = (uint32_t)value;
  emulator_meet(&warp_meetings[warp], warp_size());
  const int32_t result = source < emulator_ntid * together ? (int32_t)exchanged[source] : value;
  emulator_meet(&warp_meetings[warp], warp_size());
  return result;
}
int32_t emulator_shuffle_index(int32_t mask, int32_t value, int32_t index, int32_t clamp) {
  (void)clamp;
  const int thread = emulator_thread, warp = thread / WARP;
  if (mask != -1) emulator_fail("a shuffle among some threads of a warp");
  exchanged[thread] = (uint32_t)value;
  emulator_meet(&warp_meetings[warp], warp_size());
  const int32_t result = (int32_t)exchanged[warp * WARP + index % WARP];
  emulator_meet(&warp_meetings[warp], warp_size());
  return result;
}
_Bool emulator_any(int32_t mask, _Bool condition) {
  const int first = emulator_thread / WARP * WARP;
  if (mask != -1) emulator_fail("a vote among some threads of a warp");
  exchanged[emulator_thread] = condition;
  emulator_meet_warp();
  _Bool result = 0;
  for (int i = 0; i < warp_size(); i++) result |= exchanged[first + i] != 0;
  emulator_meet_warp();
  return result;
}
float emulator_shuffle_xor_float(int32_t mask, float value, int32_t offset, int32_t clamp) {
  int32_t bits;
  memcpy(&bits, &value, 4);
  bits = emulator_shuffle_xor(mask, bits, offset, clamp);
  memcpy(&value, &bits, 4);
  return value;
}

// Flags in global memory. Who raises one lets other blocks run before the other threads of its own, so
// that these have to be done with what it stands for.
enum { MAX_FLAGS = 1024 };
static int32_t *raised[MAX_FLAGS];
static int raised_count, leaves_block;
void emulator_raise_flag(int32_t *flag) {
  if (*flag) emulator_fail("a flag is raised that is up");
  if (raised_count == MAX_FLAGS) emulator_fail("more flags are raised than the emulator knows");
  if (failure) return;
  raised[raised_count++] = flag;
  *flag = 1, leaves_block = 1;
  progress++;
  emulator_pause();
}
void emulator_lower_flag(int32_t *flag) { *flag = 0; }
int32_t emulator_flag(const int32_t *flag) {
  if (!*flag) emulator_pause();
  return *flag;
}
static int check_flags(void) {
  for (int i = 0; i < raised_count; i++)
    if (*raised[i]) emulator_fail("a flag is up after the launch");
  raised_count = 0;
  return failure;
}

// Kernels have their shared memory at one address: that of blocks which run together with the one that
// does at the moment is kept aside.
static size_t dynamic_bytes;  // of this launch
static char *aside[MAX_TOGETHER];
static int shown;  // the block whose shared memory is in place
char *emulator_shared(void) { return current->dynamic; }

static void show(int rank) {
  if (rank == shown) return;
  memcpy(aside[shown], current->dynamic, dynamic_bytes);
  memcpy(current->dynamic, aside[rank], dynamic_bytes);
  shown = rank;
}
static char *lies_at(char *address, int rank) {
  return rank == shown ? address : aside[rank] + (address - current->dynamic);
}
void *emulator_of_block(void *address, int rank) {
  if (rank < 0 || rank >= together) {
    emulator_fail("there is no such block in the cluster");
    return address;
  }
  int left = 0;
  for (int i = rank * emulator_ntid; i < (rank + 1) * emulator_ntid; i++) left |= state[i] != 2;
  if (!left) emulator_fail("a block uses the shared memory of one that has ended");
  return lies_at(address, rank);
}

// Whether a thread waits for what has not come: it would only pause again.
static int cannot_go_on(int thread) {
  if (waits[thread].generation) return *waits[thread].generation == waits[thread].reached;
  char *barrier = waits[thread].barrier;
  return barrier && emulator_is_in_phase(lies_at(barrier, thread / emulator_ntid), waits[thread].phase);
}

// Where a block's memory lies at first.
static char *place_of_block(int rank) { return rank ? aside[rank] : current->dynamic; }

// Before a launch: what lies beyond the memory that it asks for is the same of all blocks.
static void mark_beyond(void) {
  for (int rank = 0; current->dynamic && rank < together; rank++) {
    if (together > 1 && !aside[rank]) aside[rank] = aligned_alloc(1024, 256 << 10);
    memset(place_of_block(rank) + dynamic_bytes, BEYOND, current->most_dynamic - dynamic_bytes);
  }
}
static int is_marked(const char *memory) {
  const size_t bytes = current->most_dynamic - dynamic_bytes;
  const char *first = memory + dynamic_bytes;
  return !bytes || (*first == BEYOND && !memcmp(first, first + 1, bytes - 1));
}

static void clear_shared(void) {
  for (int rank = 0; current->dynamic && rank < together; rank++)
    memset(place_of_block(rank), 0xff, dynamic_bytes);
  shown = 0;
  for (int i = 0; i < current->shared_count; i++)
    memset(current->shared[i].address, 0xff, current->shared[i].bytes);
}

static int finish_blocks(void) {
  emulator_check_products();
  for (int rank = 0; current->dynamic && rank < together && !failure; rank++)
    if (!is_marked(place_of_block(rank)))
      emulator_fail("a write beyond the shared memory that the launch asked for");
  return failure;
}

// Let each thread of a warp run until it waits; returns how many have not ended.
static int run_warp(int warp) {
  int left = 0;
  for (int i = 0; i < WARP && !failure && !leaves_block; i++) {
    const int thread = warp * WARP + (emulator_backwards ? WARP - 1 - i : i);
    if (thread >= emulator_ntid * together || state[thread] == 2) continue;
    left++;
    if (cannot_go_on(thread)) continue;
    if (together > 1) show(thread / emulator_ntid);
    resume(thread);
  }
  return left;
}

float emulator_power_of_two(float x) {
  float power = exp2f(x);
  return power < FLT_MIN ? 0 : power;
}

float emulator_log_two(float x) { return log2f(x); }
float emulator_inverse_root(float x) { return 1 / sqrtf(x); }
// By way of the inverse, as the instruction: within 2 ulp. What would overflow or vanish is scaled.
float emulator_quotient(float x, float y) {
  const float size = fabsf(y);
  const float scale = size > 0x1p126f ? 0x1p-2f : size < 0x1p-100f ? 0x1p24f : 1;
  return x * scale * (1 / (y * scale));
}

// As inexact as the instruction may be: 11 bits.
float emulator_tanh(float x) {
  const float exact = tanhf(x);
  uint32_t bits;
  memcpy(&bits, &exact, sizeof bits);
  if (exact == exact) bits &= ~0xfffu;
  float cut;
  memcpy(&cut, &bits, sizeof cut);
  return cut;
}

// Let each warp of a number of them run as far as it comes without the others; returns how many threads
// have not ended.
static int run_warps(int first, int count) {
  int left = 0;
  for (int i = 0; i < count && !leaves_block; i++) {
    const int warp = first + (emulator_backwards ? count - 1 - i : i);
    long reached;
    int waiting;
    do {
      reached = progress;
      waiting = run_warp(warp);
      if (failure) return 0;
    } while (progress != reached && !leaves_block);
    left += waiting;
  }
  return left;
}

// Let the blocks that wait for each other's flags run, each as far as it comes without the others: the
// last ones first, or (backwards) the first ones, but behind all others the one that has just raised a
// flag. Returns how many threads have not ended.
static int run_waiting_blocks(void) {
  static int raising;
  const int warps = emulator_ntid / WARP, last = leaves_block ? raising : -1;
  int left = 0;
  leaves_block = 0;
  for (int i = 0; i <= together; i++) {
    const int rank = i == together ? last : emulator_backwards ? i : together - 1 - i;
    if (rank < 0 || (rank == last && i < together)) continue;
    long reached;
    int waiting;
    do {
      reached = progress;
      waiting = run_warps(rank * warps, warps);
      if (failure) return 0;
      if (leaves_block) return raising = rank, 1;
    } while (progress != reached);
    left += waiting;
  }
  return left;
}

static int deliver_copy(void) {
  if (!current->waits_for_blocks) return emulator_deliver_copy(-1);
  for (int i = 0; i < together; i++)
    if (emulator_deliver_copy(emulator_backwards ? i : together - 1 - i)) return 1;
  return 0;
}

// One block, or all of a cluster, or all that wait for each other.
static int run_blocks(void) {
  const int threads = emulator_ntid * together, warps = (threads + WARP - 1) / WARP;
  if (together > MAX_TOGETHER || threads > MAX_THREADS ||
      (together > 1 && (emulator_ntid % WARP || current->shared_count))) {
    emulator_fail("blocks that wait for each other, and which the emulator cannot run");
    return failure;
  }
  clear_shared();
  if (!current->fibers) {
    for (int i = 0; i < threads; i++) {
      set_thread(emulator_backwards ? threads - 1 - i : i);
      current->function(parameters);
    }
    return 0;
  }
  memset(state, 0, sizeof state);
  memset(waits, 0, sizeof waits);
  memset(block_meetings, 0, sizeof block_meetings);
  memset(cluster_meetings, 0, sizeof cluster_meetings);
  memset(warp_meetings, 0, sizeof warp_meetings);
  emulator_reset_copies(threads);
  emulator_reset_bulk();
  leaves_block = 0;
  for (;;) {
    const long before = progress;
    const int left = current->waits_for_blocks ? run_waiting_blocks() : run_warps(0, warps);
    if (failure) return failure;
    if (!left) return finish_blocks() || check_flags();
    if (progress == before && !deliver_copy()) {
      snprintf(message, sizeof message, "deadlock: %d threads of block %d of %s wait for ever",
               left, first_block, current->name);
      return 1;
    }
  }
}

// The driver

int cuInit(unsigned flags) { return (int)flags; }
int cuDriverGetVersion(int *version) { return *version = driver_version, 0; }
int cuDeviceGetCount(int *count) { return *count = device_count, 0; }
int cuDeviceGet(int *device, int number) { return *device = number, 0; }
int cuDeviceGetName(char *name, int size, int device) {
  (void)device;
  snprintf(name, (size_t)size, "emulated GPU");
  return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  (void)device;
  const int clock = 1000000;  // 13: in kHz
  *value = attribute == 75   ? capability[0]
           : attribute == 76 ? capability[1]
           : attribute == 13 ? clock
                             : multiprocessors;
  return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
  (void)device;
  *context = &capability;
  return 0;
}
int cuCtxSetCurrent(void *context) { return context ? 0 : 1; }
int cuStreamSynchronize(void *stream);
int cuCtxSynchronize(void) { return cuStreamSynchronize(&launches); }
int cuGetErrorName(int error, const char **name) {
  *name = error == LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR";
  return 0;
}
int cuGetErrorString(int error, const char **text) {
  (void)error;
  *text = message[0] ? message : "emulated failure";
  return 0;
}
int cuModuleLoadData(void **module, const void *image) {
  *module = (void *)image;
  // From CUDA 13 on, cubins say 0x41 where an ELF file has its system, and older drivers reject them.
  const int is_newer = !memcmp(image, "\177ELF", 4) && ((const char *)image)[7] == 0x41;
  if (is_newer && driver_version < 13000) return NO_BINARY;
  const int is_code = !memcmp(image, "\177ELF", 4) || strstr((const char *)image, ".version");
  return is_code ? 0 : 200;
}
int cuModuleUnload(void *module) { return module ? 0 : 1; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
  (void)module;
  for (int i = kernel_count - 1; i >= 0; i--)
    if (!strcmp(kernels[i].name, name)) return *function = &kernels[i], 0;
  return NOT_FOUND;
}
int cuFuncSetAttribute(kernel *function, int attribute, int value) {
  if (attribute != DYNAMIC_SHARED_BYTES || value < 0 || (size_t)value > function->most_dynamic) return 1;
  return function->allowed_dynamic = (size_t)value, 0;
}
int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  void *memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (!memory) return OUT_OF_MEMORY;
  memset(memory, 0xff, bytes);
  *address = (uint64_t)(uintptr_t)memory;
  return 0;
}
static void read_pinned(void);
int cuMemFree_v2(uint64_t address) {
  read_pinned();  // drivers wait for the work there is
  return free((void *)(uintptr_t)address), 0;
}

// Page-locked memory of the host, with a header in front.
typedef struct pinned {
  struct pinned *next;
  size_t bytes;
  unsigned char memory[];
} pinned;
static pinned *all_pinned;

int cuMemHostAlloc(void **address, size_t bytes, unsigned flags) {
  (void)flags;
  if (no_pinned) return OUT_OF_MEMORY;
  pinned *made = malloc(sizeof *made + bytes);
  *made = (pinned){.next = all_pinned, .bytes = bytes};
  all_pinned = made, pinned_blocks++;
  return *address = memset(made->memory, 0xff, bytes), 0;
}
int cuMemFreeHost(void *address) {
  read_pinned();
  for (pinned **place = &all_pinned; *place; place = &(*place)->next)
    if ((*place)->memory == address) {
      pinned *freed = *place;
      *place = freed->next, pinned_blocks--;
      return free(freed), 0;
    }
  return 1;
}
static int is_pinned(const void *address, size_t bytes) {
  const unsigned char *begin = address;
  for (const pinned *p = all_pinned; p; p = p->next)
    if (begin >= p->memory && begin + bytes <= p->memory + p->bytes) return 1;
  return 0;
}

// What a stream is asked to do is done at once, but copies to the host arrive when somebody waits for
// them, and page-locked memory is read when the stream has something else to do or somebody waits.
// While a stream is captured, it is noted down instead.
typedef struct step {
  struct step *next;
  kernel *launched;
  unsigned blocks, threads, shared;
  uint64_t target, source;  // of a copy
  size_t bytes;
  double *event;
  _Alignas(128) uint64_t values[];  // of the maps, of the other parameters, then pointers to them
} step;
typedef struct {
  step *first, **last;
} work;
static work capturing, arriving, leaving;
static int captured;

static step *add_step(work *list, size_t extra) {
  const size_t bytes = (sizeof(step) + extra + 127) / 128 * 128;
  step *made = memset(aligned_alloc(128, bytes), 0, bytes);
  if (!list->first) list->last = &list->first;
  *list->last = made;
  list->last = &made->next;
  return made;
}
static void forget(work *list) {
  while (list->first) {
    step *done = list->first;
    list->first = done->next;
    free(done);
  }
}
static void *at(uint64_t address) { return (void *)(uintptr_t)address; }
static void read_pinned(void) {
  for (step *copy = leaving.first; copy; copy = copy->next)
    memcpy(at(copy->target), at(copy->source), copy->bytes);
  forget(&leaving);
}

int cuMemcpyHtoDAsync_v2(uint64_t target, const void *source, size_t bytes, void *stream) {
  (void)stream, copies++;
  if (captured) return CAPTURE_UNSUPPORTED;
  if (!is_pinned(source, bytes)) {
    read_pinned();
    return memcpy(at(target), source, bytes), 0;
  }
  pinned_copies++;
  step *copy = add_step(&leaving, 0);
  copy->target = target, copy->source = (uint64_t)(uintptr_t)source, copy->bytes = bytes;
  return 0;
}
int cuMemcpyDtoHAsync_v2(void *target, uint64_t source, size_t bytes, void *stream) {
  (void)stream, copies++;
  if (captured) return CAPTURE_UNSUPPORTED;
  read_pinned();
  pinned_copies += is_pinned(target, bytes);
  step *copy = add_step(&arriving, bytes);
  copy->target = (uint64_t)(uintptr_t)target, copy->bytes = bytes;
  return memcpy(copy->values, at(source), bytes), 0;
}
int cuMemcpyDtoDAsync_v2(uint64_t target, uint64_t source, size_t bytes, void *stream) {
  (void)stream;
  if (!captured) {
    read_pinned();
    return memmove(at(target), at(source), bytes), 0;
  }
  step *copy = add_step(&capturing, 0);
  copy->target = target, copy->source = source, copy->bytes = bytes;
  return 0;
}
// CUDA_MEMCPY2D; kind 1 is memory of the host.
typedef struct {
  size_t first_byte, first_row;
  int kind;
  const void *host;
  uint64_t device;
  void *array;
  size_t pitch;
} rows_end;
typedef struct {
  rows_end source, target;
  size_t row_bytes, rows;
} rows_copy;

int cuMemcpy2DAsync_v2(const rows_copy *what, void *stream) {
  const rows_end *from = &what->source, *to = &what->target;
  if (what->row_bytes > from->pitch || what->row_bytes > to->pitch) return 1;
  int code = 0;
  for (size_t row = 0; row < what->rows && !code; row++) {
    const char *source = (const char *)from->host + row * from->pitch;
    char *target = (char *)(uintptr_t)to->host + row * to->pitch;
    const uint64_t at_source = from->device + row * from->pitch, at_target = to->device + row * to->pitch;
    if (from->kind == 1)
      code = cuMemcpyHtoDAsync_v2(at_target, source, what->row_bytes, stream);
    else if (to->kind == 1)
      code = cuMemcpyDtoHAsync_v2(target, at_source, what->row_bytes, stream);
    else
      code = cuMemcpyDtoDAsync_v2(at_target, at_source, what->row_bytes, stream);
  }
  return code;
}
int cuStreamCreate(void **stream, unsigned flags) { return (void)flags, *stream = &launches, 0; }
int cuStreamSynchronize(void *stream) {
  (void)stream;
  if (captured) return CAPTURE_UNSUPPORTED;
  read_pinned();
  for (step *copy = arriving.first; copy; copy = copy->next)
    memcpy(at(copy->target), copy->values, copy->bytes);
  return forget(&arriving), 0;
}
int cuStreamDestroy_v2(void *stream) { return stream ? 0 : 1; }

// An event holds the time in milliseconds; 0 before it came.
static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return 1e3 * (double)time.tv_sec + 1e-6 * (double)time.tv_nsec;
}
int cuEventCreate(double **event, unsigned flags) {
  (void)flags;
  return (*event = calloc(1, sizeof **event)) ? 0 : OUT_OF_MEMORY;
}
int cuEventRecordWithFlags(double *event, void *stream, unsigned flags) {
  (void)stream;
  if (captured && !(flags & EVENT_IN_GRAPH)) return CAPTURE_UNSUPPORTED;
  if (captured)
    add_step(&capturing, 0)->event = event;
  else
    *event = now();
  return 0;
}
int cuEventRecord(double *event, void *stream) { return cuEventRecordWithFlags(event, stream, 0); }
int cuEventSynchronize(double *event) { return *event > 0 ? 0 : NOT_READY; }
int cuEventElapsedTime(float *milliseconds, const double *begin, const double *end) {
  if (*begin <= 0 || *end <= 0) return NOT_READY;
  return *milliseconds = (float)(*end - *begin), 0;
}
int cuEventDestroy_v2(double *event) { return free(event), 0; }

// How many blocks run at a time, of a kernel of one block a multiprocessor.
static int most_blocks(const kernel *launched) {
  return launched->cluster == 1 ? multiprocessors : 2 * pairs;
}
static int run_grid(kernel *launched, unsigned blocks, unsigned threads, unsigned shared,
                    void **arguments) {
  launches++;
  read_pinned();
  dynamic_bytes = shared;
  current = launched;
  parameters = arguments;
  failure = 0;
  emulator_ntid = (int32_t)threads, emulator_nctaid = (int32_t)blocks;
  if (blocks % (unsigned)launched->cluster) return 1;
  if (launched->waits_for_blocks && blocks > (unsigned)most_blocks(launched)) {
    emulator_fail("blocks that wait for others, and which may not all run at a time");
    return LAUNCH_FAILED;
  }
  together = launched->waits_for_blocks ? (int)blocks : launched->cluster;
  if (together <= MAX_TOGETHER) mark_beyond();
  for (unsigned i = 0; i < blocks; i += (unsigned)together) {
    first_block = (int)i;
    if (run_blocks()) return LAUNCH_FAILED;
  }
  return 0;
}
static int launch(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                  unsigned bz, unsigned shared, void **arguments, unsigned cluster) {
  if (broken_launches) return LAUNCH_FAILED;
  const kernel *launched = function;
  if (cluster != (unsigned)launched->cluster) return 1;
  if (!gx || gy != 1 || gz != 1 || !bx || bx > MAX_BLOCK_THREADS || by != 1 || bz != 1) return 1;
  if (shared > launched->allowed_dynamic) return 1;
  if (!captured) return run_grid(function, gx, bx, shared, arguments);
  const size_t count = (size_t)launched->parameters, maps = (size_t)launched->maps;
  const size_t words = count + MAP_WORDS * maps;
  step *launch =
      add_step(&capturing, words * sizeof(uint64_t) + (count + maps) * sizeof(void *));
  launch->launched = function, launch->blocks = gx, launch->threads = bx, launch->shared = shared;
  void **pointers = (void **)(launch->values + words);
  for (size_t i = 0; i < count + maps; i++) {
    const size_t at = i < count ? MAP_WORDS * maps + i : MAP_WORDS * (i - count);
    memcpy(&launch->values[at], arguments[i], (i < count ? 1 : MAP_WORDS) * sizeof(uint64_t));
    pointers[i] = &launch->values[at];
  }
  return 0;
}

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *stream, void **arguments, void **extra) {
  (void)stream, (void)extra;
  return launch(function, gx, gy, gz, bx, by, bz, shared, arguments, 1);
}
// CUlaunchConfig and CUlaunchAttribute.
typedef struct {
  int id;
  char pad[4];
  unsigned cluster[3];
  char rest[52];
} launch_attribute;
typedef struct {
  unsigned grid[3], block[3], shared;
  void *stream;
  const launch_attribute *attributes;
  unsigned count;
} launch_config;
// The blocks of a cluster; 0 where an attribute is none that is known.
static unsigned cluster_of(const launch_config *config) {
  unsigned blocks = 1;
  for (unsigned i = 0; i < config->count; i++) {
    const launch_attribute *attribute = &config->attributes[i];
    if (attribute->id == CLUSTER_DIMENSION && attribute->cluster[1] == 1 && attribute->cluster[2] == 1)
      blocks = attribute->cluster[0];
    else if (attribute->id != PROGRAMMATIC_SERIALIZATION)
      return 0;
  }
  return blocks;
}

int cuLaunchKernelEx(const launch_config *config, void *function, void **arguments, void **extra) {
  const unsigned *grid = config->grid, *block = config->block, cluster = cluster_of(config);
  (void)extra;
  if (!cluster) return 1;
  return launch(function, grid[0], grid[1], grid[2], block[0], block[1], block[2], config->shared,
                arguments, cluster);
}

int cuOccupancyMaxActiveClusters(int *count, kernel *function, const launch_config *config) {
  const unsigned cluster = cluster_of(config);
  if (cluster != (unsigned)function->cluster || function->cluster != 2) return 1;
  if (config->shared > function->allowed_dynamic) return 1;
  return *count = pairs, 0;
}

// Graphs: the steps of a captured stream, one after another.

int cuStreamBeginCapture_v2(void *stream, int mode) {
  (void)stream, (void)mode;
  if (no_graphs || captured) return CAPTURE_UNSUPPORTED;
  return captured = 1, 0;
}
int cuStreamEndCapture(void *stream, work **graph) {
  (void)stream;
  captured = 0;
  *graph = malloc(sizeof **graph);
  **graph = capturing;
  return capturing.first = NULL, 0;
}
int cuGraphDestroy(work *graph) {
  forget(graph);
  return free(graph), 0;
}
int cuGraphExecDestroy(work *graph) { return cuGraphDestroy(graph); }
int cuGraphInstantiateWithFlags(work **executable, work *graph, unsigned long long flags) {
  if (flags) return 1;
  *executable = malloc(sizeof **executable);
  **executable = *graph;
  return graph->first = NULL, 0;
}
int cuGraphLaunch(work *graph, void *stream) {
  (void)stream;
  graph_launches++;
  if (broken_launches) return LAUNCH_FAILED;
  read_pinned();
  for (step *next = graph->first; next; next = next->next) {
    if (next->event)
      *next->event = now();
    else if (!next->launched)
      memmove(at(next->target), at(next->source), next->bytes);
    else if (run_grid(next->launched, next->blocks, next->threads, next->shared,
                      (void **)(next->values + next->launched->parameters +
                                MAP_WORDS * next->launched->maps)))
      return LAUNCH_FAILED;
  }
  return 0;
}
