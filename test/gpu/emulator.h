// What the parts of the emulator share: which thread runs, and how threads wait for each other.
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { MAX_BLOCK_THREADS = 1024, MAX_CLUSTER = 8, WARP = 32, WARPGROUP = 128, MAP_WORDS = 16 };
enum { MAX_TOGETHER = 16, MAX_THREADS = 384 * MAX_TOGETHER };  // blocks that run together, and their threads

// A place where threads wait until a number of them has come.
typedef struct {
  long generation;
  int waiting;
} meeting;

extern int32_t emulator_tid, emulator_ctaid, emulator_ntid, emulator_nctaid;
extern int32_t emulator_thread;  // which of the threads of all blocks that run together
extern int emulator_backwards;  // threads run backwards, and copies arrive as early as they may

void emulator_fail(const char *sentence);
float emulator_float8(uint8_t code, int mantissa);  // f8E4M3FN with 3 bits of mantissa, f8E5M2 with 2
int emulator_operand(int kind, int right);  // the kind of one side of a product
void emulator_meet_warp(void);
void emulator_reset_copies(int threads);
void emulator_meet(meeting *place, int size);
void emulator_pause(void);         // let other threads run
void emulator_pause_for_phase(void *barrier, int phase);  // the same, until the barrier's phase is another
int emulator_is_in_phase(const void *address, int phase);  // whether a barrier is there, and in this phase
void emulator_moved(void);         // something happened that others may wait for
char *emulator_shared(void);       // what the launch asked for
int emulator_cluster(void);        // how many blocks a cluster has
int emulator_together(void);       // how many blocks run together: a cluster's, or all of a launch
int emulator_rank(void);           // which of them this thread's is
void *emulator_of_block(void *address, int rank);  // where what block `rank` has at `address` lies now

void emulator_reset_bulk(void);
void emulator_wrote(const void *address, int32_t bytes);  // this thread did, to shared memory
int emulator_deliver_copy(int rank);  // let the oldest bulk copy to a block (-1: to any) arrive, if there is one
void emulator_check_products(void);
