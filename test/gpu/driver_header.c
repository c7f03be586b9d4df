// What the runtime knows of the CUDA driver, beside the driver's own header. It only has to compile.
#include <cuda.h>
#include <stddef.h>

#include "cuda_driver.h"
#include "cuda_program.h"

#define SAME(ours, theirs) _Static_assert((long)(ours) == (long)(theirs), #ours " is " #theirs)
#define SAME_PLACE(ours, member, theirs, other) \
  SAME(offsetof(ours, member), offsetof(theirs, other))

SAME(sizeof(cuda_launch_attribute), sizeof(CUlaunchAttribute));
SAME_PLACE(cuda_launch_attribute, value, CUlaunchAttribute, value);
SAME(sizeof(cuda_launch_config), sizeof(CUlaunchConfig));
SAME_PLACE(cuda_launch_config, threads, CUlaunchConfig, blockDimX);
SAME_PLACE(cuda_launch_config, shared_bytes, CUlaunchConfig, sharedMemBytes);
SAME_PLACE(cuda_launch_config, stream, CUlaunchConfig, hStream);
SAME_PLACE(cuda_launch_config, attributes, CUlaunchConfig, attrs);
SAME_PLACE(cuda_launch_config, attribute_count, CUlaunchConfig, numAttrs);
SAME(CUDA_CLUSTER_DIMENSION, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
SAME(CUDA_PROGRAMMATIC_SERIALIZATION, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
SAME(sizeof(cuda_copy_2d), sizeof(CUDA_MEMCPY2D));
SAME_PLACE(cuda_copy_2d, source.kind, CUDA_MEMCPY2D, srcMemoryType);
SAME_PLACE(cuda_copy_2d, source.host, CUDA_MEMCPY2D, srcHost);
SAME_PLACE(cuda_copy_2d, source.device, CUDA_MEMCPY2D, srcDevice);
SAME_PLACE(cuda_copy_2d, source.pitch, CUDA_MEMCPY2D, srcPitch);
SAME_PLACE(cuda_copy_2d, target.kind, CUDA_MEMCPY2D, dstMemoryType);
SAME_PLACE(cuda_copy_2d, target.pitch, CUDA_MEMCPY2D, dstPitch);
SAME_PLACE(cuda_copy_2d, row_bytes, CUDA_MEMCPY2D, WidthInBytes);
SAME_PLACE(cuda_copy_2d, rows, CUDA_MEMCPY2D, Height);
SAME(CUDA_HOST_MEMORY, CU_MEMORYTYPE_HOST);
SAME(CUDA_DEVICE_MEMORY, CU_MEMORYTYPE_DEVICE);
SAME(sizeof(cuda_tensor_map), sizeof(CUtensorMap));
SAME(_Alignof(cuda_tensor_map), _Alignof(CUtensorMap));
SAME(sizeof(device_address), sizeof(CUdeviceptr));

// By number in runtime/*.c.
SAME(8, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(13, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
SAME(16, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(75, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(76, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(1, CU_STREAM_NON_BLOCKING);
SAME(1, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME(1, CU_EVENT_RECORD_EXTERNAL);
SAME(0, CU_TENSOR_MAP_INTERLEAVE_NONE);
SAME(3, CU_TENSOR_MAP_SWIZZLE_128B);
SAME(3, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
SAME(0, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);

// Of kernels/gpu/tensor_map.py.
SAME(TYPE_f16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
SAME(TYPE_bf16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
SAME(TYPE_f32, CU_TENSOR_MAP_DATA_TYPE_FLOAT32);
SAME(TYPE_tf32, CU_TENSOR_MAP_DATA_TYPE_TFLOAT32);
SAME(TYPE_i32, CU_TENSOR_MAP_DATA_TYPE_INT32);
SAME(TYPE_i8, CU_TENSOR_MAP_DATA_TYPE_UINT8);

// Functions as they are called: pointers and integers of the same sizes.
#define CALLED(name, ...) \
  static inline void call_##name(void) { (void)sizeof(name(__VA_ARGS__)); }
CALLED(cuLaunchKernelEx, (CUlaunchConfig *)0, (CUfunction)0, (void **)0, (void **)0)
CALLED(cuOccupancyMaxActiveClusters, (int *)0, (CUfunction)0, (CUlaunchConfig *)0)
CALLED(cuTensorMapEncodeTiled, (CUtensorMap *)0, 0, (uint32_t)0, (void *)0, (uint64_t *)0,
       (uint64_t *)0, (uint32_t *)0, (uint32_t *)0, 0, 0, 0, 0)
CALLED(cuTensorMapEncodeIm2col, (CUtensorMap *)0, 0, (uint32_t)0, (void *)0, (uint64_t *)0,
       (uint64_t *)0, (int *)0, (int *)0, (uint32_t)0, (uint32_t)0, (uint32_t *)0, 0, 0, 0, 0)
CALLED(cuGraphInstantiateWithFlags, (CUgraphExec *)0, (CUgraph)0, 0ull)
CALLED(cuEventRecordWithFlags, (CUevent)0, (CUstream)0, 0u)
