// See cuda_program.h.
#include "cuda_program.h"

#include <stdlib.h>
#include <string.h>

#include "cuda_library_call.h"

enum { LAUNCH, COPY, LOAD, JUMP, JUMP_UNLESS, CALL };
enum { INPUT, OUTPUT, WEIGHTS, ARENA };
enum { PLACE = 3, LAUNCH_HEADER = 9, MAP_HEADER = 6, MAP_RANKS = 5, HOST_ALIGNMENT = 64 };
enum { TILED, IM2COL };             // kinds of maps
enum { DYNAMIC_SHARED_BYTES = 8 };  // a kernel's attribute
enum { NO_INTERLEAVING, SWIZZLE_128 = 3, PROMOTE_256 = 3, FILL_ZEROS = 0 };
enum { CAPTURE_OF_THIS_THREAD = 1, RECORD_IN_GRAPH = 1 };

// Two events a launch; `milliseconds` adds up what lies between them.
typedef struct {
  void **events;
  bool *pending;
  float *milliseconds;
  int64_t *runs;
  bool in_graph;
} timing;

static const char *damaged(int64_t at) {
  return cuda_sentence("the launch program is damaged at position %lld", (long long)at);
}

// Look at the place at `at` of the code.
static const char *resolve(cuda_program *program, int64_t at) {
  if (at + PLACE > program->length) return damaged(at);
  const int64_t base = program->code[at], number = program->code[at + 1];
  const device_address offset = (device_address)program->code[at + 2];
  if (base == WEIGHTS || base == ARENA)
    program->addresses[at] = (base == WEIGHTS ? program->weights : program->arena) + offset;
  else if (number >= 0 && ((base == INPUT && number < program->input_count) ||
                           (base == OUTPUT && number < program->output_count)))
    program->moving[program->moving_count++] = at;
  else
    return damaged(at);
  return NULL;
}

// The length of the map at `at`, 0 when it is damaged.
static int64_t map_length(const cuda_program *program, int64_t at) {
  const int64_t left = program->length - at;
  if (left < MAP_HEADER) return 0;
  const int64_t rank = program->code[at + 4];
  const int64_t kind = program->code[at + 5], least = kind == IM2COL ? 3 : 1;
  const int64_t length = MAP_HEADER + (kind == IM2COL ? 5 * rank - 5 : 3 * rank - 1);
  if (kind < TILED || kind > IM2COL || rank < least || rank > MAP_RANKS || left < length) return 0;
  return length;
}

// Describe the array of map `number` where it lies now.
static const char *encode(cuda_program *program, int64_t number) {
  const int64_t at = program->map_starts[number];
  const int64_t *map = program->code + at, rank = map[4];
  const int64_t *sizes = map + MAP_HEADER, *strides = sizes + rank, *rest = strides + rank - 1;
  uint64_t extents[MAP_RANKS], distances[MAP_RANKS];
  uint32_t box[MAP_RANKS], steps[MAP_RANKS];
  int lower[MAP_RANKS], upper[MAP_RANKS];
  for (int64_t i = 0; i < rank; i++) {
    extents[i] = (uint64_t)sizes[i], steps[i] = 1;
    if (i + 1 < rank) distances[i] = (uint64_t)strides[i];
  }
  if (!cuda.cuTensorMapEncodeTiled || !cuda.cuTensorMapEncodeIm2col)
    return "the CUDA driver is too old: it lacks tensor maps";
  if (map[5] == IM2COL) {
    const int64_t inner = rank - 2;
    for (int64_t i = 0; i < inner; i++) {
      lower[i] = (int)rest[i], upper[i] = (int)rest[inner + i];
      steps[i + 1] = (uint32_t)rest[2 * inner + i];
    }
    TRY("describe an image to the GPU",
        cuda.cuTensorMapEncodeIm2col(&program->maps[number], (int)map[3], (uint32_t)rank,
                                     (void *)(uintptr_t)program->addresses[at], extents, distances,
                                     lower, upper, (uint32_t)rest[3 * inner],
                                     (uint32_t)rest[3 * inner + 1], steps, NO_INTERLEAVING,
                                     SWIZZLE_128, PROMOTE_256, FILL_ZEROS));
    return NULL;
  }
  for (int64_t i = 0; i < rank; i++) box[i] = (uint32_t)rest[i];
  TRY("describe an array to the GPU",
      cuda.cuTensorMapEncodeTiled(&program->maps[number], (int)map[3], (uint32_t)rank,
                                  (void *)(uintptr_t)program->addresses[at], extents, distances,
                                  box, steps, NO_INTERLEAVING, SWIZZLE_128, PROMOTE_256, FILL_ZEROS));
  return NULL;
}

