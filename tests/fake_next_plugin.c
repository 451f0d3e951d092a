/* A plug-in of somebody else, to stand behind ours: it follows every handle it gets, as most do, and counts its calls. */
#define _GNU_SOURCE
#include "nccl_abi.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

struct event {
  unsigned magic;
  int kind;
};
static _Atomic long starts[16], stops[16], records[16], parents[16], bad;
static _Atomic int active;

static int kind_of(unsigned type) { return __builtin_ctz(type) + 1; }

static int follow(void *handle) {
  struct event *event = handle;
  if (event && event->magic != 0x5eed) atomic_fetch_add(&bad, 1);
  return event != NULL;
}

static int begin(void **context, int *mask) {
  const char *wanted = getenv("FAKE_NEXT_MASK");
  *mask = wanted ? atoi(wanted) : 0x7fff;
  *context = &active;
  atomic_fetch_add(&active, 1);
  return 0;
}
static int init_v1(void **context, int *mask) { return begin(context, mask); }
static int init_v4(void **context, int *mask, const char *name, uint64_t hash, int nnodes, int nranks, int rank, abi_logger log) {
  (void)name, (void)hash, (void)nnodes, (void)nranks, (void)rank, (void)log;
  return begin(context, mask);
}
static int init_v5(void **context, uint64_t id, int *mask, const char *name, int nnodes, int nranks, int rank, abi_logger log) {
  (void)id, (void)name, (void)nnodes, (void)nranks, (void)rank, (void)log;
  return begin(context, mask);
}

static int start_any(void *context, void **handle, unsigned type, void *parent, void *group) {
  struct event *event = malloc(sizeof *event); /* never freed: children may come late */
  if (context != &active) atomic_fetch_add(&bad, 1);
  event->magic = 0x5eed, event->kind = kind_of(type);
  atomic_fetch_add(&parents[event->kind], follow(parent) + 2 * follow(group));
  atomic_fetch_add(&starts[event->kind], 1);
  *handle = event;
  return 0;
}
static int start_old(void *context, void **handle, void *descr) {
  struct abi_descr_v4 *d = descr;
  void *parent = d->type == EV_PROXY_OP && d->parent == (void *)0x7e57000000000001 ? NULL : d->parent; /* of another process */
  return start_any(context, handle, d->type, parent, NULL);
}
static int start_new(void *context, void **handle, void *descr) {
  struct abi_descr_v6 *d = descr;
  void *parent = d->type == EV_PROXY_OP && d->parent == (void *)0x7e57000000000001 ? NULL : d->parent;
  void *group = d->type == EV_COLL ? d->coll.group : d->type == EV_P2P ? d->p2p.group : NULL;
  return start_any(context, handle, (unsigned)d->type, parent, group);
}
static int stop(void *handle) {
  if (follow(handle)) atomic_fetch_add(&stops[((struct event *)handle)->kind], 1);
  return 0;
}
static int record(void *handle, int state, void *with) {
  (void)state, (void)with;
  if (follow(handle)) atomic_fetch_add(&records[((struct event *)handle)->kind], 1);
  return 0;
}
static int finalize(void *context) {
  if (context != &active) atomic_fetch_add(&bad, 1);
  const char *path = getenv("FAKE_NEXT_FILE");
  FILE *file = atomic_fetch_sub(&active, 1) == 1 && path ? fopen(path, "w") : NULL;
  if (!file) return 0;
  for (int i = 1; i < 16; i++) fprintf(file, "%d %ld %ld %ld %ld\n", i, starts[i], stops[i], records[i], parents[i]);
  fprintf(file, "bad %ld\n", bad);
  fclose(file);
  return 0;
}

struct abi_profiler ncclProfiler_v1 = {"Fake", {.v1 = init_v1}, start_old, stop, record, finalize};
struct abi_profiler ncclProfiler_v2 = {"Fake", {.v1 = init_v1}, start_old, stop, record, finalize};
struct abi_profiler ncclProfiler_v3 = {"Fake", {.v1 = init_v1}, start_old, stop, record, finalize};
struct abi_profiler ncclProfiler_v4 = {"Fake", {.v4 = init_v4}, start_old, stop, record, finalize};
struct abi_profiler ncclProfiler_v5 = {"Fake", {.v5 = init_v5}, start_new, stop, record, finalize};
#ifndef ONLY_V5
struct abi_profiler ncclProfiler_v6 = {"Fake", {.v5 = init_v5}, start_new, stop, record, finalize};
#endif
