// The CUDA driver: its functions, looked up when they are needed (no CUDA headers, no toolkit), and
// its errors as sentences.
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef uint64_t device_address;
typedef int cuda_result;

// One end of a copy of rows, and both of them: CUDA_MEMCPY2D of the driver's headers.
enum { CUDA_HOST_MEMORY = 1, CUDA_DEVICE_MEMORY = 2 };
typedef struct {
  size_t first_byte, first_row;
  int kind;
  const void *host;
  device_address device;
  void *array;
  size_t pitch;
} cuda_rows;
typedef struct {
  cuda_rows source, target;
  size_t row_bytes, rows;
} cuda_copy_2d;

// By the names of the first versions with 64-bit addresses.
#define CUDA_FUNCTIONS(F)                                                                          \
  F(cuInit, (unsigned))                                                                            \
  F(cuDriverGetVersion, (int *))                                                                   \
  F(cuDeviceGetCount, (int *))                                                                     \
  F(cuDeviceGet, (int *, int))                                                                     \
  F(cuDeviceGetName, (char *, int, int))                                                           \
  F(cuDeviceGetAttribute, (int *, int, int))                                                       \
  F(cuDevicePrimaryCtxRetain, (void **, int))                                                      \
  F(cuCtxSetCurrent, (void *))                                                                     \
  F(cuCtxSynchronize, (void))                                                                      \
  F(cuGetErrorName, (cuda_result, const char **))                                                  \
  F(cuGetErrorString, (cuda_result, const char **))                                                \
  F(cuModuleLoadData, (void **, const void *))                                                     \
  F(cuModuleGetFunction, (void **, void *, const char *))                                          \
  F(cuModuleUnload, (void *))                                                                      \
  F(cuFuncSetAttribute, (void *, int, int))                                                        \
  F(cuMemAlloc_v2, (device_address *, size_t))                                                     \
  F(cuMemFree_v2, (device_address))                                                                \
  F(cuMemHostAlloc, (void **, size_t, unsigned))                                                   \
  F(cuMemFreeHost, (void *))                                                                       \
  F(cuMemcpyHtoDAsync_v2, (device_address, const void *, size_t, void *))                          \
  F(cuMemcpyDtoHAsync_v2, (void *, device_address, size_t, void *))                                \
  F(cuMemcpyDtoDAsync_v2, (device_address, device_address, size_t, void *))                        \
  F(cuMemcpy2DAsync_v2, (const cuda_copy_2d *, void *))                                            \
  F(cuStreamCreate, (void **, unsigned))                                                           \
  F(cuStreamSynchronize, (void *))                                                                 \
  F(cuStreamDestroy_v2, (void *))                                                                  \
  F(cuEventCreate, (void **, unsigned))                                                            \
  F(cuEventRecord, (void *, void *))                                                               \
  F(cuEventSynchronize, (void *))                                                                  \
  F(cuEventElapsedTime, (float *, void *, void *))                                                 \
  F(cuEventDestroy_v2, (void *))                                                                   \
  F(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
                     void *, void **, void **))

// How a kernel is launched: CUlaunchConfig and CUlaunchAttribute of the driver's headers.
enum { CUDA_CLUSTER_DIMENSION = 4, CUDA_PROGRAMMATIC_SERIALIZATION = 6, CUDA_LAUNCH_ATTRIBUTES = 2 };
typedef struct {
  int kind;
  _Alignas(8) union {
    unsigned cluster[3];
    int allowed;
    unsigned char bytes[64];
  } value;
} cuda_launch_attribute;
typedef struct {
  unsigned blocks[3], threads[3], shared_bytes;
  void *stream;
  cuda_launch_attribute *attributes;
  unsigned attribute_count;
} cuda_launch_config;

// What later drivers have: NULL in others, which launch kernels one by one.
#define CUDA_GRAPH_FUNCTIONS(F)                                            \
  F(cuStreamBeginCapture_v2, (void *, int))                                \
  F(cuStreamEndCapture, (void *, void **))                                 \
  F(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long))    \
  F(cuGraphLaunch, (void *, void *))                                       \
  F(cuGraphDestroy, (void *))                                              \
  F(cuGraphExecDestroy, (void *))                                          \
  F(cuEventRecordWithFlags, (void *, void *, unsigned))

// NULL in drivers before CUDA 11.8, which know no GPU with clusters.
#define CUDA_CLUSTER_FUNCTIONS(F)                                             \
  F(cuLaunchKernelEx, (const cuda_launch_config *, void *, void **, void **)) \
  F(cuOccupancyMaxActiveClusters, (int *, void *, const cuda_launch_config *))

// NULL in drivers before CUDA 12, which know no GPU with tensor maps: type, rank, address, sizes,
// strides; box, steps, or the window's corners, channels, pixels, steps; interleaving, swizzle,
// promotion in L2, filling.
#define CUDA_TENSOR_MAP_FUNCTIONS(F)                                                               \
  F(cuTensorMapEncodeTiled, (void *, int, uint32_t, void *, const uint64_t *, const uint64_t *,     \
                             const uint32_t *, const uint32_t *, int, int, int, int))             \
  F(cuTensorMapEncodeIm2col, (void *, int, uint32_t, void *, const uint64_t *, const uint64_t *,    \
                              const int *, const int *, uint32_t, uint32_t, const uint32_t *, int, \
                              int, int, int))

struct cuda_functions {
#define CUDA_MEMBER(name, arguments) cuda_result(*name) arguments;
  CUDA_FUNCTIONS(CUDA_MEMBER)
  CUDA_GRAPH_FUNCTIONS(CUDA_MEMBER)
  CUDA_CLUSTER_FUNCTIONS(CUDA_MEMBER)
  CUDA_TENSOR_MAP_FUNCTIONS(CUDA_MEMBER)
#undef CUDA_MEMBER
};

extern struct cuda_functions cuda;

// Look the functions up in `library`, once for the process. NULL or a message, as in stepwell_cuda.h.
const char *cuda_look_up(const char *library);

// A message, printf's way; it stays valid in this thread until the next one.
const char *cuda_sentence(const char *format, ...) __attribute__((format(printf, 1, 2)));

// "the CUDA driver could not <doing>: <why>".
const char *cuda_failed(const char *doing, cuda_result code);

// Return the message of a driver function that failed.
#define TRY(doing, call)                              \
  do {                                                \
    const cuda_result code_ = (call);                 \
    if (code_) return cuda_failed(doing, code_);      \
  } while (0)

// The multiprocessors of the GPU that stepwell_cuda_open found.
int cuda_multiprocessors(void);

// Make the context of the GPU that stepwell_cuda_open found that of the calling thread.
const char *cuda_enter(void);

// Give the driver back the memory of all released blocks.
void cuda_free_unused(void);