static bool moves(const cuda_program *program, int64_t place) {
  return program->code[place] == INPUT || program->code[place] == OUTPUT;
}

// How a launch is to be made, for cuLaunchKernelEx; `attributes` has room for all.
static cuda_launch_config config_of(const cuda_program *program, const int64_t *code,
                                    cuda_launch_attribute *attributes, void *stream) {
  unsigned count = 0;
  if (code[6] > 1)
    attributes[count++] =
        (cuda_launch_attribute){CUDA_CLUSTER_DIMENSION, {.cluster = {(unsigned)code[6], 1, 1}}};
  if (program->early[code[1]])
    attributes[count++] = (cuda_launch_attribute){CUDA_PROGRAMMATIC_SERIALIZATION, {.allowed = 1}};
  return (cuda_launch_config){{(unsigned)code[2], 1, 1}, {(unsigned)code[3], 1, 1}, (unsigned)code[4],
                              stream,                    attributes,                count};
}

// Let the launch `code` make no more blocks than the GPU runs at a time, where it says how many those
// of a multiprocessor are; clusters have to be whole, and not every multiprocessor may have a place in
// one.
static const char *limit_blocks(const cuda_program *program, int64_t *code) {
  const int64_t cluster = code[6];
  int64_t most = code[5] * cuda_multiprocessors();
  if (!most) return NULL;
  if (cluster > 1) {
    int clusters = 0;
    cuda_launch_attribute attributes[CUDA_LAUNCH_ATTRIBUTES];
    const cuda_launch_config config = config_of(program, code, attributes, NULL);
    TRY("count the clusters that run at a time",
        cuda.cuOccupancyMaxActiveClusters(&clusters, program->functions[code[1]], &config));
    if (most > clusters * cluster) most = clusters * cluster;
    if (most < cluster) most = cluster;
  }
  if (most < code[2]) code[2] = most - most % cluster;
  return NULL;
}

// Check the launch at `at`, look at its places and maps, and let its kernel have shared memory.
static const char *prepare_launch(cuda_program *program, int64_t at, int64_t *next) {
  const int64_t *code = program->code + at, left = program->length - at;
  const char *problem = NULL;
  if (left < LAUNCH_HEADER || code[1] < 0 || code[1] >= program->kernel_count || code[4] < 0 ||
      code[5] < 0 || code[6] < 1 || code[2] % code[6] || code[7] < 0 || code[8] < 0 ||
      left - LAUNCH_HEADER < PLACE * code[7])
    return damaged(at);
  if (code[6] > 1 && !(cuda.cuLaunchKernelEx && cuda.cuOccupancyMaxActiveClusters))
    return "the CUDA driver is too old: it lacks clusters of blocks";
  for (int64_t i = 0; i < code[7] && !problem; i++) {
    const int64_t place = at + LAUNCH_HEADER + PLACE * i;
    problem = resolve(program, place);
    program->arguments[at + LAUNCH_HEADER + i] = &program->addresses[place];
  }
  *next = at + LAUNCH_HEADER + PLACE * code[7];
  for (int64_t i = 0; i < code[8] && !problem; i++) {
    const int64_t length = map_length(program, *next), number = program->map_count++;
    if (!length) return damaged(at);
    program->map_starts[number] = *next;
    program->arguments[at + LAUNCH_HEADER + code[7] + i] = &program->maps[number];
    problem = resolve(program, *next);
    if (!problem && !moves(program, *next)) problem = encode(program, number);
    *next += length;
  }
  if (problem) return problem;
  if (code[4])
    TRY("give a kernel shared memory",
        cuda.cuFuncSetAttribute(program->functions[code[1]], DYNAMIC_SHARED_BYTES, (int)code[4]));
  program->numbers[at] = program->launch_count++;
  return limit_blocks(program, program->code + at);
}

// Check the call at `at` and look at its places.
static const char *prepare_call(cuda_program *program, int64_t at, int64_t *next) {
  const int64_t *code = program->code + at;
  const int64_t length = cuda_library_call_length(code, program->length - at);
  if (!length || code[1] < 0 || code[1] >= program->library_function_count) return damaged(at);
  const int64_t bytes = cuda_library_call_bytes(code);
  if (bytes < 0) return damaged(at);
  if (bytes > program->host_bytes) program->host_bytes = bytes;
  program->has_graphs = false;
  program->numbers[at] = program->launch_count++;
  *next = at + length;
  const char *problem = NULL;
  for (int64_t i = 0; i < code[3] && !problem; i++)
    problem = resolve(program, at + cuda_library_call_place(i));
  return problem;
}

