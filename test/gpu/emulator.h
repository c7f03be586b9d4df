// What the parts of the emulator share: which thread runs, and how threads wait for each other.
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { MAX_THREADS = 1024, WARP = 32 };

extern int32_t emulator_tid, emulator_ctaid, emulator_ntid, emulator_nctaid;
extern int emulator_backwards;  // threads run backwards, and copies arrive as early as they may

void emulator_fail(const char *sentence);
void emulator_meet_warp(void);
void emulator_reset_copies(void);
