// See stepwell_cuda.h.
#include "stepwell_cuda.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_driver.h"
#include "cuda_program.h"

#define EXPORT __attribute__((visibility("default")))

enum { ALIGNMENT = 256, OPERAND_ALIGNMENT = 16, CHUNK = 1 << 20, STREAM_OF_ITS_OWN = 1 };

struct stepwell_cuda_model {
  void **modules, **functions, **library_functions;
  bool *early;
  cuda_program program;
  int64_t count;  // of inputs and outputs together: inputs first in all arrays
  int64_t *bytes;
  device_address *own;     // where those of the host are copied
  device_address *starts;  // where those of a call lie
  device_address memory;
  unsigned char *staging;  // page-locked memory of the host for all of them
  bool staging_tried;
  void *stream;
};

static int64_t aligned(int64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

// Zeros at the start of the arena.
static const char *clear(const stepwell_cuda_model *model, const stepwell_cuda_spec *spec) {
  if (spec->zeroed_bytes <= 0) return NULL;
  if (spec->zeroed_bytes > spec->arena_bytes) return "the arena is smaller than what is zeros in it";
  void *zeros = calloc(1, (size_t)spec->zeroed_bytes);
  if (!zeros) return "there is not enough memory for the model";
  cuda_result code = cuda.cuMemcpyHtoDAsync_v2(model->program.arena, zeros,
                                               (size_t)spec->zeroed_bytes, model->stream);
  if (!code) code = cuda.cuStreamSynchronize(model->stream);
  free(zeros);
  return code ? cuda_failed("clear memory on the GPU", code) : NULL;
}

static const char *allocate(stepwell_cuda_model *model, const stepwell_cuda_spec *spec) {
  int64_t total = aligned(spec->weights_bytes) + aligned(spec->arena_bytes) + ALIGNMENT;
  for (int64_t i = 0; i < model->count; i++) total += aligned(model->bytes[i]);
  char doing[96];
  snprintf(doing, sizeof doing, "allocate %lld bytes on the GPU", (long long)total);
  TRY(doing, cuda.cuMemAlloc_v2(&model->memory, (size_t)total));
  model->program.weights = model->memory;
  model->program.arena = model->memory + (device_address)aligned(spec->weights_bytes);
  device_address next = model->program.arena + (device_address)aligned(spec->arena_bytes);
  for (int64_t i = 0; i < model->count; i++) {
    model->own[i] = next;
    next += (device_address)aligned(model->bytes[i]);
  }
  if (spec->weights_bytes)
    TRY("copy the weights to the GPU",
        cuda.cuMemcpyHtoDAsync_v2(model->program.weights, spec->weights,
                                  (size_t)spec->weights_bytes, model->stream));
  TRY("copy the weights to the GPU", cuda.cuStreamSynchronize(model->stream));
  return clear(model, spec);
}

// Load a kernel. A driver takes no cubins of later CUDA releases than its own, but most PTX.
static const char *load(stepwell_cuda_model *model, const stepwell_cuda_spec *spec, int64_t i) {
  char doing[160];
  snprintf(doing, sizeof doing, "load %s", spec->kernels[i]);
  cuda_result code = cuda.cuModuleLoadData(&model->modules[i], spec->images[i]);
  if (code && spec->others[i]) code = cuda.cuModuleLoadData(&model->modules[i], spec->others[i]);
  if (code) {
    model->modules[i] = NULL;
    return cuda_failed(doing, code);
  }
  TRY(doing,
      cuda.cuModuleGetFunction(&model->functions[i], model->modules[i], spec->kernels[i]));
  return NULL;
}

static const char *fill(stepwell_cuda_model *model, const stepwell_cuda_spec *spec) {
  const size_t kernels = (size_t)spec->kernel_count + 1;
  model->count = spec->input_count + spec->output_count;
  model->program.kernel_count = spec->kernel_count;
  model->modules = calloc(kernels, sizeof *model->modules);
  model->functions = calloc(kernels, sizeof *model->functions);
  model->library_functions =
      calloc((size_t)spec->library_function_count + 1, sizeof *model->library_functions);
  model->early = calloc(kernels, sizeof *model->early);
  model->bytes = calloc((size_t)model->count + 1, sizeof *model->bytes);
  model->own = calloc((size_t)model->count + 1, sizeof *model->own);
  model->starts = calloc((size_t)model->count + 1, sizeof *model->starts);
  if (!model->modules || !model->functions || !model->library_functions || !model->early || !model->bytes ||
      !model->own || !model->starts)
    return "there is not enough memory for the model";
  for (int64_t i = 0; i < spec->kernel_count; i++) model->early[i] = spec->early[i];
  for (int64_t i = 0; i < spec->input_count; i++) model->bytes[i] = spec->input_bytes[i];
  for (int64_t i = 0; i < spec->output_count; i++)
    model->bytes[spec->input_count + i] = spec->output_bytes[i];
  const char *problem = cuda_enter();
  if (problem) return problem;
  TRY("make a stream", cuda.cuStreamCreate(&model->stream, STREAM_OF_ITS_OWN));
  for (int64_t i = 0; i < spec->kernel_count; i++)
    if ((problem = load(model, spec, i))) return problem;
  if ((problem = allocate(model, spec))) return problem;
  model->program.functions = model->functions;
  model->program.early = model->early;
  for (int64_t i = 0; i < spec->library_function_count; i++)
    model->library_functions[i] = spec->library_functions[i];
  model->program.library_functions = model->library_functions;
  model->program.library_function_count = spec->library_function_count;
  model->program.input_count = spec->input_count;
  model->program.output_count = spec->output_count;
  return cuda_program_prepare(&model->program, spec->program, spec->program_length, spec->slots);
}

EXPORT const char *stepwell_cuda_create(const stepwell_cuda_spec *spec,
                                        stepwell_cuda_model **model) {
  *model = calloc(1, sizeof **model);
  if (!*model) return "there is not enough memory for the model";
  const char *problem = fill(*model, spec);
  if (problem) {
    stepwell_cuda_destroy(*model);
    *model = NULL;
  }
  return problem;
}

EXPORT void *stepwell_cuda_stream(stepwell_cuda_model *model) { return model->stream; }

// The part of the staging memory for input or output `i`; NULL when the system gave none, so that the
// driver copies by way of its own.
static unsigned char *staged(stepwell_cuda_model *model, int64_t i) {
  if (!model->staging_tried) {
    model->staging_tried = true;
    size_t total = ALIGNMENT;
    for (int64_t k = 0; k < model->count; k++) total += (size_t)aligned(model->bytes[k]);
    if (cuda.cuMemHostAlloc((void **)&model->staging, total, 0)) model->staging = NULL;
  }
  return model->staging ? model->staging + (model->own[i] - model->own[0]) : NULL;
}

// Copy rows from one place to another. A place is in the memory of the host, or, where `host` is NULL,
// on the GPU.
typedef struct {
  void *host;
  device_address device;
  size_t pitch;
} place;

static cuda_result copy(place from, place to, size_t rows, size_t row_bytes, void *stream) {
  if (rows == 1 && from.host) return cuda.cuMemcpyHtoDAsync_v2(to.device, from.host, row_bytes, stream);
  if (rows == 1 && to.host) return cuda.cuMemcpyDtoHAsync_v2(to.host, from.device, row_bytes, stream);
  if (rows == 1) return cuda.cuMemcpyDtoDAsync_v2(to.device, from.device, row_bytes, stream);
  const cuda_copy_2d what = {
      {0, 0, from.host ? CUDA_HOST_MEMORY : CUDA_DEVICE_MEMORY, from.host, from.device, NULL, from.pitch},
      {0, 0, to.host ? CUDA_HOST_MEMORY : CUDA_DEVICE_MEMORY, to.host, to.device, NULL, to.pitch},
      row_bytes,
      rows};
  return cuda.cuMemcpy2DAsync_v2(&what, stream);
}

// By pieces: while the GPU fetches one, the next is copied to where it can be fetched.
static const char *upload(stepwell_cuda_model *model, int64_t i, const stepwell_cuda_buffer *buffer) {
  unsigned char *stage = staged(model, i), *data = buffer->data;
  const size_t width = (size_t)buffer->row_bytes, bytes = width * (size_t)buffer->rows;
  const size_t whole = buffer->rows == 1 ? CHUNK : CHUNK / width ? CHUNK / width * width : width;
  const size_t step = stage ? whole : bytes;
  for (size_t at = 0; at < bytes; at += step) {
    const size_t part = bytes - at < step ? bytes - at : step;
    if (stage) memcpy(stage + at, data + at, part);
    const bool is_one = buffer->rows == 1;
    const size_t target = is_one ? at : at / width * (size_t)buffer->pitch;
    TRY("copy an input to the GPU",
        copy((place){stage ? stage + at : data + at, 0, width},
             (place){NULL, model->own[i] + target, (size_t)buffer->pitch}, is_one ? 1 : part / width,
             is_one ? part : width, model->stream));
  }
  return NULL;
}

static size_t bytes_of(const stepwell_cuda_buffer *buffer) {
  return (size_t)(buffer->rows * buffer->row_bytes);
}

// Whether the model works on the buffer itself, number `i`.
static bool in_place(const stepwell_cuda_model *model, int64_t i, const stepwell_cuda_buffer *buffer) {
  return buffer->on_device && (device_address)buffer->data % OPERAND_ALIGNMENT == 0 &&
         bytes_of(buffer) == (size_t)model->bytes[i];
}

static const char *copy_in(stepwell_cuda_model *model, int64_t i,
                           const stepwell_cuda_buffer *buffer) {
  if (!bytes_of(buffer) || in_place(model, i, buffer)) return NULL;
  if (!buffer->on_device) return upload(model, i, buffer);
  const size_t width = (size_t)buffer->row_bytes;
  TRY("copy an input on the GPU",
      copy((place){NULL, (device_address)buffer->data, width},
           (place){NULL, model->own[i], (size_t)buffer->pitch}, (size_t)buffer->rows, width,
           model->stream));
  return NULL;
}

static const char *copy_out(stepwell_cuda_model *model, int64_t i,
                            const stepwell_cuda_buffer *buffer) {
  if (!bytes_of(buffer) || in_place(model, i, buffer)) return NULL;
  unsigned char *stage = buffer->on_device ? NULL : staged(model, i);
  const size_t width = (size_t)buffer->row_bytes;
  const place to = {buffer->on_device ? NULL : stage ? stage : buffer->data,
                    buffer->on_device ? (device_address)buffer->data : 0, width};
  TRY("copy an output from the GPU",
      copy((place){NULL, model->own[i], (size_t)buffer->pitch}, to, (size_t)buffer->rows, width,
           model->stream));
  return NULL;
}

// Do what the program does `calls` times; `milliseconds` is how long one took.
static const char *repeat(cuda_program *program, void *stream, int64_t calls, float *milliseconds) {
  void *events[2] = {NULL, NULL};
  const char *problem = NULL;
  for (int i = 0; i < 2 && !problem; i++) {
    const cuda_result code = cuda.cuEventCreate(&events[i], 0);
    if (code) problem = cuda_failed("make an event", code);
  }
  cuda_result code = problem ? 0 : cuda.cuEventRecord(events[0], stream);
  for (int64_t i = 0; i < calls && !problem && !code; i++) problem = cuda_program_run(program, stream);
  if (!problem && !code) code = cuda.cuEventRecord(events[1], stream);
  if (!problem && !code) code = cuda.cuEventSynchronize(events[1]);
  if (!problem && !code) code = cuda.cuEventElapsedTime(milliseconds, events[0], events[1]);
  if (!problem && code) problem = cuda_failed("time a model", code);
  for (int i = 0; i < 2; i++)
    if (events[i]) cuda.cuEventDestroy_v2(events[i]);
  *milliseconds /= (float)calls;
  return problem;
}

// What a call is to tell beside its results.
typedef struct {
  float *milliseconds;  // of each launch, or, with `calls`, of one of so many calls; NULL for none
  int64_t *runs;        // of each launch
  int64_t calls;
} measuring;

static const char *run(stepwell_cuda_model *model, const measuring *times) {
  cuda_program *program = &model->program;
  if (!times) return cuda_program_run(program, model->stream);
  if (times->calls) return repeat(program, model->stream, times->calls, times->milliseconds);
  return cuda_program_profile(program, model->stream, times->milliseconds, times->runs);
}

// One call, timed where `times` is not NULL.
static const char *call(stepwell_cuda_model *model, const stepwell_cuda_buffer *inputs,
                        const stepwell_cuda_buffer *outputs, const measuring *times) {
  const char *problem = cuda_enter();
  const int64_t input_count = model->program.input_count;
  for (int64_t i = 0; i < model->count; i++) {
    const stepwell_cuda_buffer *buffer = i < input_count ? &inputs[i] : &outputs[i - input_count];
    model->starts[i] = in_place(model, i, buffer) ? (device_address)buffer->data : model->own[i];
  }
  for (int64_t i = 0; i < input_count && !problem; i++) problem = copy_in(model, i, &inputs[i]);
  if (!problem) problem = cuda_program_bind(&model->program, model->starts);
  if (problem) return problem;
  problem = run(model, times);
  for (int64_t i = input_count; i < model->count && !problem; i++)
    problem = copy_out(model, i, &outputs[i - input_count]);
  if (problem) return problem;
  TRY("run the model", cuda.cuStreamSynchronize(model->stream));
  for (int64_t i = input_count; i < model->count && model->staging; i++) {
    const stepwell_cuda_buffer *output = &outputs[i - input_count];
    if (!output->on_device && bytes_of(output))
      memcpy(output->data, staged(model, i), bytes_of(output));
  }
  return NULL;
}

EXPORT const char *stepwell_cuda_run(stepwell_cuda_model *model, const stepwell_cuda_buffer *inputs,
                                     const stepwell_cuda_buffer *outputs) {
  return call(model, inputs, outputs, NULL);
}

EXPORT const char *stepwell_cuda_time(stepwell_cuda_model *model, const stepwell_cuda_buffer *inputs,
                                      const stepwell_cuda_buffer *outputs, int64_t calls,
                                      float *milliseconds) {
  const measuring times = {milliseconds, NULL, calls};
  return call(model, inputs, outputs, &times);
}

EXPORT const char *stepwell_cuda_profile(stepwell_cuda_model *model,
                                         const stepwell_cuda_buffer *inputs,
                                         const stepwell_cuda_buffer *outputs,
                                         float *milliseconds, int64_t *runs) {
  const measuring times = {milliseconds, runs, 0};
  return call(model, inputs, outputs, &times);
}

EXPORT void stepwell_cuda_destroy(stepwell_cuda_model *model) {
  if (!model) return;
  cuda_enter();
  cuda_program_destroy(&model->program);
  for (int64_t i = 0; model->modules && i < model->program.kernel_count; i++)
    if (model->modules[i]) cuda.cuModuleUnload(model->modules[i]);
  if (model->memory) cuda.cuMemFree_v2(model->memory);
  if (model->staging) cuda.cuMemFreeHost(model->staging);
  if (model->stream) cuda.cuStreamDestroy_v2(model->stream);
  cuda_free_unused();
  void *owned[] = {model->modules, model->functions, model->library_functions, model->early,
                   model->bytes,   model->own,       model->starts};
  for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
  free(model);
}