// Memory that library functions work in, of the kind that the GPU copies by itself where there is some.
static const char *allocate_host(cuda_program *program) {
  if (!program->host_bytes) return NULL;
  const size_t bytes = (size_t)(program->host_bytes + HOST_ALIGNMENT - 1) / HOST_ALIGNMENT * HOST_ALIGNMENT;
  program->host_is_locked = !cuda.cuMemHostAlloc((void **)&program->host, bytes, 0);
  if (!program->host_is_locked) program->host = aligned_alloc(HOST_ALIGNMENT, bytes);
  return program->host ? NULL : "there is not enough memory for the model";
}

// Check the instruction at `at` and look at its places; `next` is where the one after it stands.
static const char *prepare_instruction(cuda_program *program, int64_t at, int64_t slots,
                                       int64_t *next) {
  const int64_t *code = program->code + at, left = program->length - at;
  const char *problem = NULL;
  switch (code[0]) {
    case LAUNCH:
      return prepare_launch(program, at, next);
    case COPY:
      if (left < 8) return damaged(at);
      problem = resolve(program, at + 1);
      *next = at + 8;
      return problem ? problem : resolve(program, at + 4);
    case LOAD:
      if (left < 5 || code[1] < 0 || code[1] >= slots) return damaged(at);
      program->has_graphs = false;
      *next = at + 5;
      return resolve(program, at + 2);
    case JUMP:
      if (left < 2 || code[1] < 0 || code[1] > program->length) return damaged(at);
      program->has_graphs = false;
      *next = at + 2;
      return NULL;
    case JUMP_UNLESS:
      if (left < 3 || code[1] < 0 || code[1] >= slots || code[2] < 0 || code[2] > program->length)
        return damaged(at);
      program->has_graphs = false;
      *next = at + 3;
      return NULL;
    case CALL:
      return prepare_call(program, at, next);
    default:
      return damaged(at);
  }
}

static bool driver_has_graphs(void) {
#define IS_THERE(name, arguments) &&cuda.name
  return true CUDA_GRAPH_FUNCTIONS(IS_THERE);
}

const char *cuda_program_prepare(cuda_program *program, const int64_t *code, int64_t length,
                                 int64_t slots) {
  const size_t places = (size_t)length + 1;
  const size_t starts = (size_t)(program->input_count + program->output_count) + 1;
  bool complete = true;
  const struct {
    void **array;
    size_t count, bytes;
  } arrays[] = {{(void **)&program->code, places, sizeof *program->code},
                {(void **)&program->addresses, places, sizeof *program->addresses},
                {(void **)&program->numbers, places, sizeof *program->numbers},
                {(void **)&program->moving, places, sizeof *program->moving},
                {(void **)&program->arguments, places, sizeof *program->arguments},
                {(void **)&program->map_starts, places, sizeof *program->map_starts},
                {(void **)&program->conditions, (size_t)slots + 1, 1},
                {(void **)&program->starts, starts, sizeof *program->starts}};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
    complete &= (*arrays[i].array = calloc(arrays[i].count, arrays[i].bytes)) != NULL;
  for (int i = 0; i < CUDA_GRAPHS; i++)
    complete &= (program->recordings[i].starts = calloc(starts, sizeof *program->starts)) != NULL;
  program->maps = aligned_alloc(_Alignof(cuda_tensor_map),
                                (places / MAP_HEADER + 1) * sizeof *program->maps);
  if (!complete || !program->maps) return "there is not enough memory for the model";
  program->length = length;
  if (length) memcpy(program->code, code, (size_t)length * sizeof *code);
  program->has_graphs = driver_has_graphs();
  const char *problem = NULL;
  for (int64_t at = 0; at < length && !problem;)
    problem = prepare_instruction(program, at, slots, &at);
  return problem ? problem : allocate_host(program);
}

static size_t starts_bytes(const cuda_program *program) {
  return (size_t)(program->input_count + program->output_count) * sizeof *program->starts;
}

