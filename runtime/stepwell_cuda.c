// See stepwell_cuda.h.
#include "stepwell_cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef uint64_t device_address;
typedef int result;

enum { CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76 };
enum { LAUNCH, COPY, LOAD, JUMP, JUMP_UNLESS };
enum { INPUT, OUTPUT, WEIGHTS, ARENA };
enum { ALIGNMENT = 256, PLACE = 3 };

// Functions of the driver, by the names of the first versions with 64-bit addresses.
#define DRIVER_FUNCTIONS(F)                                                                        \
  F(cuInit, (unsigned))                                                                            \
  F(cuDriverGetVersion, (int *))                                                                   \
  F(cuDeviceGetCount, (int *))                                                                     \
  F(cuDeviceGet, (int *, int))                                                                     \
  F(cuDeviceGetName, (char *, int, int))                                                           \
  F(cuDeviceGetAttribute, (int *, int, int))                                                       \
  F(cuDevicePrimaryCtxRetain, (void **, int))                                                      \
  F(cuCtxSetCurrent, (void *))                                                                     \
  F(cuGetErrorName, (result, const char **))                                                       \
  F(cuGetErrorString, (result, const char **))                                                     \
  F(cuModuleLoadData, (void **, const void *))                                                     \
  F(cuModuleGetFunction, (void **, void *, const char *))                                          \
  F(cuModuleUnload, (void *))                                                                      \
  F(cuMemAlloc_v2, (device_address *, size_t))                                                     \
  F(cuMemFree_v2, (device_address))                                                                \
  F(cuMemcpyHtoDAsync_v2, (device_address, const void *, size_t, void *))                          \
  F(cuMemcpyDtoHAsync_v2, (void *, device_address, size_t, void *))                                \
  F(cuMemcpyDtoDAsync_v2, (device_address, device_address, size_t, void *))                        \
  F(cuStreamCreate, (void **, unsigned))                                                           \
  F(cuStreamSynchronize, (void *))                                                                 \
  F(cuStreamDestroy_v2, (void *))                                                                  \
  F(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
                     void *, void **, void **))

#define DECLARE(name, arguments) static result(*name) arguments;
DRIVER_FUNCTIONS(DECLARE)

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static void *driver, *context;
static stepwell_cuda_device opened;
static _Thread_local char message[512];

struct stepwell_cuda_model {
  void **modules, **functions;
  int64_t kernel_count;
  int64_t *program;
  int64_t program_length;
  device_address *addresses;  // of each place, where it stands in the program
  void **arguments;           // of each launch, where its first place stands
  unsigned char *slots;
  int64_t *input_bytes, *output_bytes;
  device_address *inputs, *outputs;
  int64_t input_count, output_count;
  device_address memory, weights, arena;
  void *stream;
};

static const char *failed(const char *doing, result code) {
  const char *name = NULL, *text = NULL;
  if (cuGetErrorName) cuGetErrorName(code, &name);
  if (cuGetErrorString) cuGetErrorString(code, &text);
  snprintf(message, sizeof message, "the CUDA driver could not %s: %s (%s, error %d)", doing,
           text ? text : "no reason given", name ? name : "unknown", code);
  return message;
}

#define TRY(doing, call)                                \
  do {                                                  \
    result code_ = (call);                              \
    if (code_) return failed(doing, code_);             \
  } while (0)

static const char *look_up(const char *library) {
  void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    snprintf(message, sizeof message, "there is no CUDA driver here: %s", dlerror());
    return message;
  }
