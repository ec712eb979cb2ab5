#ifndef SPINNING_MAPPING_H
#define SPINNING_MAPPING_H

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "world.h"

static inline struct world *map_world(const char *path) {
  int file = open(path, O_RDWR);
  if (file < 0) abort();
  void *at = mmap(NULL, sizeof(struct world), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) abort();
  close(file);
  return at;
}

static inline uint64_t now_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