const char *cuda_program_bind(cuda_program *program, const device_address *starts) {
  if (!memcmp(program->starts, starts, starts_bytes(program))) return NULL;
  memcpy(program->starts, starts, starts_bytes(program));
  for (int64_t i = 0; i < program->moving_count; i++) {
    const int64_t at = program->moving[i];
    const int64_t *code = program->code + at;
    const int64_t first = code[0] == INPUT ? 0 : program->input_count;
    program->addresses[at] = starts[first + code[1]] + (device_address)code[2];
  }
  const char *problem = NULL;
  for (int64_t i = 0; i < program->map_count && !problem; i++)
    if (moves(program, program->map_starts[i])) problem = encode(program, i);
  if (problem) memset(program->starts, 0, starts_bytes(program));  // so that the next call tries again
  return problem;
}

static const char *read_time(timing *times, int64_t launch) {
  if (!times->pending[launch]) return NULL;
  float spent = 0;
  void *const *events = times->events + 2 * launch;
  TRY("time a kernel", cuda.cuEventSynchronize(events[1]));
  TRY("time a kernel", cuda.cuEventElapsedTime(&spent, events[0], events[1]));
  times->milliseconds[launch] += spent;
  times->runs[launch]++;
  times->pending[launch] = false;
  return NULL;
}

static const char *mark(const timing *times, int64_t event, void *stream) {
  if (!times) return NULL;
  void *which = times->events[event];
  TRY("time a kernel", times->in_graph
                           ? cuda.cuEventRecordWithFlags(which, stream, RECORD_IN_GRAPH)
                           : cuda.cuEventRecord(which, stream));
  return NULL;
}

static cuda_result launch_blocks(const cuda_program *program, int64_t at, void *stream) {
  const int64_t *code = program->code + at;
  void *function = program->functions[code[1]], **arguments = &program->arguments[at + LAUNCH_HEADER];
  if (code[6] == 1 && !(program->early[code[1]] && cuda.cuLaunchKernelEx))
    return cuda.cuLaunchKernel(function, (unsigned)code[2], 1, 1, (unsigned)code[3], 1, 1,
                               (unsigned)code[4], stream, arguments, NULL);
  cuda_launch_attribute attributes[CUDA_LAUNCH_ATTRIBUTES];
  const cuda_launch_config config = config_of(program, code, attributes, stream);
  return cuda.cuLaunchKernelEx(&config, function, arguments, NULL);
}

static const char *launch(cuda_program *program, int64_t at, void *stream, timing *times) {
  const int64_t number = program->numbers[at];
  const char *problem = times ? read_time(times, number) : NULL;
  if (!problem) problem = mark(times, 2 * number, stream);
  if (problem) return problem;
  TRY("launch a kernel", launch_blocks(program, at, stream));
  if (times) times->pending[number] = true;
  return mark(times, 2 * number + 1, stream);
}

static const char *call_library(cuda_program *program, int64_t at, void *stream, timing *times) {
  const int64_t number = program->numbers[at];
  const char *problem = times ? read_time(times, number) : NULL;
  if (!problem) problem = mark(times, 2 * number, stream);
  if (!problem)
    problem = cuda_library_call_run(program->code + at, program->library_functions,
                                    program->addresses + at, program->host, stream);
  if (problem) return problem;
  if (times) times->pending[number] = true;
  return mark(times, 2 * number + 1, stream);
}

static const char *follow(cuda_program *program, void *stream, timing *times) {
  for (int64_t at = 0; at < program->length;) {
    const int64_t *code = program->code + at;
    switch (code[0]) {
      case LAUNCH: {
        const char *problem = launch(program, at, stream, times);
        if (problem) return problem;
        at += LAUNCH_HEADER + PLACE * code[7];
        for (int64_t i = 0; i < code[8]; i++) at += map_length(program, at);
        break;
      }
      case COPY:
        if (code[7])
          TRY("copy on the GPU",
              cuda.cuMemcpyDtoDAsync_v2(program->addresses[at + 4], program->addresses[at + 1],
                                        (size_t)code[7], stream));
        at += 8;
        break;
      case LOAD:
        TRY("read a condition", cuda.cuMemcpyDtoHAsync_v2(&program->conditions[code[1]],
                                                          program->addresses[at + 2], 1, stream));
        TRY("run the model", cuda.cuStreamSynchronize(stream));
        at += 5;
        break;
      case JUMP:
        at = code[1];
        break;
      case CALL: {
        const char *problem = call_library(program, at, stream, times);
        if (problem) return problem;
        at += cuda_library_call_length(code, program->length - at);
        break;
      }
      default:
        at = program->conditions[code[1]] ? at + 3 : code[2];
    }
  }
  return NULL;
}

