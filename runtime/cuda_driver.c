// See cuda_driver.h.
#include "cuda_driver.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>

struct cuda_functions cuda;

static _Thread_local char message[512];

const char *cuda_sentence(const char *format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(message, sizeof message, format, values);
  va_end(values);
  return message;
}

const char *cuda_failed(const char *doing, cuda_result code) {
  const char *name = NULL, *text = NULL;
  cuda.cuGetErrorName(code, &name);
  cuda.cuGetErrorString(code, &text);
  return cuda_sentence("the CUDA driver could not %s: %s (%s, error %d)", doing,
                       text ? text : "no reason given", name ? name : "unknown", code);
}

const char *cuda_look_up(const char *library) {
  static void *driver;
  if (driver) return NULL;
  void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (!handle) return cuda_sentence("there is no CUDA driver here: %s", dlerror());
#define LOOK_UP(name, arguments)                                                              \
  if (!(cuda.name = (cuda_result(*) arguments)dlsym(handle, #name))) {                        \
    dlclose(handle);                                                                          \
    return cuda_sentence("the CUDA driver %s is too old: it lacks " #name, library);          \
  }
  CUDA_FUNCTIONS(LOOK_UP)
#define LOOK_UP_LATER(name, arguments) cuda.name = (cuda_result(*) arguments)dlsym(handle, #name);
  CUDA_GRAPH_FUNCTIONS(LOOK_UP_LATER)
  CUDA_CLUSTER_FUNCTIONS(LOOK_UP_LATER)
  CUDA_TENSOR_MAP_FUNCTIONS(LOOK_UP_LATER)
  driver = handle;
  return NULL;
}
