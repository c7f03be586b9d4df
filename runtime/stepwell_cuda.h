// Running models on NVIDIA GPUs by way of the driver, which is looked up when it is needed: no CUDA
// headers, no toolkit. Functions that can fail return NULL or a message, which stays valid in the
// calling thread until its next failure.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stepwell_cuda_model stepwell_cuda_model;

typedef struct {
  char name[128];
  int major, minor;     // compute capability
  int driver;           // newest CUDA release that the driver knows: 1000 * major + 10 * minor
} stepwell_cuda_device;

// What a model is made of. `images` are cubins or PTX text, the code of the kernel of the same
// number; `program` is the launch program (python/stepwell/launch.py); sizes are in bytes.
typedef struct {
  const void *const *images;
  const char *const *kernels;
  int64_t kernel_count;
  const int64_t *program;
  int64_t program_length;
  int64_t slots;
  const int64_t *input_bytes;
  int64_t input_count;
  const int64_t *output_bytes;
  int64_t output_count;
  const void *weights;
  int64_t weights_bytes;
  int64_t arena_bytes;
} stepwell_cuda_spec;

// Load the driver (`library`: its file name) and look at its first device.
const char *stepwell_cuda_open(const char *library, stepwell_cuda_device *device);

// Load kernels, allocate one piece of device memory, and copy the weights into it.
const char *stepwell_cuda_create(const stepwell_cuda_spec *spec, stepwell_cuda_model **model);

// One call: copy the inputs in, run the program, copy the outputs out, wait.
const char *stepwell_cuda_run(stepwell_cuda_model *model, const void *const *inputs,
                              void *const *outputs);

void stepwell_cuda_destroy(stepwell_cuda_model *model);

#ifdef __cplusplus
}
#endif
