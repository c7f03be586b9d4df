// Memory on the GPU for results, and DLPack tensors in it. Nothing here waits for Python: a consumer
// may delete a tensor in any thread, and after the interpreter has ended.
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_driver.h"
#include "stepwell_cuda.h"

#define EXPORT __attribute__((visibility("default")))

enum { ALIGNMENT = 256, DLPACK_CUDA = 2 };

struct stepwell_cuda_block {
  device_address address;
  int64_t bytes;
  atomic_int references;
  stepwell_cuda_block *next;  // among the free ones
};

// https://dmlc.github.io/dlpack/latest/c_api.html, version 0.8.
typedef struct {
  void *data;
  struct {
    int32_t type, number;
  } device;
  int32_t rank;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} dlpack_tensor;

typedef struct managed_tensor {
  dlpack_tensor tensor;
  void *owner;
  void (*deleter)(struct managed_tensor *);
} managed_tensor;

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static stepwell_cuda_block *unused;

// Take a block of this size off the list of free ones; NULL when there is none.
static stepwell_cuda_block *found(int64_t bytes) {
  pthread_mutex_lock(&guard);
  stepwell_cuda_block **link = &unused;
  while (*link && (*link)->bytes != bytes) link = &(*link)->next;
  stepwell_cuda_block *block = *link;
  if (block) *link = block->next;
  pthread_mutex_unlock(&guard);
  return block;
}

void cuda_free_unused(void) {
  pthread_mutex_lock(&guard);
  while (unused) {
    stepwell_cuda_block *block = unused;
    unused = block->next;
    cuda.cuMemFree_v2(block->address);
    free(block);
  }
  pthread_mutex_unlock(&guard);
}

static const char *allocate(int64_t bytes, stepwell_cuda_block **block) {
  stepwell_cuda_block *made = calloc(1, sizeof *made);
  if (!made) return "there is not enough memory";
  made->bytes = bytes;
  cuda_result code = cuda.cuMemAlloc_v2(&made->address, (size_t)bytes);
  if (code) {
    cuda_free_unused();
    code = cuda.cuMemAlloc_v2(&made->address, (size_t)bytes);
  }
  if (code) {
    free(made);
    return cuda_failed("allocate memory for a result", code);
  }
  *block = made;
  return NULL;
}

EXPORT const char *stepwell_cuda_take(int64_t bytes, stepwell_cuda_block **block) {
  const char *problem = cuda_enter();
  if (problem) return problem;
  const int64_t rounded = (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
  *block = found(rounded);
  if (*block) {
    // Whoever released it may have asked for work on it that is not done yet.
    const cuda_result code = cuda.cuCtxSynchronize();
    if (code) problem = cuda_failed("end what it was doing", code);
  } else {
    problem = allocate(rounded, block);
  }
  if (!problem) (*block)->references = 1;
  return problem;
}

EXPORT void stepwell_cuda_release(stepwell_cuda_block *block) {
  if (atomic_fetch_sub(&block->references, 1) > 1) return;
  pthread_mutex_lock(&guard);
  block->next = unused;
  unused = block;
  pthread_mutex_unlock(&guard);
}

EXPORT void *stepwell_cuda_address(const stepwell_cuda_block *block) {
  return (void *)(uintptr_t)block->address;
}

EXPORT const char *stepwell_cuda_upload(const stepwell_cuda_block *block, const void *source,
                                        int64_t bytes) {
  const char *problem = cuda_enter();
  if (problem || !bytes) return problem;
  TRY("copy an array to the GPU",
      cuda.cuMemcpyHtoDAsync_v2(block->address, source, (size_t)bytes, NULL));
  TRY("copy an array to the GPU", cuda.cuStreamSynchronize(NULL));
  return NULL;
}

EXPORT const char *stepwell_cuda_download(const stepwell_cuda_block *block, void *target,
                                          int64_t bytes) {
  const char *problem = cuda_enter();
  if (problem || !bytes) return problem;
  TRY("copy a result from the GPU",
      cuda.cuMemcpyDtoHAsync_v2(target, block->address, (size_t)bytes, NULL));
  TRY("copy a result from the GPU", cuda.cuStreamSynchronize(NULL));
  return NULL;
}

static void delete_tensor(managed_tensor *managed) {
  stepwell_cuda_release(managed->owner);
  free(managed);
}

EXPORT void *stepwell_cuda_export(stepwell_cuda_block *block, int code, int bits, int rank,
                                  const int64_t *shape) {
  const size_t shape_bytes = (size_t)rank * sizeof *shape;
  managed_tensor *managed = calloc(1, sizeof *managed + 2 * shape_bytes);
  if (!managed) return NULL;
  int64_t *sizes = (int64_t *)(managed + 1), *strides = sizes + rank;
  if (rank) memcpy(sizes, shape, shape_bytes);
  int64_t elements = 1;
  for (int i = rank - 1; i >= 0; i--) {
    strides[i] = elements;
    elements *= sizes[i];
  }
  dlpack_tensor *tensor = &managed->tensor;
  tensor->data = stepwell_cuda_address(block);
  tensor->device.type = DLPACK_CUDA;
  tensor->rank = rank;
  tensor->dtype.code = (uint8_t)code;
  tensor->dtype.bits = (uint8_t)bits;
  tensor->dtype.lanes = 1;
  tensor->shape = sizes;
  tensor->strides = strides;
  managed->owner = block;
  managed->deleter = delete_tensor;
  atomic_fetch_add(&block->references, 1);
  return managed;
}

EXPORT void stepwell_cuda_discard(void *tensor) {
  managed_tensor *managed = tensor;
  if (managed->deleter) managed->deleter(managed);
}
