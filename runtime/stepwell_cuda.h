// Running models on NVIDIA GPUs by way of the driver, which is looked up when it is needed: no CUDA
// headers, no toolkit. Functions that can fail return NULL or a message, which stays valid in the
// calling thread until its next failure.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stepwell_cuda_model stepwell_cuda_model;
typedef struct stepwell_cuda_block stepwell_cuda_block;

typedef struct {
  char name[128];
  int major, minor;     // compute capability
  int driver;           // newest CUDA release that the driver knows: 1000 * major + 10 * minor
  int multiprocessors;
  int clock;            // their highest, in kHz
} stepwell_cuda_device;

// What a model is made of. `images` are cubins or PTX text, the code of the kernel of the same
// number, `others` (NULL: none) what is loaded where the driver does not take that; `program` is the launch program (python/stepwell/launch.py); sizes are in bytes.
typedef struct {
  const void *const *images;
  const void *const *others;
  const char *const *kernels;
  int64_t kernel_count;
  const int64_t *program;
  int64_t program_length;
  int64_t slots;
  void *const *library_functions;  // by number, as the program calls them
  int64_t library_function_count;
  const int64_t *input_bytes;
  int64_t input_count;
  const int64_t *output_bytes;
  int64_t output_count;
  const void *weights;
  int64_t weights_bytes;
  int64_t arena_bytes;
  int64_t zeroed_bytes;  // of the arena, from its start on: zeros before the first call
  const char *early;  // of each kernel: whether it waits itself for the one before
} stepwell_cuda_spec;

// An input or output: `data` is an address in the host's memory, or on the GPU, of `rows` rows of
// `row_bytes` bytes, which lie close together there and `pitch` bytes apart in the model's memory. Of
// one without rows nothing is copied: the model's memory holds what an earlier call copied to it.
typedef struct {
  void *data;
  int64_t on_device, rows, row_bytes, pitch;
} stepwell_cuda_buffer;

// Load the driver (`library`: its file name) and look at its first device.
const char *stepwell_cuda_open(const char *library, stepwell_cuda_device *device);

// The time of one copy of `bytes` bytes from one place on the GPU to another, the mean of some.
const char *stepwell_cuda_time_copy(int64_t bytes, float *milliseconds);

// Load kernels, allocate one piece of device memory, and copy the weights into it.
const char *stepwell_cuda_create(const stepwell_cuda_spec *spec, stepwell_cuda_model **model);

// One call: inputs in, the program, outputs out; it waits for the end. What is on the GPU is read and
// written in place where it is whole and aligned to 16 bytes, copied where not.
const char *stepwell_cuda_run(stepwell_cuda_model *model, const stepwell_cuda_buffer *inputs,
                              const stepwell_cuda_buffer *outputs);

// A call that also tells the time spent in each launch of the program, in the order of its text, by
// the GPU's clock, and how often it ran; the times of a launch in a loop are added up.
const char *stepwell_cuda_profile(stepwell_cuda_model *model, const stepwell_cuda_buffer *inputs,
                                  const stepwell_cuda_buffer *outputs, float *milliseconds,
                                  int64_t *runs);

// `calls` of the program one behind another, by the GPU's clock: how long one took, without copies of
// the host's arrays.
const char *stepwell_cuda_time(stepwell_cuda_model *model, const stepwell_cuda_buffer *inputs,
                               const stepwell_cuda_buffer *outputs, int64_t calls,
                               float *milliseconds);

// The CUstream of the model's calls: what its inputs on the GPU have to be ready for.
void *stepwell_cuda_stream(stepwell_cuda_model *model);

void stepwell_cuda_destroy(stepwell_cuda_model *model);

// Memory on the GPU for results, with one reference. Memory that was released is used again, once the
// GPU has done all that it was asked to do until then.
const char *stepwell_cuda_take(int64_t bytes, stepwell_cuda_block **block);
void stepwell_cuda_release(stepwell_cuda_block *block);
void *stepwell_cuda_address(const stepwell_cuda_block *block);
const char *stepwell_cuda_upload(const stepwell_cuda_block *block, const void *source, int64_t bytes);
const char *stepwell_cuda_download(const stepwell_cuda_block *block, void *target, int64_t bytes);

// A DLManagedTensor of dense row-major content, with a reference to the block of its own, which its
// deleter gives back. NULL when memory ran out.
void *stepwell_cuda_export(stepwell_cuda_block *block, int code, int bits, int rank,
                           const int64_t *shape);
// Call the deleter of a DLManagedTensor that nobody took.
void stepwell_cuda_discard(void *tensor);

#ifdef __cplusplus
}
#endif
