// The launch program of a model (python/stepwell/launch.py): checked and its places resolved once,
// then followed launch by launch, or as a CUDA graph of all launches.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda_driver.h"

enum { CUDA_GRAPHS = 4, CUDA_MAP_BYTES = 128 };

// CUtensorMap of the driver's headers.
typedef struct {
  _Alignas(128) unsigned char bytes[CUDA_MAP_BYTES];
} cuda_tensor_map;

// The launches with inputs and outputs at certain addresses. `graph` is NULL before they come there a
// second time.
typedef struct {
  device_address *starts;
  void *graph;
  uint64_t used;  // when, by the program's count of calls
} cuda_recording;

typedef struct {
  void *const *functions;  // kernels by number
  void *const *library_functions;
  int64_t library_function_count;
  unsigned char *host;  // memory for the operands and results of library functions
  int64_t host_bytes;
  bool host_is_locked;
  int64_t kernel_count, launch_count;
  bool *early;  // of each kernel: it waits itself for the one before, which may still run when it begins
  int64_t *code;
  int64_t length;
  device_address weights, arena;
  device_address *starts;  // where inputs, then outputs, lie in this call
  int64_t input_count, output_count;
  device_address *addresses;  // of each place, where it stands in the code
  int64_t *numbers;           // of each launch, its place among them in the order of the code
  int64_t *moving;            // the places in inputs and outputs
  int64_t moving_count;
  void **arguments;  // of each launch, where its first place stands
  cuda_tensor_map *maps;
  int64_t *map_starts;  // of each map, where it stands in the code
  int64_t map_count;
  unsigned char *conditions;
  bool has_graphs;
  cuda_recording recordings[CUDA_GRAPHS];
  uint64_t calls;
} cuda_program;

// Check the code and resolve its places; `slots` conditions. The functions and the addresses of
// weights and arena are there already, and the counts of kernels, inputs and outputs.
const char *cuda_program_prepare(cuda_program *program, const int64_t *code, int64_t length,
                                 int64_t slots);

// Let inputs and outputs lie at `starts`. NULL or a message.
const char *cuda_program_bind(cuda_program *program, const device_address *starts);

// Ask `stream` for all that the program does.
const char *cuda_program_run(cuda_program *program, void *stream);

// The same, and wait; the milliseconds of each launch, and how often it ran.
const char *cuda_program_profile(cuda_program *program, void *stream, float *milliseconds,
                                 int64_t *runs);

void cuda_program_destroy(cuda_program *program);