#define LOOK_UP(name, arguments)                                                                \
  if (!(name = (result(*) arguments)dlsym(handle, #name))) {                                    \
    snprintf(message, sizeof message, "the CUDA driver %s is too old: it lacks " #name, library); \
    dlclose(handle);                                                                            \
    return message;                                                                             \
  }
  DRIVER_FUNCTIONS(LOOK_UP)
  driver = handle;
  return NULL;
}

static const char *open_device(const char *library) {
  if (!driver) {
    const char *problem = look_up(library);
    if (problem) return problem;
  }
  TRY("start", cuInit(0));
  int count = 0, device = 0;
  TRY("count its devices", cuDeviceGetCount(&count));
  if (!count) {
    snprintf(message, sizeof message, "the CUDA driver sees no GPU");
    return message;
  }
  TRY("open the first GPU", cuDeviceGet(&device, 0));
  TRY("name the GPU", cuDeviceGetName(opened.name, sizeof opened.name, device));
  TRY("describe the GPU", cuDeviceGetAttribute(&opened.major, CAPABILITY_MAJOR, device));
  TRY("describe the GPU", cuDeviceGetAttribute(&opened.minor, CAPABILITY_MINOR, device));
  TRY("tell its version", cuDriverGetVersion(&opened.driver));
  if (!context) TRY("make a context on the GPU", cuDevicePrimaryCtxRetain(&context, device));
  return NULL;
}

EXPORT const char *stepwell_cuda_open(const char *library, stepwell_cuda_device *device) {
  pthread_mutex_lock(&opening);
  const char *problem = open_device(library);
  *device = opened;
  pthread_mutex_unlock(&opening);
  return problem;
}

static const char *damaged(int64_t at) {
  snprintf(message, sizeof message, "the launch program is damaged at position %lld",
           (long long)at);
  return message;
}

static int64_t aligned(int64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static int64_t *copied(const int64_t *values, int64_t count) {
  int64_t *copy = calloc((size_t)count + 1, sizeof *copy);
  if (copy && count) memcpy(copy, values, (size_t)count * sizeof *copy);
  return copy;
}

// Resolve the place at `at` of the program.
static const char *resolve(stepwell_cuda_model *model, int64_t at) {
  if (at + PLACE > model->program_length) return damaged(at);
  const int64_t base = model->program[at], number = model->program[at + 1];
  device_address start;
  if (base == INPUT && number >= 0 && number < model->input_count)
    start = model->inputs[number];
  else if (base == OUTPUT && number >= 0 && number < model->output_count)
    start = model->outputs[number];
  else if (base == WEIGHTS)
    start = model->weights;
  else if (base == ARENA)
    start = model->arena;
  else
    return damaged(at);
  model->addresses[at] = start + (device_address)model->program[at + 2];
  return NULL;
}

// Resolve every place, so that a call only follows the program.
static const char *prepare(stepwell_cuda_model *model, int64_t slots) {
  const int64_t length = model->program_length;
  const char *problem = NULL;
  for (int64_t at = 0; at < length && !problem;) {
    const int64_t *code = model->program + at, left = length - at;
    switch (code[0]) {
      case LAUNCH: {
        if (left < 5 || code[1] < 0 || code[1] >= model->kernel_count || code[4] < 0 ||
            left < 5 + PLACE * code[4])
          return damaged(at);
        for (int64_t i = 0; i < code[4] && !problem; i++) {
          const int64_t place = at + 5 + PLACE * i;
          problem = resolve(model, place);
          model->arguments[at + 5 + i] = &model->addresses[place];
        }
        at += 5 + PLACE * code[4];
        break;
      }
      case COPY:
        if (left < 8) return damaged(at);
        problem = resolve(model, at + 1);
        if (!problem) problem = resolve(model, at + 4);
        at += 8;
        break;
      case LOAD:
        if (left < 5 || code[1] < 0 || code[1] >= slots) return damaged(at);
        problem = resolve(model, at + 2);
        at += 5;
        break;
      case JUMP:
        if (left < 2 || code[1] < 0 || code[1] > length) return damaged(at);
        at += 2;
        break;
      case JUMP_UNLESS:
        if (left < 3 || code[1] < 0 || code[1] >= slots || code[2] < 0 || code[2] > length)
          return damaged(at);
        at += 3;
        break;
      default:
        return damaged(at);
    }
  }
  return problem;
}

static const char *allocate(stepwell_cuda_model *model, const stepwell_cuda_spec *spec) {
  int64_t total = aligned(spec->weights_bytes) + aligned(spec->arena_bytes) + ALIGNMENT;
  for (int64_t i = 0; i < spec->input_count; i++) total += aligned(spec->input_bytes[i]);
  for (int64_t i = 0; i < spec->output_count; i++) total += aligned(spec->output_bytes[i]);
  char doing[96];
  snprintf(doing, sizeof doing, "allocate %lld bytes on the GPU", (long long)total);
  TRY(doing, cuMemAlloc_v2(&model->memory, (size_t)total));
  device_address next = model->memory;
  model->weights = next;
  next += (device_address)aligned(spec->weights_bytes);
  model->arena = next;
  next += (device_address)aligned(spec->arena_bytes);
  for (int64_t i = 0; i < spec->input_count; i++) {
    model->inputs[i] = next;
    next += (device_address)aligned(spec->input_bytes[i]);
  }
  for (int64_t i = 0; i < spec->output_count; i++) {
    model->outputs[i] = next;
    next += (device_address)aligned(spec->output_bytes[i]);
  }
  if (spec->weights_bytes)
    TRY("copy the weights to the GPU",
        cuMemcpyHtoDAsync_v2(model->weights, spec->weights, (size_t)spec->weights_bytes,
                             model->stream));
  TRY("copy the weights to the GPU", cuStreamSynchronize(model->stream));
  return NULL;
}

static const char *fill(stepwell_cuda_model *model, const stepwell_cuda_spec *spec) {
  model->kernel_count = spec->kernel_count;
  model->program_length = spec->program_length;
  model->input_count = spec->input_count;
  model->output_count = spec->output_count;
  model->modules = calloc((size_t)spec->kernel_count + 1, sizeof(void *));
  model->functions = calloc((size_t)spec->kernel_count + 1, sizeof(void *));
  model->program = copied(spec->program, spec->program_length);
  model->addresses = calloc((size_t)spec->program_length + 1, sizeof(device_address));
  model->arguments = calloc((size_t)spec->program_length + 1, sizeof(void *));
  model->slots = calloc((size_t)spec->slots + 1, 1);
  model->input_bytes = copied(spec->input_bytes, spec->input_count);
  model->output_bytes = copied(spec->output_bytes, spec->output_count);
  model->inputs = calloc((size_t)spec->input_count + 1, sizeof(device_address));
  model->outputs = calloc((size_t)spec->output_count + 1, sizeof(device_address));
  if (!model->modules || !model->functions || !model->program || !model->addresses ||
      !model->arguments || !model->slots || !model->input_bytes || !model->output_bytes ||
      !model->inputs || !model->outputs)
    return "there is not enough memory for the model";
  TRY("use its context", cuCtxSetCurrent(context));
  TRY("make a stream", cuStreamCreate(&model->stream, 1));
  for (int64_t i = 0; i < spec->kernel_count; i++) {
    char doing[160];
    snprintf(doing, sizeof doing, "load %s", spec->kernels[i]);
    TRY(doing, cuModuleLoadData(&model->modules[i], spec->images[i]));
    TRY(doing, cuModuleGetFunction(&model->functions[i], model->modules[i], spec->kernels[i]));
  }
  const char *problem = allocate(model, spec);
  return problem ? problem : prepare(model, spec->slots);
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

static const char *follow(stepwell_cuda_model *model) {
  for (int64_t at = 0; at < model->program_length;) {
    const int64_t *code = model->program + at;
    switch (code[0]) {
      case LAUNCH:
        TRY("launch a kernel",
            cuLaunchKernel(model->functions[code[1]], (unsigned)code[2], 1, 1, (unsigned)code[3], 1,
                           1, 0, model->stream, &model->arguments[at + 5], NULL));
        at += 5 + PLACE * code[4];
        break;
      case COPY:
        if (code[7])
          TRY("copy on the GPU",
              cuMemcpyDtoDAsync_v2(model->addresses[at + 4], model->addresses[at + 1],
                                   (size_t)code[7], model->stream));
        at += 8;
        break;
      case LOAD:
        TRY("read a condition", cuMemcpyDtoHAsync_v2(&model->slots[code[1]],
                                                     model->addresses[at + 2], 1, model->stream));
        TRY("run the model", cuStreamSynchronize(model->stream));
        at += 5;
        break;
      case JUMP:
        at = code[1];
        break;
      default:
        at = model->slots[code[1]] ? at + 3 : code[2];
    }
  }
  return NULL;
}

EXPORT const char *stepwell_cuda_run(stepwell_cuda_model *model, const void *const *inputs,
                                     void *const *outputs) {
  TRY("use its context", cuCtxSetCurrent(context));
  for (int64_t i = 0; i < model->input_count; i++)
    if (model->input_bytes[i])
      TRY("copy an input to the GPU",
          cuMemcpyHtoDAsync_v2(model->inputs[i], inputs[i], (size_t)model->input_bytes[i],
                               model->stream));
  const char *problem = follow(model);
  if (problem) return problem;
  for (int64_t i = 0; i < model->output_count; i++)
    if (model->output_bytes[i])
      TRY("copy an output from the GPU",
          cuMemcpyDtoHAsync_v2(outputs[i], model->outputs[i], (size_t)model->output_bytes[i],
                               model->stream));
  TRY("run the model", cuStreamSynchronize(model->stream));
  return NULL;
}

EXPORT void stepwell_cuda_destroy(stepwell_cuda_model *model) {
  if (!model) return;
  if (context) cuCtxSetCurrent(context);
  for (int64_t i = 0; model->modules && i < model->kernel_count; i++)
    if (model->modules[i]) cuModuleUnload(model->modules[i]);
  if (model->memory) cuMemFree_v2(model->memory);
  if (model->stream) cuStreamDestroy_v2(model->stream);
  void *owned[] = {model->modules,     model->functions,    model->program, model->addresses,
                   model->arguments,   model->slots,        model->inputs,  model->outputs,
                   model->input_bytes, model->output_bytes, model};
  for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
}
