/* Finishes operations of all ranks in order, whatever their hosts do. Ends with its parent. */
#include <signal.h>
#include <sys/prctl.h>

#include "mapping.h"

static int is_done(struct world *world, struct queue *queue, struct operation *one, int rank) {
  if (one->kind == HUNG_KERNEL) return 0;
  if (one->kind == KERNEL) {
    uint64_t now = now_ns(CLOCK_MONOTONIC);
    if (!queue->began_ns) queue->began_ns = now;
    return now - queue->began_ns >= one->microseconds * 1000;
  }
  queue->joined[one->group] = one->sequence;
  if (world->broken_groups >> one->group & 1) return 0;
  for (int other = 0; other < MOST_RANKS; other++)
    if (world->members[one->group] >> other & 1)
      if (world->queues[other].joined[one->group] < one->sequence) return 0;
  return 1;
}

int main(int count, char **words) {
  if (count != 2) return 2;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  struct world *world = map_world(words[1]);
  for (;;) {
    for (int rank = 0; rank < MOST_RANKS; rank++) {
      struct queue *queue = &world->queues[rank];
      while (queue->finished < queue->enqueued) {
        struct operation *one = &queue->operations[queue->finished % QUEUE_DEPTH];
        if (!is_done(world, queue, one, rank)) break;
        one->finished_ns = now_ns(CLOCK_REALTIME);
        queue->began_ns = 0;
        queue->finished++;
      }
    }
    struct timespec nap = {0, 500000};
    nanosleep(&nap, NULL);
  }
}