// All of the program as a graph that can be launched.
static const char *capture(cuda_program *program, void *stream, timing *times, void **made) {
  void *graph = NULL;
  TRY("record launches", cuda.cuStreamBeginCapture_v2(stream, CAPTURE_OF_THIS_THREAD));
  const char *problem = follow(program, stream, times);
  cuda_result code = cuda.cuStreamEndCapture(stream, &graph);
  if (!problem && !code) code = cuda.cuGraphInstantiateWithFlags(made, graph, 0);
  if (graph) cuda.cuGraphDestroy(graph);
  return problem ? problem : code ? cuda_failed("record launches", code) : NULL;
}

// What is known of launches at the present addresses; else the recording that was unused for longest.
static cuda_recording *recording(cuda_program *program) {
  cuda_recording *oldest = program->recordings;
  for (int i = 0; i < CUDA_GRAPHS; i++) {
    cuda_recording *seen = &program->recordings[i];
    if (seen->used && !memcmp(seen->starts, program->starts, starts_bytes(program))) return seen;
    if (seen->used < oldest->used) oldest = seen;
  }
  if (oldest->graph) cuda.cuGraphExecDestroy(oldest->graph);
  oldest->graph = NULL;
  oldest->used = 0;
  memcpy(oldest->starts, program->starts, starts_bytes(program));
  return oldest;
}

const char *cuda_program_run(cuda_program *program, void *stream) {
  if (program->has_graphs) {
    cuda_recording *seen = recording(program);
    const bool again = seen->used;
    seen->used = ++program->calls;
    if (again && !seen->graph && capture(program, stream, NULL, &seen->graph)) {
      seen->graph = NULL;
      program->has_graphs = false;  // the launches themselves may still work
    }
    if (seen->graph) {
      TRY("run the model", cuda.cuGraphLaunch(seen->graph, stream));
      return NULL;
    }
  }
  return follow(program, stream, NULL);
}

static const char *timed(cuda_program *program, void *stream, timing *times) {
  for (int64_t i = 0; i < 2 * program->launch_count; i++)
    TRY("make an event", cuda.cuEventCreate(&times->events[i], 0));
  void *graph = NULL;
  const char *problem = NULL;
  if (program->has_graphs) {
    times->in_graph = true;
    if (capture(program, stream, times, &graph)) graph = NULL;
    times->in_graph = false;
  }
  if (graph) {
    const cuda_result code = cuda.cuGraphLaunch(graph, stream);
    if (code) problem = cuda_failed("run the model", code);
  } else {
    memset(times->pending, 0, (size_t)program->launch_count);
    problem = follow(program, stream, times);
  }
  if (!problem) {
    const cuda_result code = cuda.cuStreamSynchronize(stream);
    if (code) problem = cuda_failed("run the model", code);
  }
  for (int64_t i = 0; i < program->launch_count && !problem; i++) problem = read_time(times, i);
  if (graph) cuda.cuGraphExecDestroy(graph);
  return problem;
}

const char *cuda_program_profile(cuda_program *program, void *stream, float *milliseconds,
                                 int64_t *runs) {
  const size_t count = (size_t)program->launch_count;
  timing times = {calloc(2 * count + 1, sizeof(void *)), calloc(count + 1, 1), milliseconds, runs,
                  false};
  memset(milliseconds, 0, count * sizeof *milliseconds);
  memset(runs, 0, count * sizeof *runs);
  const char *problem = times.events && times.pending ? timed(program, stream, &times)
                                                      : "there is not enough memory for events";
  for (size_t i = 0; times.events && i < 2 * count; i++)
    if (times.events[i]) cuda.cuEventDestroy_v2(times.events[i]);
  free(times.events);
  free(times.pending);
  return problem;
}

void cuda_program_destroy(cuda_program *program) {
  for (int i = 0; i < CUDA_GRAPHS; i++) {
    if (program->recordings[i].graph) cuda.cuGraphExecDestroy(program->recordings[i].graph);
    free(program->recordings[i].starts);
  }
  if (program->host_is_locked)
    cuda.cuMemFreeHost(program->host);
  else
    free(program->host);
  void *owned[] = {program->code,      program->addresses,  program->numbers, program->moving,
                   program->arguments, program->conditions, program->starts,
                   program->maps,      program->map_starts};
  for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
}
