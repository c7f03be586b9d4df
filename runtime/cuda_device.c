// The GPU: what it is, and how fast its memory is.
#include <pthread.h>

#include "cuda_driver.h"
#include "stepwell_cuda.h"

#define EXPORT __attribute__((visibility("default")))

enum { CLOCK_RATE = 13, MULTIPROCESSORS = 16, CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76 };
enum { TIMED_COPIES = 8 };

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static void *context;
static int multiprocessors;

static const char *open_device(const char *library, stepwell_cuda_device *device) {
  const char *problem = cuda_look_up(library);
  if (problem) return problem;
  TRY("start", cuda.cuInit(0));
  int count = 0, number = 0;
  TRY("count its devices", cuda.cuDeviceGetCount(&count));
  if (!count) return cuda_sentence("the CUDA driver sees no GPU");
  TRY("open the first GPU", cuda.cuDeviceGet(&number, 0));
  TRY("name the GPU", cuda.cuDeviceGetName(device->name, sizeof device->name, number));
  const struct {
    int attribute, *value;
  } facts[] = {{CAPABILITY_MAJOR, &device->major},
               {CAPABILITY_MINOR, &device->minor},
               {MULTIPROCESSORS, &device->multiprocessors},
               {CLOCK_RATE, &device->clock}};
  for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
    TRY("describe the GPU",
        cuda.cuDeviceGetAttribute(facts[i].value, facts[i].attribute, number));
  TRY("tell its version", cuda.cuDriverGetVersion(&device->driver));
  multiprocessors = device->multiprocessors;
  if (!context) TRY("make a context on the GPU", cuda.cuDevicePrimaryCtxRetain(&context, number));
  return NULL;
}

EXPORT const char *stepwell_cuda_open(const char *library, stepwell_cuda_device *device) {
  pthread_mutex_lock(&opening);
  const char *problem = open_device(library, device);
  pthread_mutex_unlock(&opening);
  return problem;
}

int cuda_multiprocessors(void) { return multiprocessors; }

const char *cuda_enter(void) {
  TRY("use its context", cuda.cuCtxSetCurrent(context));
  return NULL;
}

static const char *copies(void *target, void *source, size_t bytes, int count) {
  for (int i = 0; i < count; i++)
    TRY("copy on the GPU", cuda.cuMemcpyDtoDAsync_v2((device_address)target, (device_address)source,
                                                     bytes, NULL));
  return NULL;
}

static const char *time_copies(void *target, void *source, size_t bytes, void *const events[2],
                               float *milliseconds) {
  const char *problem = copies(target, source, bytes, 1);
  if (problem) return problem;
  TRY("time a copy", cuda.cuEventRecord(events[0], NULL));
  if ((problem = copies(target, source, bytes, TIMED_COPIES))) return problem;
  TRY("time a copy", cuda.cuEventRecord(events[1], NULL));
  TRY("time a copy", cuda.cuEventSynchronize(events[1]));
  TRY("time a copy", cuda.cuEventElapsedTime(milliseconds, events[0], events[1]));
  *milliseconds /= TIMED_COPIES;
  return NULL;
}

EXPORT const char *stepwell_cuda_time_copy(int64_t bytes, float *milliseconds) {
  stepwell_cuda_block *blocks[2] = {NULL, NULL};
  void *events[2] = {NULL, NULL};
  const char *problem = cuda_enter();
  for (int i = 0; i < 2 && !problem; i++) problem = stepwell_cuda_take(bytes, &blocks[i]);
  for (int i = 0; i < 2 && !problem; i++) {
    const cuda_result code = cuda.cuEventCreate(&events[i], 0);
    if (code) problem = cuda_failed("make an event", code);
  }
  if (!problem)
    problem = time_copies(stepwell_cuda_address(blocks[0]), stepwell_cuda_address(blocks[1]),
                          (size_t)bytes, events, milliseconds);
  for (int i = 0; i < 2; i++) {
    if (events[i]) cuda.cuEventDestroy_v2(events[i]);
    if (blocks[i]) stepwell_cuda_release(blocks[i]);
  }
  return problem;
}
