/* Stands for libnccl.so.2: collectives that return at once, and the threads beside them. */
#include <pthread.h>
#include <sched.h>

#include "mapping.h"

static struct world *world;
static struct queue *own;
static int my_rank;

void ncclAllReduce(uint32_t group) {
  struct operation *one = &own->operations[own->enqueued % QUEUE_DEPTH];
  uint64_t sequence = ++own->called[group];
  *one = (struct operation){COLLECTIVE, group, sequence, 0, now_ns(CLOCK_REALTIME), 0};
  own->enqueued++;
}

/* Network operations are outstanding while the oldest operation is a collective. */
static int outstanding(void) {
  if (own->finished >= own->enqueued) return 0;
  return own->operations[own->finished % QUEUE_DEPTH].kind == COLLECTIVE;
}

static void *proxy(void *nothing) {
  struct timespec nap = {0, 1000000};
  for (;;) {
    while (outstanding()) sched_yield();
    nanosleep(&nap, NULL); /* NCCL's sleeps on a condition */
  }
  return nothing;
}

static void *watchdog(void *nothing) {
  struct timespec nap = {0, 100000000};
  for (;;) nanosleep(&nap, NULL);
  return nothing;
}

static void *heartbeat(void *nothing) {
  struct timespec nap = {0, 200000000};
  for (;;) nanosleep(&nap, NULL);
  return nothing;
}

/* `proxies`: threads that talk to other hosts; they have no name of their own. Torch names its
   threads since 2.6 (`named`); before, a job was known by those of a gloo group beside. */
void spinning_start(const char *path, int rank, int proxies, int named) {
  pthread_t thread;
  world = map_world(path);
  my_rank = rank;
  own = &world->queues[rank];
  pthread_create(&thread, NULL, watchdog, NULL);
  pthread_setname_np(thread, named ? "pt_nccl_watchdg" : "gloo_tcp_loop");
  pthread_create(&thread, NULL, heartbeat, NULL);
  if (named) pthread_setname_np(thread, "pt_nccl_heartbt");
  while (proxies-- > 0) pthread_create(&thread, NULL, proxy, NULL);
}
