// See cuda_library_call.h.
#include "cuda_library_call.h"

#include <stdlib.h>

enum { HEADER = 6, BUFFER = 5, ARGUMENT = 4, MOST_ARGUMENTS = 24, ALIGNMENT = 64 };
enum { NO_ADDRESS, LITERAL, BUFFER_PLACE, WORK_PLACE };  // kinds of arguments
enum { COPIED_IN = 1, COPIED_OUT = 2 };

// A function of Fortran's kind with as many arguments as any has. Those beyond its own lie in registers,
// or on the caller's part of the stack, where it does not look.
typedef void function(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *,
                      void *, void *, void *, void *, void *, void *, void *, void *, void *, void *,
                      void *, void *, void *, void *);

static int64_t aligned(int64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static const int64_t *works(const int64_t *code) { return code + HEADER + BUFFER * code[3]; }

static const int64_t *arguments(const int64_t *code) { return works(code) + code[4]; }

static int64_t bytes_of(const int64_t *code, int64_t number) {
  return number < code[3] ? code[HEADER + BUFFER * number + 3] : works(code)[number - code[3]];
}

int64_t cuda_library_call_length(const int64_t *code, int64_t left) {
  if (left < HEADER) return 0;
  for (int i = 2; i < HEADER; i++)
    if (code[i] < 0) return 0;
  if (code[5] > MOST_ARGUMENTS || code[3] > left / BUFFER || code[4] > left) return 0;
  const int64_t length = HEADER + BUFFER * code[3] + code[4] + ARGUMENT * code[5];
  return length <= left ? length : 0;
}

int64_t cuda_library_call_place(int64_t buffer) { return HEADER + BUFFER * buffer; }

int64_t cuda_library_call_bytes(const int64_t *code) {
  int64_t total = 0;
  for (int64_t i = 0; i < code[3] + code[4]; i++) {
    if (bytes_of(code, i) < 0) return -1;
    total += aligned(bytes_of(code, i));
  }
  for (int64_t i = 0; i < code[5]; i++) {
    const int64_t *argument = arguments(code) + ARGUMENT * i;
    if (argument[0] < NO_ADDRESS || argument[0] > WORK_PLACE) return -1;
    if (argument[0] <= LITERAL) continue;
    const int64_t count = argument[0] == BUFFER_PLACE ? code[3] : code[4];
    if (argument[1] < 0 || argument[1] >= count || argument[2] < 0 || argument[3] < 0) return -1;
  }
  return total;
}

static unsigned char *start(const int64_t *code, unsigned char *memory, int64_t number) {
  for (int64_t i = 0; i < number; i++) memory += aligned(bytes_of(code, i));
  return memory;
}

// The address of an argument for matrix `item` of the batch.
static void *address(const int64_t *code, const int64_t *argument, unsigned char *memory,
                     int64_t item) {
  if (argument[0] == NO_ADDRESS) return NULL;
  if (argument[0] == LITERAL) return (void *)(argument + 1);
  const int64_t number = argument[1] + (argument[0] == WORK_PLACE ? code[3] : 0);
  return start(code, memory, number) + argument[2] + item * argument[3];
}

static const char *copy(const int64_t *code, const device_address *addresses, unsigned char *memory,
                        int64_t direction, void *stream) {
  for (int64_t i = 0; i < code[3]; i++) {
    const int64_t place = cuda_library_call_place(i), bytes = code[place + 3];
    if (!bytes || !(code[place + 4] & direction)) continue;
    unsigned char *here = start(code, memory, i);
    if (direction == COPIED_IN)
      TRY("copy to the host",
          cuda.cuMemcpyDtoHAsync_v2(here, addresses[place], (size_t)bytes, stream));
    else
      TRY("copy from the host",
          cuda.cuMemcpyHtoDAsync_v2(addresses[place], here, (size_t)bytes, stream));
  }
  return NULL;
}

const char *cuda_library_call_run(const int64_t *code, void *const *functions,
                                  const device_address *addresses, unsigned char *memory,
                                  void *stream) {
  const char *problem = copy(code, addresses, memory, COPIED_IN, stream);
  if (problem) return problem;
  // Also for what an earlier call copies out of the same memory.
  TRY("run the model", cuda.cuStreamSynchronize(stream));
  function *called = (function *)functions[code[1]];
  for (int64_t item = 0; item < code[2]; item++) {
    void *a[MOST_ARGUMENTS] = {NULL};
    for (int64_t i = 0; i < code[5]; i++)
      a[i] = address(code, arguments(code) + ARGUMENT * i, memory, item);
    called(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13],
           a[14], a[15], a[16], a[17], a[18], a[19], a[20], a[21], a[22], a[23]);
  }
  return copy(code, addresses, memory, COPIED_OUT, stream);
}
