/* Stands for libcuda.so.1: launches, and waits that use a core until the device is done. */
#include <pthread.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>

#include "mapping.h"

static struct world *world;
static struct queue *own;

static void *handle_events(void *nothing) {
  struct pollfd never = {-1, 0, 0};
  for (;;) poll(&never, 1, -1);
  return nothing;
}

void spinning_open(const char *path, int rank) {
  pthread_t thread;
  world = map_world(path);
  own = &world->queues[rank];
  pthread_create(&thread, NULL, handle_events, NULL);
  pthread_setname_np(thread, "cuda-EvtHandlr");
}

static uint64_t waits(uint64_t wanted) {
  uint64_t turns = 0;
  while (own->finished < wanted) {
    for (volatile int pause = 0; pause < 400; pause++) {
    }
    if (++turns % 64 == 0) sched_yield(); /* as with more contexts than cores */
  }
  return turns;
}

void cuLaunchKernel(uint64_t microseconds) {
  struct operation *one = &own->operations[own->enqueued % QUEUE_DEPTH];
  waits(own->enqueued > RUN_AHEAD ? own->enqueued - RUN_AHEAD : 0);
  *one = (struct operation){KERNEL, 0, 0, microseconds, now_ns(CLOCK_REALTIME), 0};
  own->enqueued++;
}

void cuLaunchHungKernel(void) {
  struct operation *one = &own->operations[own->enqueued % QUEUE_DEPTH];
  *one = (struct operation){HUNG_KERNEL, 0, 0, 0, now_ns(CLOCK_REALTIME), 0};
  own->enqueued++;
}

int cuStreamSynchronize(void) { return waits(own->enqueued) & 0; }
