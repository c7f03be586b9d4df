// Calls of library functions on the host between the launches of a program
// (python/stepwell/launch.py: CALL): operands come to memory of the host, results go back.
#pragma once

#include <stdint.h>

#include "cuda_driver.h"

// The length of the call at `code`, of which `left` integers are left; 0 when it is damaged.
int64_t cuda_library_call_length(const int64_t *code, int64_t left);

// Where the place of buffer `buffer` stands behind the beginning of a call; their count is code[3].
int64_t cuda_library_call_place(int64_t buffer);

// The bytes of the host's memory that a call takes; -1 when its arguments are damaged.
int64_t cuda_library_call_bytes(const int64_t *code);

// Ask `stream` for the operands, wait for them, call, and ask for the copies of the results.
// `addresses` are those of the places, counted from the beginning of the call.
const char *cuda_library_call_run(const int64_t *code, void *const *functions,
                                  const device_address *addresses, unsigned char *memory,
                                  void *stream);
