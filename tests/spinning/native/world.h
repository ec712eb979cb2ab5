/* The devices of all ranks: a file that every rank maps, and one program that lets them work. */
#ifndef SPINNING_WORLD_H
#define SPINNING_WORLD_H

#include <stdatomic.h>
#include <stdint.h>

#define MOST_RANKS 16
#define MOST_GROUPS 8
#define QUEUE_DEPTH 4096
#define RUN_AHEAD 1000 /* launches; CUDA's own queue holds 1,024 */

enum kind { KERNEL = 1, COLLECTIVE = 2, HUNG_KERNEL = 3 };

struct operation {
  uint32_t kind, group;
  uint64_t sequence;     /* of a collective, in its group, from 1 */
  uint64_t microseconds; /* of a kernel */
  uint64_t created_ns, finished_ns;
};

struct queue {
  _Atomic uint64_t enqueued, finished;
  uint64_t began_ns; /* of the oldest unfinished operation, 0: not begun */
  uint64_t called[MOST_GROUPS], joined[MOST_GROUPS];
  struct operation operations[QUEUE_DEPTH];
};

struct world {
  _Atomic uint32_t ranks, broken_groups; /* a bit for each group whose links are dead */
  _Atomic uint32_t members[MOST_GROUPS]; /* a bit for each rank */
  struct queue queues[MOST_RANKS];
};

#endif
