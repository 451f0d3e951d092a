/* The NCCL profiler plug-in of Ringwright: records what NCCL reports, at a few tens of nanoseconds per call.
 *
 * Each thread writes records into a ring of its own (a lane); one background thread copies the lanes into a file, in blocks with
 * length and checksum, so that a killed process leaves a readable prefix. Memory is bounded: a full ring drops records and counts
 * them. A full disk ends the recording and nothing else. No call into this file waits for the file.
 *
 * A handle is a number, never a pointer: generation, lane, slot and kind of the event. Whatever NCCL hands back, however late or
 * from whichever process, is looked up and checked, never followed. A slot is used again only after all others of its lane.
 *
 * NCCL loads one plug-in. RINGWRIGHT_PROFILE_NEXT names another one, which then gets every call that it would have got alone. */
#define _GNU_SOURCE
#include "nccl_abi.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the file is little-endian and so must be the machine"
#endif

_Static_assert(sizeof(struct abi_descr_v1) == 120 && sizeof(struct abi_descr_v2) == 128, "v1, v2: 64-bit layout");
_Static_assert(sizeof(struct abi_descr_v3) == 120 && sizeof(struct abi_descr_v4) == 104, "v3, v4: 64-bit layout");
_Static_assert(sizeof(struct abi_descr_v6) == 112 && offsetof(struct abi_descr_v6, coll.group) == 104, "v5, v6: 64-bit layout");

#define EXPORT __attribute__((visibility("default")))
#define LIKELY(x) __builtin_expect(!!(x), 1)

enum {
  MAX_LANES = 128,
  MAX_CONTEXTS = 1 << 14,
  SLOTS = 1 << 13, /* per lane */
  PROBES = 64,     /* slots tried before an event is dropped */
  WAITS = 7,
  BLOCK_BYTES = 1 << 18,
  HEADER_BYTES = 4096,
  TEXT_AT = 64,
  STATUS_AT = 2048,
  VERSION = 1,
  STEPS_TOO = 1 << 30, /* our own bit: a record for every step of a proxy */
  TAKES_CALLS = ~STEPS_TOO,
};

/* ------------------------------------------------------------------------------------------------ the records of the file */
enum { R_STOP = 32, R_PROXY_STOP, R_KERNEL_STOP, R_STATE, R_COMM, R_THREAD };

struct start { /* every event begins like this; `kind` is 1 + the number of its bit */
  uint8_t kind, words;
  uint16_t context;
  int32_t rank;
  uint64_t id, parent, ns;
};
struct start_coll {
  struct start at;
  uint64_t seq, count, traffic, group;
  int32_t root, op;
  uint8_t channels, warps, spare[6];
  char func[16], datatype[16], algo[24], proto[8];
};
struct start_p2p {
  struct start at;
  uint64_t count, group;
  int32_t peer;
  uint8_t channels, spare[3];
  char func[16], datatype[16];
};
struct start_proxy {
  struct start at;
  int32_t pid, peer, steps, chunk_bytes;
  uint8_t channel, is_send, spare[6];
};
struct step { /* written once, when the step has ended */
  struct start at;
  uint64_t stop_ns, bytes, wait_ns[WAITS];
  int32_t step;
  uint32_t spare;
};
struct start_kernel {
  struct start at;
  uint64_t gpu_ns;
  uint8_t channel, spare[7];
};
struct start_net {
  struct start at;
  int64_t plugin;
};
struct start_api { /* group, collective and point-to-point calls of the application */
  struct start at;
  uint64_t count, stream;
  int32_t root; /* depth for a group */
  uint8_t captured, spare[3];
  char func[16], datatype[16];
};
struct start_launch {
  struct start at;
  uint64_t stream;
};
struct start_ce {
  struct start at;
  uint64_t seq, count, stream;
  int32_t root;
  uint32_t ce_seq, batch_size, batches;
  uint8_t intra_batch_sync, spare[7];
  char func[16], datatype[16], sync[16];
};
struct start_ce_part { /* synchronisation or batch of a copy-engine collective */
  struct start at;
  uint64_t bytes;
  int32_t number; /* ranks or operations */
  uint8_t flag, spare[3];
};
struct stop {
  uint8_t kind, words;
  uint16_t state; /* of R_STATE */
  int32_t value;  /* of R_STATE */
  uint64_t id, ns;
};
struct stop_proxy {
  struct stop at;
  uint64_t bytes, wait_ns[WAITS];
  uint32_t steps, spare;
};
struct stop_kernel {
  struct stop at;
  uint64_t gpu_ns;
};
struct comm_record {
  uint8_t kind, words;
  uint16_t context;
  int32_t rank;
  uint64_t hash, ns;
  int32_t nranks, nnodes;
  uint8_t version, spare[7];
  char name[64];
};
struct thread_record {
  uint8_t kind, words;
  uint16_t spare;
  uint32_t thread;
  uint64_t ns;
};
struct block { /* 64 bytes, then the payload */
  char magic[4];
  uint32_t bytes, crc, lane;
  uint64_t number, mono_ns, real_ns, dropped_ring, dropped_slots;
  uint32_t spare, header_crc;
};
struct status { /* rewritten in place, so that it needs no space on a full disk */
  uint32_t crc, flags;
  uint64_t blocks, bytes, dropped_ring, dropped_slots, dropped_threads, lost_disk, unforwarded, stale;
  uint64_t mono_ns, real_ns;
  uint32_t reason, spare;
};
_Static_assert(sizeof(struct start) == 32 && sizeof(struct start_coll) == 144 && sizeof(struct start_p2p) == 88, "layout");
_Static_assert(sizeof(struct start_proxy) == 56 && sizeof(struct step) == 112 && sizeof(struct start_kernel) == 48, "layout");
_Static_assert(sizeof(struct start_api) == 88 && sizeof(struct start_ce) == 128 && sizeof(struct start_ce_part) == 48, "layout");
_Static_assert(sizeof(struct stop_proxy) == 96 && sizeof(struct stop_kernel) == 32 && sizeof(struct comm_record) == 104, "layout");
_Static_assert(sizeof(struct block) == 64 && sizeof(struct status) == 96, "layout");

/* ------------------------------------------------------------------------------------------------------------- the state */
struct context {
  const struct abi_profiler *next; /* the plug-in behind us, or none */
  void *next_context;
  int next_takes; /* the events that NCCL would have given it alone */
  uint16_t index;
  uint8_t version;
  _Atomic int is_told; /* the communicator of v1 to v3 is known from its first operation only */
};

struct slot {
  _Atomic uint32_t generation; /* odd while the event runs */
  uint8_t state;               /* which wait a step is in */
  uint8_t is_silent;           /* kept for the next plug-in only */
  int32_t number, rank;
  struct context *context;
  _Atomic(void *) next;
  uint64_t parent, start_ns, since_ns;
  _Atomic uint64_t bytes, gpu_ns, wait_ns[WAITS];
  _Atomic uint32_t steps;
};

struct lane {
  _Alignas(64) _Atomic uint64_t head; /* written by the thread */
  uint64_t tail_seen;
  uint32_t next_slot, number;
  _Alignas(64) _Atomic uint64_t tail; /* written by the flusher */
  _Alignas(64) _Atomic uint64_t dropped_ring, dropped_slots, lost_disk;
  _Atomic int is_owned;
  uint8_t *ring;
  struct slot *slots;
};

static struct {
  _Atomic int is_on, is_stopped, is_exiting;
  _Atomic uint32_t is_asleep; /* the flusher waits here */
  _Atomic uint64_t dropped_threads, unforwarded, stale;
  _Atomic int lanes;
  _Atomic(struct lane *) lane[MAX_LANES];
  struct context context[MAX_CONTEXTS];
  _Atomic int contexts, active;
  int events, fd, reason, flags;
  pid_t pid;
  uint64_t ring_bytes, limit_bytes, written, blocks;
  pthread_key_t key;
  void *next_library;
  pid_t once_pid;
  int has_hooks;
  _Atomic int has_warned;
  struct status told; /* what the file's status says, less the clocks */
} all; /* fd is 0 while there is no file */
static pthread_mutex_t admin = PTHREAD_MUTEX_INITIALIZER; /* init, finalize, fork */
static pthread_mutex_t file_lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local struct lane *mine;
static uint8_t block_bytes[sizeof(struct block) + BLOCK_BYTES];

static uint64_t clock_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void warn(const char *what, const char *which) {
  if (all.has_warned++ < 8) fprintf(stderr, "ringwright: NCCL profiler: %s%s%s\n", what, *which ? ": " : "", which);
}

/* ------------------------------------------------------------------------------------------------------------- the lanes */
static void leave_lane(void *lane) {
  mine = NULL;
  atomic_store_explicit(&((struct lane *)lane)->is_owned, 0, memory_order_release);
}

static struct lane *make_lane(void) {
  size_t head = (sizeof(struct lane) + 63) & ~(size_t)63, bytes = head + SLOTS * sizeof(struct slot) + all.ring_bytes;
  int number = atomic_fetch_add(&all.lanes, 1);
  if (number >= MAX_LANES) {
    atomic_fetch_sub(&all.lanes, 1);
    return NULL;
  }
  uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return NULL; /* its number stays empty */
  struct lane *lane = (struct lane *)memory;
  lane->number = (uint32_t)number;
  lane->slots = (struct slot *)(memory + head);
  lane->ring = memory + head + SLOTS * sizeof(struct slot);
  atomic_store(&lane->is_owned, 1);
  atomic_store_explicit(&all.lane[number], lane, memory_order_release);
  return lane;
}

static struct lane *lane_at(uint32_t number) {
  return number < MAX_LANES ? atomic_load_explicit(&all.lane[number], memory_order_acquire) : NULL;
}

static void *reserve(struct lane *lane, size_t bytes);
static void commit(struct lane *lane, size_t bytes);

static struct lane *enter_lane(void) {
  struct lane *lane = NULL;
  for (uint32_t i = 0; i < MAX_LANES && !lane; i++) {
    struct lane *candidate = lane_at(i);
    int idle = 0;
    if (candidate && atomic_compare_exchange_strong(&candidate->is_owned, &idle, 1)) lane = candidate;
  }
  if (!lane) lane = make_lane();
  if (!lane) return NULL;
  mine = lane;
  pthread_setspecific(all.key, lane);
  struct thread_record *record = reserve(lane, sizeof *record);
  if (record) {
    *record = (struct thread_record){
        R_THREAD, sizeof *record / 8, 0, (uint32_t)syscall(SYS_gettid), clock_ns(CLOCK_MONOTONIC)};
    commit(lane, sizeof *record);
  }
  return lane;
}

/* Returns room for one record, or none; a record never wraps, what is left at the end of the ring becomes padding. */
static void *reserve(struct lane *lane, size_t bytes) {
  uint64_t head = atomic_load_explicit(&lane->head, memory_order_relaxed), size = all.ring_bytes;
  uint64_t at = head & (size - 1), pad = at + bytes > size ? size - at : 0;
  if (head + pad + bytes - lane->tail_seen > size) {
    lane->tail_seen = atomic_load_explicit(&lane->tail, memory_order_acquire);
    if (head + pad + bytes - lane->tail_seen > size) {
      atomic_fetch_add_explicit(&lane->dropped_ring, 1, memory_order_relaxed);
      return NULL;
    }
  }
  if (pad) {
    lane->ring[at] = 0;
    lane->ring[at + 1] = (uint8_t)(pad / 8);
    atomic_store_explicit(&lane->head, head + pad, memory_order_release);
    at = 0;
  }
  return lane->ring + at;
}

static void wake_flusher(void) {
  if (atomic_exchange_explicit(&all.is_asleep, 0, memory_order_relaxed)) syscall(SYS_futex, &all.is_asleep, FUTEX_WAKE_PRIVATE, 1);
}

static void commit(struct lane *lane, size_t bytes) {
  uint64_t head = atomic_load_explicit(&lane->head, memory_order_relaxed), after = head + bytes;
  atomic_store_explicit(&lane->head, after, memory_order_release);
  if ((head ^ after) & (all.ring_bytes / 4)) wake_flusher(); /* a quarter is full: do not wait for its next look */
}

/* ----------------------------------------------------------------------------------------------------------- the handles */
static uint64_t pack(uint32_t generation, uint32_t lane, uint32_t slot, uint32_t kind) {
  return (uint64_t)generation | (uint64_t)lane << 32 | (uint64_t)slot << 44 | (uint64_t)kind << 60;
}
static uint32_t kind_of(uint64_t id) { return (uint32_t)(id >> 60); }

/* Returns the slot of a handle whose event runs, or has ended and whose slot nobody else has taken since. */
static struct slot *find(uint64_t id, int may_have_ended) {
  struct lane *lane = id ? lane_at((uint32_t)(id >> 32) & 0xfff) : NULL;
  if (!lane) return NULL;
  struct slot *slot = &lane->slots[(id >> 44) & (SLOTS - 1)];
  uint32_t generation = atomic_load_explicit(&slot->generation, memory_order_acquire);
  return generation == (uint32_t)id || (may_have_ended && generation == (uint32_t)id + 1) ? slot : NULL;
}

static struct slot *take(struct lane *lane, uint32_t kind, uint64_t *id) {
  for (int i = 0; i < PROBES; i++) {
    uint32_t number = lane->next_slot++ & (SLOTS - 1);
    struct slot *slot = &lane->slots[number];
    uint32_t generation = atomic_load_explicit(&slot->generation, memory_order_acquire);
    if (generation & 1) continue;
    atomic_store_explicit(&slot->next, NULL, memory_order_relaxed);
    atomic_store_explicit(&slot->generation, generation + 1, memory_order_release);
    *id = pack(generation + 1, lane->number, number, kind);
    return slot;
  }
  atomic_fetch_add_explicit(&lane->dropped_slots, 1, memory_order_relaxed);
  return NULL;
}

/* -------------------------------------------------------------------------------------------- one event, whatever version */
struct event {
  uint32_t type;
  void **parent, **group; /* where the descriptor holds them, for the next plug-in's handles to be put there */
  int rank, root, op, peer, steps, chunk_bytes, depth, number;
  pid_t pid;
  const char *name, *func, *datatype, *algo, *proto, *sync;
  uint64_t hash, seq, count, traffic, gpu_ns, stream, bytes;
  int64_t plugin;
  uint32_t ce_seq, batch_size, batches;
  uint8_t channels, warps, channel, flag;
};

static void put(char *field, size_t size, const char *text) {
  size_t length = text ? strnlen(text, size - 1) : 0;
  if (length) memcpy(field, text, length);
  memset(field + length, 0, size - length);
}

static size_t size_of(uint32_t type) {
  switch (type) {
    case EV_COLL: return sizeof(struct start_coll);
    case EV_P2P: return sizeof(struct start_p2p);
    case EV_PROXY_OP: return sizeof(struct start_proxy);
    case EV_KERNEL_CH: return sizeof(struct start_kernel);
    case EV_NET: return sizeof(struct start_net);
    case EV_GROUP_API:
    case EV_COLL_API:
    case EV_P2P_API: return sizeof(struct start_api);
    case EV_LAUNCH: return sizeof(struct start_launch);
    case EV_CE_COLL: return sizeof(struct start_ce);
    case EV_CE_SYNC:
    case EV_CE_BATCH: return sizeof(struct start_ce_part);
    default: return sizeof(struct start);
  }
}

static void fill_coll(struct start_coll *r, const struct event *e, uint64_t group) {
  r->seq = e->seq, r->count = e->count, r->traffic = e->traffic, r->group = group;
  r->root = e->root, r->op = e->op, r->channels = e->channels, r->warps = e->warps;
  memset(r->spare, 0, sizeof r->spare);
  put(r->func, sizeof r->func, e->func);
  put(r->datatype, sizeof r->datatype, e->datatype);
  put(r->algo, sizeof r->algo, e->algo);
  put(r->proto, sizeof r->proto, e->proto);
}

static void fill_p2p(struct start_p2p *r, const struct event *e, uint64_t group) {
  r->count = e->count, r->group = group, r->peer = e->peer, r->channels = e->channels;
  memset(r->spare, 0, sizeof r->spare);
  put(r->func, sizeof r->func, e->func);
  put(r->datatype, sizeof r->datatype, e->datatype);
}

static void fill_api(struct start_api *r, const struct event *e) {
  r->count = e->count, r->stream = e->stream, r->root = e->type == EV_GROUP_API ? e->depth : e->root;
  r->captured = e->flag;
  memset(r->spare, 0, sizeof r->spare);
  put(r->func, sizeof r->func, e->func);
  put(r->datatype, sizeof r->datatype, e->datatype);
}

static void fill_ce(struct start_ce *r, const struct event *e) {
  r->seq = e->seq, r->count = e->count, r->stream = e->stream, r->root = e->root;
  r->ce_seq = e->ce_seq, r->batch_size = e->batch_size, r->batches = e->batches, r->intra_batch_sync = e->flag;
  memset(r->spare, 0, sizeof r->spare);
  put(r->func, sizeof r->func, e->func);
  put(r->datatype, sizeof r->datatype, e->datatype);
  put(r->sync, sizeof r->sync, e->sync);
}

static void fill(struct start *at, const struct event *e, uint64_t group) {
  switch (e->type) {
    case EV_COLL: fill_coll((struct start_coll *)at, e, group); break;
    case EV_P2P: fill_p2p((struct start_p2p *)at, e, group); break;
    case EV_PROXY_OP: {
      struct start_proxy *r = (struct start_proxy *)at;
      r->pid = e->pid, r->peer = e->peer, r->steps = e->steps, r->chunk_bytes = e->chunk_bytes;
      r->channel = e->channel, r->is_send = e->flag;
      memset(r->spare, 0, sizeof r->spare);
    } break;
    case EV_KERNEL_CH: {
      struct start_kernel *r = (struct start_kernel *)at;
      r->gpu_ns = e->gpu_ns, r->channel = e->channel;
      memset(r->spare, 0, sizeof r->spare);
    } break;
    case EV_NET: ((struct start_net *)at)->plugin = e->plugin; break;
    case EV_GROUP_API:
    case EV_COLL_API:
    case EV_P2P_API: fill_api((struct start_api *)at, e); break;
    case EV_LAUNCH: ((struct start_launch *)at)->stream = e->stream; break;
    case EV_CE_COLL: fill_ce((struct start_ce *)at, e); break;
    case EV_CE_SYNC:
    case EV_CE_BATCH: {
      struct start_ce_part *r = (struct start_ce_part *)at;
      r->bytes = e->bytes, r->number = e->number, r->flag = e->flag;
      memset(r->spare, 0, sizeof r->spare);
    } break;
    default: break;
  }
}

static void write_comm(struct lane *lane, const struct context *c, uint64_t hash, const char *name, int nnodes, int nranks,
                       int rank) {
  struct comm_record *r = reserve(lane, sizeof *r);
  if (!r) return;
  *r = (struct comm_record){.kind = R_COMM,
                            .words = sizeof *r / 8,
                            .context = c->index,
                            .rank = rank,
                            .hash = hash,
                            .ns = clock_ns(CLOCK_MONOTONIC),
                            .nranks = nranks,
                            .nnodes = nnodes,
                            .version = c->version};
  put(r->name, sizeof r->name, name);
  commit(lane, sizeof *r);
}

/* Hands an event to the next plug-in, with its own handles as parents. */
static void forward_start(struct context *c, struct slot *slot, struct event *e, void *descr) {
  void *kept = *e->parent, *kept_group = e->group ? *e->group : NULL, *handle = NULL;
  int is_foreign = e->type == EV_PROXY_OP && e->pid != all.pid; /* a rank's work done by another process: PXN */
  struct slot *parent = is_foreign ? NULL : find((uint64_t)(uintptr_t)kept, 1);
  *e->parent = parent ? atomic_load_explicit(&parent->next, memory_order_acquire) : NULL;
  if (e->group) {
    struct slot *group = find((uint64_t)(uintptr_t)kept_group, 1);
    *e->group = group ? atomic_load_explicit(&group->next, memory_order_acquire) : NULL;
  }
  c->next->start(c->next_context, &handle, descr);
  *e->parent = kept;
  if (e->group) *e->group = kept_group;
  atomic_store_explicit(&slot->next, handle, memory_order_release);
}

static void open_slot(struct slot *slot, struct context *c, const struct event *e, uint64_t now) {
  slot->context = c;
  slot->state = 0;
  slot->is_silent = 0;
  slot->number = e->steps;
  slot->rank = e->rank;
  slot->parent = (uint64_t)(uintptr_t)*e->parent;
  slot->start_ns = slot->since_ns = now;
  if (e->type & (EV_PROXY_OP | EV_PROXY_STEP | EV_KERNEL_CH)) {
    atomic_store_explicit(&slot->bytes, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->gpu_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->steps, 0, memory_order_relaxed);
    for (int i = 0; i < WAITS; i++) atomic_store_explicit(&slot->wait_ns[i], 0, memory_order_relaxed);
  }
}

static int start_event(struct context *c, void **handle, struct event *e, void *descr) {
  *handle = NULL;
  int wanted = (e->type & (uint32_t)all.events) && atomic_load_explicit(&all.is_on, memory_order_acquire);
  int is_forwarded = c->next && (e->type & (uint32_t)c->next_takes);
  if (!wanted && !is_forwarded) return ABI_SUCCESS;
  struct lane *lane = LIKELY(mine != NULL) ? mine : enter_lane();
  if (!lane) {
    atomic_fetch_add_explicit(&all.dropped_threads, 1, memory_order_relaxed);
    if (is_forwarded) atomic_fetch_add_explicit(&all.unforwarded, 1, memory_order_relaxed);
    return ABI_SUCCESS;
  }
  if (wanted && atomic_load_explicit(&all.is_stopped, memory_order_relaxed)) {
    atomic_fetch_add_explicit(&lane->lost_disk, 1, memory_order_relaxed);
    if (!is_forwarded) return ABI_SUCCESS;
    wanted = 0;
  }
  uint64_t id, now = clock_ns(CLOCK_MONOTONIC), group = e->group ? (uint64_t)(uintptr_t)*e->group : 0;
  uint32_t kind = (uint32_t)__builtin_ctz(e->type) + 1;
  struct slot *slot = take(lane, kind, &id);
  if (!slot) {
    if (is_forwarded) atomic_fetch_add_explicit(&all.unforwarded, 1, memory_order_relaxed);
    return ABI_SUCCESS;
  }
  open_slot(slot, c, e, now);
  if (wanted && c->version < 4 && e->type & (EV_COLL | EV_P2P) && !atomic_exchange(&c->is_told, 1))
    write_comm(lane, c, e->hash, e->name, -1, -1, e->rank);
  if (wanted && e->type != EV_PROXY_STEP) {
    size_t bytes = size_of(e->type);
    struct start *at = reserve(lane, bytes);
    if (at) {
      *at = (struct start){(uint8_t)kind, (uint8_t)(bytes / 8), c->index, e->rank, id, slot->parent, now};
      fill(at, e, group);
      commit(lane, bytes);
    }
    slot->is_silent = !at; /* an event whose start was dropped has no stop either */
  } else {
    slot->is_silent = !wanted;
  }
  if (is_forwarded) forward_start(c, slot, e, descr);
  *handle = (void *)(uintptr_t)id;
  return ABI_SUCCESS;
}

static void add(_Atomic uint64_t *sum, uint64_t more) { atomic_fetch_add_explicit(sum, more, memory_order_relaxed); }

/* Adds a step that has ended to its operation, and writes it where steps are asked for. */
static void stop_step(struct lane *lane, struct slot *slot, uint64_t id, uint64_t now) {
  add(&slot->wait_ns[slot->state], now - slot->since_ns);
  struct slot *op = kind_of(slot->parent) == 4 ? find(slot->parent, 0) : NULL;
  uint64_t bytes = atomic_load_explicit(&slot->bytes, memory_order_relaxed), wait[WAITS];
  for (int i = 0; i < WAITS; i++) {
    wait[i] = atomic_load_explicit(&slot->wait_ns[i], memory_order_relaxed);
    if (op && wait[i]) add(&op->wait_ns[i], wait[i]);
  }
  if (op) {
    if (bytes) add(&op->bytes, bytes);
    atomic_fetch_add_explicit(&op->steps, 1, memory_order_relaxed);
  }
  struct step *r = (all.events & STEPS_TOO) && !slot->is_silent ? reserve(lane, sizeof *r) : NULL;
  if (!r) return;
  r->at = (struct start){5, sizeof *r / 8, slot->context->index, slot->rank, id, slot->parent, slot->start_ns};
  r->stop_ns = now, r->bytes = bytes, r->step = slot->number, r->spare = 0;
  memcpy(r->wait_ns, wait, sizeof wait);
  commit(lane, sizeof *r);
}

static void write_stop(struct lane *lane, struct slot *slot, uint64_t id, uint64_t now) {
  uint32_t kind = kind_of(id);
  size_t bytes = kind == 4 ? sizeof(struct stop_proxy) : kind == 7 ? sizeof(struct stop_kernel) : sizeof(struct stop);
  struct stop *at = reserve(lane, bytes);
  if (!at) return;
  uint8_t record = kind == 4 ? R_PROXY_STOP : kind == 7 ? R_KERNEL_STOP : R_STOP;
  *at = (struct stop){record, (uint8_t)(bytes / 8), 0, 0, id, now};
  if (kind == 4) {
    struct stop_proxy *r = (struct stop_proxy *)at;
    r->bytes = atomic_load_explicit(&slot->bytes, memory_order_relaxed);
    for (int i = 0; i < WAITS; i++) r->wait_ns[i] = atomic_load_explicit(&slot->wait_ns[i], memory_order_relaxed);
    r->steps = atomic_load_explicit(&slot->steps, memory_order_relaxed), r->spare = 0;
  } else if (kind == 7) {
    ((struct stop_kernel *)at)->gpu_ns = atomic_load_explicit(&slot->gpu_ns, memory_order_relaxed);
  }
  commit(lane, bytes);
}

static int stop_event(void *handle) {
  uint64_t id = (uint64_t)(uintptr_t)handle;
  struct slot *slot = find(id, 0);
  if (!slot) {
    if (id) atomic_fetch_add_explicit(&all.stale, 1, memory_order_relaxed);
    return ABI_SUCCESS;
  }
  struct context *c = slot->context;
  void *next = atomic_load_explicit(&slot->next, memory_order_acquire);
  if (!slot->is_silent && atomic_load_explicit(&all.is_on, memory_order_acquire)) {
    struct lane *lane = LIKELY(mine != NULL) ? mine : enter_lane();
    uint64_t now = clock_ns(CLOCK_MONOTONIC);
    if (!lane) {
      atomic_fetch_add_explicit(&all.dropped_threads, 1, memory_order_relaxed);
    } else if (kind_of(id) == 5) {
      stop_step(lane, slot, id, now);
    } else {
      write_stop(lane, slot, id, now);
    }
  }
  uint32_t running = (uint32_t)id;
  atomic_compare_exchange_strong_explicit(&slot->generation, &running, running + 1, memory_order_release, memory_order_relaxed);
  if (next && c->next) c->next->stop(next);
  return ABI_SUCCESS;
}

static int wait_of(int state) {
  switch (state) {
    case ST_SEND_GPU_WAIT: return 1;
    case ST_SEND_PEER_WAIT: return 2;
    case ST_SEND_WAIT: return 3;
    case ST_RECV_WAIT: return 4;
    case ST_RECV_FLUSH_WAIT: return 5;
    case ST_RECV_GPU_WAIT: return 6;
    default: return 0;
  }
}

static void note_state(struct slot *slot, uint64_t id, int state, const union abi_state *with) {
  uint32_t kind = kind_of(id);
  if (kind == 5 && wait_of(state)) {
    uint64_t now = clock_ns(CLOCK_MONOTONIC);
    add(&slot->wait_ns[slot->state], now - slot->since_ns);
    slot->since_ns = now, slot->state = (uint8_t)wait_of(state);
    if (with && slot->context->version >= 4) atomic_store_explicit(&slot->bytes, with->proxy_step.bytes, memory_order_relaxed);
  } else if (kind == 4 && state <= ST_OP_RECV_DONE && with && slot->context->version < 4) {
    /* The size counts up over the operation; steps come in order, their number is no event of its own. */
    if (with->proxy_op.bytes > atomic_load_explicit(&slot->bytes, memory_order_relaxed))
      atomic_store_explicit(&slot->bytes, with->proxy_op.bytes, memory_order_relaxed);
  } else if (kind == 7 && state == ST_KERNEL_STOP && with) {
    atomic_store_explicit(&slot->gpu_ns, with->kernel.gpu_ns, memory_order_relaxed);
  } else if (kind == 6 || kind == 9 || (kind == 4 && state == ST_OP_IN_PROGRESS)) {
    struct lane *lane = LIKELY(mine != NULL) ? mine : enter_lane();
    struct stop *r = lane ? reserve(lane, sizeof *r) : NULL;
    if (!r) return;
    int32_t value = kind == 6 && with ? with->proxy_ctrl.appended : 0;
    *r = (struct stop){R_STATE, sizeof *r / 8, (uint16_t)state, value, id, clock_ns(CLOCK_MONOTONIC)};
    commit(lane, sizeof *r);
  }
}

static int record_state(void *handle, int state, void *arguments) {
  uint64_t id = (uint64_t)(uintptr_t)handle;
  struct slot *slot = find(id, 0);
  if (!slot) {
    if (id) atomic_fetch_add_explicit(&all.stale, 1, memory_order_relaxed);
    return ABI_SUCCESS;
  }
  void *next = atomic_load_explicit(&slot->next, memory_order_acquire);
  if (!slot->is_silent && atomic_load_explicit(&all.is_on, memory_order_acquire)) note_state(slot, id, state, arguments);
  if (next && slot->context->next) slot->context->next->record(next, state, arguments);
  return ABI_SUCCESS;
}

/* -------------------------------------------------------------------------------------------------------------- the file */
static uint32_t crc32_of(uint32_t crc, const void *data, size_t bytes) {
  static uint32_t table[256]; /* filled under file_lock */
  if (!table[1])
    for (uint32_t i = 0; i < 256; i++) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; bit++) value = value >> 1 ^ (value & 1 ? 0xedb88320u : 0);
      table[i] = value;
    }
  crc = ~crc;
  for (const uint8_t *p = data; bytes--; p++) crc = crc >> 8 ^ table[(crc ^ *p) & 0xff];
  return ~crc;
}

static void give_up(int reason, int flag) {
  atomic_store(&all.is_stopped, 1);
  all.reason = reason;
  all.flags |= flag;
  warn(flag ? "the size limit is reached, recording ends, the job goes on" : "recording ends, the job goes on",
       flag ? "" : strerror(reason));
}

/* Writes all bytes or says why not. An interrupted or partial write goes on where it stopped. */
static int write_all(const void *data, size_t bytes) {
  for (const uint8_t *p = data; bytes;) {
    ssize_t done = write(all.fd, p, bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return done < 0 ? errno : EIO;
    p += done, bytes -= (size_t)done;
  }
  return 0;
}

static void write_block(const struct lane *lane, size_t bytes) {
  struct block *b = (struct block *)block_bytes;
  if (all.written + sizeof *b + bytes > all.limit_bytes) return give_up(0, 2);
  *b = (struct block){{'R', 'W', 'B', 'K'},
                      (uint32_t)bytes,
                      crc32_of(0, block_bytes + sizeof *b, bytes),
                      lane->number,
                      all.blocks,
                      clock_ns(CLOCK_MONOTONIC),
                      clock_ns(CLOCK_REALTIME),
                      atomic_load_explicit(&lane->dropped_ring, memory_order_relaxed),
                      atomic_load_explicit(&lane->dropped_slots, memory_order_relaxed),
                      0,
                      0};
  b->header_crc = crc32_of(0, b, sizeof *b - 4);
  int reason = write_all(block_bytes, sizeof *b + bytes);
  if (reason) {
    if (ftruncate(all.fd, (off_t)all.written)) errno = 0; /* the reader passes over half a block, too */
    return give_up(reason, 0);
  }
  all.written += sizeof *b + bytes;
  all.blocks++;
}

static void count_lost(struct lane *lane, uint64_t from, uint64_t until) {
  uint64_t lost = 0;
  while (from < until) {
    const uint8_t *record = lane->ring + (from & (all.ring_bytes - 1));
    lost += record[0] != 0;
    from += (uint64_t)record[1] * 8;
  }
  add(&lane->lost_disk, lost);
}

/* Moves what a lane holds into the file; a block ends at a record because a record is never split. */
static void drain_lane(struct lane *lane) {
  uint64_t tail = atomic_load_explicit(&lane->tail, memory_order_relaxed);
  uint64_t head = atomic_load_explicit(&lane->head, memory_order_acquire), mask = all.ring_bytes - 1;
  while (tail < head) {
    uint64_t bytes = 0;
    while (tail + bytes < head && !atomic_load_explicit(&all.is_stopped, memory_order_relaxed)) {
      const uint8_t *record = lane->ring + ((tail + bytes) & mask);
      size_t size = (size_t)record[1] * 8;
      if (bytes + size > BLOCK_BYTES) break;
      memcpy(block_bytes + sizeof(struct block) + bytes, record, record[0] ? size : 8);
      bytes += size;
    }
    if (bytes) write_block(lane, bytes);
    if (atomic_load_explicit(&all.is_stopped, memory_order_relaxed)) {
      count_lost(lane, tail, head);
      bytes = head - tail;
    }
    tail += bytes;
    atomic_store_explicit(&lane->tail, tail, memory_order_release);
  }
}

static void write_status(void) {
  int is_closed = !atomic_load(&all.active) || atomic_load(&all.is_exiting);
  struct status s = {.flags = (uint32_t)(all.flags | is_closed),
                     .blocks = all.blocks,
                     .bytes = all.written,
                     .dropped_threads = atomic_load(&all.dropped_threads),
                     .unforwarded = atomic_load(&all.unforwarded),
                     .stale = atomic_load(&all.stale),
                     .reason = (uint32_t)all.reason};
  for (uint32_t i = 0; i < MAX_LANES; i++) {
    struct lane *lane = lane_at(i);
    if (!lane) continue;
    s.dropped_ring += atomic_load_explicit(&lane->dropped_ring, memory_order_relaxed);
    s.dropped_slots += atomic_load_explicit(&lane->dropped_slots, memory_order_relaxed);
    s.lost_disk += atomic_load_explicit(&lane->lost_disk, memory_order_relaxed);
  }
  if (!memcmp(&s, &all.told, sizeof s)) return;
  all.told = s;
  s.mono_ns = clock_ns(CLOCK_MONOTONIC), s.real_ns = clock_ns(CLOCK_REALTIME);
  s.crc = crc32_of(0, (const uint8_t *)&s + 4, sizeof s - 4);
  if (pwrite(all.fd, &s, sizeof s, STATUS_AT) < 0) errno = 0;
}

/* Empties all lanes; the caller holds file_lock. A write beyond a limit of the file's size must not signal the job. */
static void drain(void) {
  sigset_t limit, before, pending;
  struct timespec none = {0, 0};
  if (all.fd <= 0) return;
  sigemptyset(&limit);
  sigaddset(&limit, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &limit, &before);
  sigpending(&pending);
  for (uint32_t i = 0; i < MAX_LANES; i++) {
    struct lane *lane = lane_at(i);
    if (lane) drain_lane(lane);
  }
  write_status();
  if (!sigismember(&pending, SIGXFSZ)) sigtimedwait(&limit, NULL, &none);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void *flusher(void *nothing) {
  (void)nothing;
  prctl(PR_SET_NAME, "rw-profiler");
  while (!atomic_load(&all.is_exiting)) {
    struct timespec tenth = {0, 100000000}; /* a span, not a time of day: the wall clock may be set */
    atomic_store_explicit(&all.is_asleep, 1, memory_order_relaxed);
    syscall(SYS_futex, &all.is_asleep, FUTEX_WAIT_PRIVATE, 1, &tenth, NULL, 0);
    pthread_mutex_lock(&file_lock);
    drain();
    pthread_mutex_unlock(&file_lock);
  }
  return nothing;
}

/* Flushes from a thread of the job, which waits at most a few seconds for a file system that hangs. */
static void flush_now(void) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 3;
  if (pthread_mutex_timedlock(&file_lock, &until)) return;
  drain();
  pthread_mutex_unlock(&file_lock);
}

static void at_exit(void) {
  if (!atomic_load(&all.is_on) || getpid() != all.pid) return;
  atomic_store(&all.is_exiting, 1);
  flush_now();
  wake_flusher();
}

/* A child of fork has none of our threads and must not touch the parent's file. */
static void before_fork(void) {
  pthread_mutex_lock(&admin);
  pthread_mutex_lock(&file_lock);
}
static void after_fork_parent(void) {
  pthread_mutex_unlock(&file_lock);
  pthread_mutex_unlock(&admin);
}
static void after_fork_child(void) {
  atomic_store(&all.is_on, 0);
  atomic_store(&all.active, 0);
  if (all.fd > 0) close(all.fd);
  all.fd = 0;
  for (uint32_t i = 0; i < MAX_LANES; i++) {
    struct lane *lane = lane_at(i);
    if (!lane) continue;
    atomic_store(&lane->tail, atomic_load(&lane->head));
    atomic_store(&lane->dropped_ring, 0);
    atomic_store(&lane->dropped_slots, 0);
    atomic_store(&lane->lost_disk, 0);
    if (lane != mine) atomic_store(&lane->is_owned, 0);
  }
  pthread_mutex_unlock(&file_lock);
  pthread_mutex_unlock(&admin);
}

/* ----------------------------------------------------------------------------------------------------------- the session */
static uint64_t size_from(const char *variable, uint64_t otherwise) {
  const char *text = getenv(variable);
  if (!text || !*text) return otherwise;
  char *end;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 10);
  int shift = *end == 'k' || *end == 'K' ? 10 : *end == 'm' || *end == 'M' ? 20 : *end == 'g' || *end == 'G' ? 30 : 0;
  if (end == text || errno || value == 0 || value > UINT64_MAX >> (shift + 1) || (*end && (!shift || end[1]))) {
    warn("not a size, passed over", variable);
    return otherwise;
  }
  return (uint64_t)value << shift;
}

static int events_from(const char *text) {
  static const struct {
    const char *name;
    int bits;
  } words[] = {{"group", EV_GROUP},
               {"coll", EV_COLL},
               {"p2p", EV_P2P},
               {"proxy", EV_PROXY_OP | EV_PROXY_STEP},
               {"steps", EV_PROXY_OP | EV_PROXY_STEP | STEPS_TOO},
               {"ctrl", EV_PROXY_CTRL},
               {"kernel", EV_KERNEL_CH},
               {"net", EV_NET},
               {"api", EV_GROUP_API | EV_COLL_API | EV_P2P_API},
               {"launch", EV_LAUNCH},
               {"ce", EV_CE_COLL | EV_CE_SYNC | EV_CE_BATCH},
               {"all", 0x7fff | STEPS_TOO},
               {"default", 0x7fff & ~(EV_PROXY_CTRL | EV_NET)}};
  int bits = 0;
  for (const char *at = text ? text : ""; *at;) {
    size_t length = strcspn(at, ", "), i;
    for (i = 0; i < sizeof words / sizeof *words; i++)
      if (strlen(words[i].name) == length && !strncmp(words[i].name, at, length)) break;
    if (i < sizeof words / sizeof *words) bits |= words[i].bits;
    else if (length) warn("RINGWRIGHT_PROFILE_EVENTS has words that mean nothing here, passed over", at);
    at += length + (at[length] != 0);
  }
  return bits ? bits : words[sizeof words / sizeof *words - 1].bits;
}

static void expand(char *path, size_t size, const char *pattern, const char *host) {
  size_t n = 0;
  for (const char *p = pattern; *p && n + 1 < size; p++) {
    char text[256] = {*p, 0};
    if (p[0] == '%' && p[1] == 'h') snprintf(text, sizeof text, "%s", host), p++;
    else if (p[0] == '%' && p[1] == 'p') snprintf(text, sizeof text, "%d", (int)all.pid), p++;
    else if (p[0] == '%' && p[1] == '%') p++;
    for (const char *c = text; *c && n + 1 < size; c++) path[n++] = *c;
  }
  path[n] = 0;
}

/* Opens a file of its own: what an earlier process with the same number left is kept, and this one is called `.1` or so. */
static int open_file(const char *path) {
  struct stat found;
  char name[4200];
  for (int i = 0; i < 100; i++) {
    snprintf(name, sizeof name, i ? "%s.%d" : "%s", path, i);
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0 || errno != EEXIST) return fd;
    if (!stat(name, &found) && !S_ISREG(found.st_mode)) return open(name, O_WRONLY | O_CLOEXEC);
  }
  errno = EEXIST;
  return -1;
}

/* Which library called, and which release it is: asked of the very library that holds the caller. */
static int nccl_version(void *caller, char *library, size_t size) {
  Dl_info where;
  int version = 0;
  if (!dladdr(caller, &where) || !where.dli_fname) return 0;
  const char *slash = strrchr(where.dli_fname, '/');
  snprintf(library, size, "%s", slash ? slash + 1 : where.dli_fname);
  void *handle = dlopen(where.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  int (*ask)(int *) = NULL;
  if (handle) *(void **)&ask = dlsym(handle, "ncclGetVersion");
  if (ask && ask(&version)) version = 0;
  if (handle) dlclose(handle);
  return version;
}

static int write_header(const char *host, void *caller) {
  static const char *const kept[] = {"RANK",           "WORLD_SIZE",           "LOCAL_RANK",           "SLURM_PROCID", "SLURM_NTASKS",
                                     "SLURM_LOCALID",  "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",     "PMI_SIZE",
                                     "CUDA_VISIBLE_DEVICES"};
  static uint8_t header[HEADER_BYTES];
  char library[128] = "", *text = (char *)header + TEXT_AT;
  int room = STATUS_AT - TEXT_AT - 1, n, version = nccl_version(caller, library, sizeof library);
  struct { /* 64 bytes */
    char magic[10];
    uint16_t version;
    uint32_t header_bytes, pid;
    uint32_t text_at, status_at, waits, spare;
    uint64_t mono_ns, real_ns;
  } first = {{'R', 'W', 'N', 'C', 'C', 'L', 'P', 'R', 'O', 'F'}, VERSION, HEADER_BYTES, (uint32_t)all.pid, TEXT_AT, STATUS_AT, WAITS,
             0, clock_ns(CLOCK_MONOTONIC), clock_ns(CLOCK_REALTIME)};
  _Static_assert(sizeof first <= TEXT_AT, "layout");
  memset(header, 0, sizeof header);
  memcpy(header, &first, sizeof first);
  n = snprintf(text, (size_t)room, "host=%s\nnccl=%d\nlibrary=%s\nevents=%d\n", host, version, library, all.events & TAKES_CALLS);
  for (size_t i = 0; i < sizeof kept / sizeof *kept && n < room; i++) {
    const char *value = getenv(kept[i]);
    if (value && !strpbrk(value, "\r\n") && strlen(value) < 200)
      n += snprintf(text + n, (size_t)(room - n), "%s=%s\n", kept[i], value);
  }
  return write_all(header, sizeof header);
}

static void start_flusher(void) {
  sigset_t every, before;
  pthread_t thread;
  pthread_attr_t attributes;
  sigfillset(&every);
  pthread_sigmask(SIG_SETMASK, &every, &before); /* the job's handlers never run on our thread */
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  if (pthread_create(&thread, &attributes, flusher, NULL)) warn("no thread, the file is written at the end only", "");
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void install_hooks(void) {
  if (all.has_hooks) return;
  all.has_hooks = 1;
  Dl_info self; /* NCCL unloads us after its last communicator, while threads may still be in here: stay */
  if (dladdr((void *)&all, &self) && self.dli_fname) dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
  pthread_key_create(&all.key, leave_lane);
  pthread_atfork(before_fork, after_fork_parent, after_fork_child);
  atexit(at_exit);
  uint64_t wanted = size_from("RINGWRIGHT_PROFILE_BUFFER", 2 << 20);
  for (all.ring_bytes = 4096; all.ring_bytes < wanted && all.ring_bytes < 1 << 28;) all.ring_bytes *= 2;
}

/* Begins a file, once in each process; the caller holds `admin`. */
static void open_session(void *caller) {
  char host[256] = "unknown", path[4096];
  install_hooks();
  if (all.once_pid == getpid()) return;
  all.once_pid = all.pid = getpid();
  gethostname(host, sizeof host - 1);
  const char *pattern = getenv("RINGWRIGHT_PROFILE_FILE");
  expand(path, sizeof path, pattern && *pattern ? pattern : "./nccl-profile-%h-%p.rwprof", host);
  all.events = events_from(getenv("RINGWRIGHT_PROFILE_EVENTS"));
  all.limit_bytes = size_from("RINGWRIGHT_PROFILE_LIMIT", (uint64_t)1 << 30);
  all.written = all.blocks = 0;
  all.reason = all.flags = 0;
  atomic_store(&all.is_stopped, 0);
  atomic_store(&all.dropped_threads, 0);
  all.fd = open_file(path);
  if (all.fd <= 0) {
    warn("no file, nothing is recorded", path);
    all.events = 0;
    return;
  }
  int reason = write_header(host, caller);
  if (reason) give_up(reason, 0);
  all.written = HEADER_BYTES;
  atomic_store_explicit(&all.is_on, 1, memory_order_release);
  start_flusher();
}

/* What NCCL reports to a plug-in that asks for `mask`: children bring their parents. */
static int reported(int mask) {
  int step = EV_PROXY_STEP | EV_NET, op = EV_PROXY_OP | step, ce = EV_CE_COLL | EV_CE_SYNC | EV_CE_BATCH;
  int task = op | EV_KERNEL_CH, all_tasks = task | EV_COLL | EV_P2P;
  if (mask & step) mask |= EV_PROXY_STEP;
  if (mask & op) mask |= EV_PROXY_OP;
  if (mask & (EV_COLL_API | EV_COLL | task | ce)) mask |= EV_COLL_API;
  if (mask & (EV_P2P_API | EV_P2P | task)) mask |= EV_P2P_API;
  if (mask & (EV_GROUP_API | EV_COLL_API | EV_P2P_API | EV_LAUNCH | EV_GROUP | all_tasks | ce)) mask |= EV_GROUP_API;
  if (mask & (EV_GROUP | all_tasks)) mask |= EV_GROUP;
  if (mask & ce) mask |= EV_CE_COLL;
  if (mask & task) mask |= EV_COLL | EV_P2P;
  return mask;
}

/* Finds the next plug-in's table for this version. v5 is laid out as v6 is, less the copy-engine events. */
static const struct abi_profiler *next_table(int version, int *known) {
  static const int mask_of[] = {0, 0x3f, 0x3f, 0xff, 0xff, 0xfff, 0x7fff};
  const char *path = getenv("RINGWRIGHT_PROFILE_NEXT");
  const struct abi_profiler *found = NULL;
  if (!path || !*path) return NULL;
  if (!all.next_library) all.next_library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!all.next_library) {
    warn("RINGWRIGHT_PROFILE_NEXT cannot be loaded, going on without", path);
    return NULL;
  }
  for (int v = version; !found && v >= (version == 6 ? 5 : version); v--) {
    char symbol[32];
    snprintf(symbol, sizeof symbol, "ncclProfiler_v%d", v);
    found = dlsym(all.next_library, symbol);
    *known = mask_of[v];
  }
  if (found && !strcmp(found->name, "Ringwright")) found = NULL; /* ourselves: no circle */
  if (!found) warn("the plug-in in RINGWRIGHT_PROFILE_NEXT has no table for this NCCL, going on without", path);
  return found;
}

struct about { /* what init is told */
  int version;
  uint64_t hash;
  const char *name;
  int nnodes, nranks, rank;
  abi_logger log;
};

static int init_next(struct context *c, const struct about *a, int *mask) {
  switch (a->version) {
    case 4: return c->next->init.v4(&c->next_context, mask, a->name, a->hash, a->nnodes, a->nranks, a->rank, a->log);
    case 5:
    case 6: return c->next->init.v5(&c->next_context, a->hash, mask, a->name, a->nnodes, a->nranks, a->rank, a->log);
    default: return c->next->init.v1(&c->next_context, mask);
  }
}

static int init(void **context, int *mask, const struct about *a, void *caller) {
  static const int mask_of[] = {0, 0x3f, 0x3f, 0xff, 0xff, 0xfff, 0x7fff};
  int next_mask = 0, known = 0;
  pthread_mutex_lock(&admin);
  open_session(caller);
  int index = atomic_load(&all.contexts);
  if (index < MAX_CONTEXTS - 1) atomic_fetch_add(&all.contexts, 1);
  struct context *c = &all.context[index];
  c->index = (uint16_t)index; /* the last one stands for all that come after it */
  c->version = (uint8_t)a->version;
  c->next_takes = 0;
  c->next_context = NULL;
  atomic_store(&c->is_told, 0);
  c->next = index < MAX_CONTEXTS - 1 ? next_table(a->version, &known) : NULL;
  atomic_fetch_add(&all.active, 1);
  pthread_mutex_unlock(&admin);
  if (c->next) {
    if (init_next(c, a, &next_mask)) c->next = NULL;
    next_mask = c->next ? next_mask & known : 0;
    c->next_takes = reported(next_mask) & known;
  }
  struct lane *lane = atomic_load(&all.is_on) && a->version >= 4 ? (mine ? mine : enter_lane()) : NULL;
  if (lane) write_comm(lane, c, a->hash, a->name, a->nnodes, a->nranks, a->rank);
  int ours = atomic_load(&all.is_on) ? all.events : 0;
  *mask = ((ours & TAKES_CALLS) | next_mask) & mask_of[a->version];
  *context = c;
  if (a->log) a->log(3, 0x1, __FILE__, __LINE__, "Ringwright profiler: events 0x%x, next plug-in %s", *mask, c->next ? c->next->name : "none");
  return ABI_SUCCESS;
}

static int finalize(void *context) {
  struct context *c = context;
  if (!c) return ABI_SUCCESS;
  if (c->next) c->next->finalize(c->next_context);
  if (atomic_fetch_sub(&all.active, 1) == 1 && atomic_load(&all.is_on)) flush_now();
  return ABI_SUCCESS;
}

/* ---------------------------------------------------------------------------------------------------------- the versions */
#define NAMED(names, number) ((size_t)(number) < sizeof names / sizeof *names ? names[number] : "")
static const char *const FUNCS[] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv", "Send", "Recv"};
static const char *const TYPES[] = {"ncclInt8",    "ncclUint8",   "ncclInt32",   "ncclUint32",  "ncclInt64",      "ncclUint64",
                                    "ncclFloat16", "ncclFloat32", "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2"};
static const char *const ALGOS[] = {"TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"};
static const char *const PROTOS[] = {"LL", "LL128", "SIMPLE"};

#define BEGIN(descr_type)                                                                   \
  struct context *c = context;                                                              \
  struct descr_type *d = descr;                                                             \
  struct event e = {.type = (uint32_t)d->type, .parent = &d->parent, .rank = d->rank, .op = -1}; \
  if (!handle) return ABI_SUCCESS;                                                          \
  *handle = NULL;                                                                           \
  if (!c || !d->type || (uint64_t)d->type > EV_CE_BATCH || (d->type & (d->type - 1))) return ABI_SUCCESS;

#define PROXIES                                                                                                                  \
  case EV_PROXY_OP:                                                                                                              \
    e.pid = d->proxy_op.pid, e.channel = d->proxy_op.channel, e.peer = d->proxy_op.peer, e.steps = d->proxy_op.steps;          \
    e.chunk_bytes = d->proxy_op.chunk_bytes, e.flag = d->proxy_op.is_send != 0;                                                 \
    break;                                                                                                                       \
  case EV_PROXY_STEP: e.steps = d->proxy_step.step; break;

#define COLL                                                                                                      \
  e.seq = d->coll.seq, e.count = d->coll.count, e.root = d->coll.root, e.channels = d->coll.channels;             \
  e.warps = d->coll.warps;

#define COLL_TEXT \
  COLL e.func = d->coll.func, e.datatype = d->coll.datatype, e.algo = d->coll.algo, e.proto = d->coll.proto;

#define P2P_TEXT e.func = d->p2p.func, e.datatype = d->p2p.datatype, e.count = d->p2p.count, e.peer = d->p2p.peer;

static int start_v1(void *context, void **handle, void *descr) {
  BEGIN(abi_descr_v1)
  switch (d->type) {
    case EV_COLL:
      COLL e.name = d->coll.name, e.hash = d->coll.hash, e.traffic = d->coll.traffic, e.op = (int)d->coll.op;
      e.func = NAMED(FUNCS, d->coll.func), e.datatype = NAMED(TYPES, d->coll.datatype);
      e.algo = NAMED(ALGOS, d->coll.algo), e.proto = NAMED(PROTOS, d->coll.proto);
      break;
    case EV_P2P:
      e.name = d->p2p.name, e.hash = d->p2p.hash, e.func = NAMED(FUNCS, d->p2p.func), e.datatype = NAMED(TYPES, d->p2p.datatype);
      e.count = d->p2p.count, e.peer = d->p2p.peer;
      break;
    PROXIES
    default: break;
  }
  return start_event(c, handle, &e, descr);
}

static int start_v2(void *context, void **handle, void *descr) {
  BEGIN(abi_descr_v2)
  switch (d->type) {
    case EV_COLL: COLL_TEXT e.name = d->coll.name, e.hash = d->coll.hash, e.traffic = d->coll.traffic; break;
    case EV_P2P: P2P_TEXT e.name = d->p2p.name, e.hash = d->p2p.hash; break;
    PROXIES
    default: break;
  }
  return start_event(c, handle, &e, descr);
}

static int start_v3(void *context, void **handle, void *descr) {
  BEGIN(abi_descr_v3)
  switch (d->type) {
    case EV_COLL: COLL_TEXT e.name = d->coll.name, e.hash = d->coll.hash; break;
    case EV_P2P: P2P_TEXT e.name = d->p2p.name, e.hash = d->p2p.hash; break;
    case EV_KERNEL_CH: e.channel = d->kernel.channel; break;
    case EV_NET: e.plugin = d->net.id; break;
    PROXIES
    default: break;
  }
  return start_event(c, handle, &e, descr);
}

static int start_v4(void *context, void **handle, void *descr) {
  BEGIN(abi_descr_v4)
  switch (d->type) {
    case EV_COLL: COLL_TEXT break;
    case EV_P2P: P2P_TEXT e.channels = d->p2p.channels; break;
    case EV_KERNEL_CH: e.channel = d->kernel.channel, e.gpu_ns = d->kernel.gpu_ns; break;
    case EV_NET: e.plugin = d->net.id; break;
    PROXIES
    default: break;
  }
  return start_event(c, handle, &e, descr);
}

static int start_v6(void *context, void **handle, void *descr) {
  BEGIN(abi_descr_v6)
  switch (d->type) {
    case EV_COLL: COLL_TEXT e.group = &d->coll.group; break;
    case EV_P2P: P2P_TEXT e.channels = d->p2p.channels, e.group = &d->p2p.group; break;
    case EV_KERNEL_CH: e.channel = d->kernel.channel, e.gpu_ns = d->kernel.gpu_ns; break;
    case EV_NET: e.plugin = d->net.id; break;
    case EV_GROUP_API: e.flag = d->group_api.captured, e.depth = d->group_api.depth; break;
    case EV_COLL_API:
      e.func = d->coll_api.func, e.count = d->coll_api.count, e.datatype = d->coll_api.datatype, e.root = d->coll_api.root;
      e.stream = (uint64_t)(uintptr_t)d->coll_api.stream, e.flag = d->coll_api.captured;
      break;
    case EV_P2P_API:
      e.func = d->p2p_api.func, e.count = d->p2p_api.count, e.datatype = d->p2p_api.datatype, e.root = -1;
      e.stream = (uint64_t)(uintptr_t)d->p2p_api.stream, e.flag = d->p2p_api.captured;
      break;
    case EV_LAUNCH: e.stream = (uint64_t)(uintptr_t)d->launch.stream; break;
    case EV_CE_COLL:
      e.seq = d->ce_coll.seq, e.func = d->ce_coll.func, e.count = d->ce_coll.count, e.root = d->ce_coll.root;
      e.datatype = d->ce_coll.datatype, e.sync = d->ce_coll.sync, e.flag = d->ce_coll.intra_batch_sync;
      e.batch_size = d->ce_coll.batch_size, e.batches = d->ce_coll.batches, e.ce_seq = d->ce_coll.ce_seq;
      e.stream = (uint64_t)(uintptr_t)d->ce_coll.stream;
      break;
    case EV_CE_SYNC: e.number = d->ce_sync.nranks, e.flag = d->ce_sync.is_complete; break;
    case EV_CE_BATCH: e.number = d->ce_batch.ops, e.bytes = d->ce_batch.bytes, e.flag = d->ce_batch.intra_sync; break;
    PROXIES
    default: break;
  }
  return start_event(c, handle, &e, descr);
}

#define INIT_OLD(v)                                                                            \
  static int init_v##v(void **context, int *mask) {                                            \
    return init(context, mask, &(struct about){.version = v}, __builtin_return_address(0));    \
  }
#define INIT_NEW(v)                                                                                               \
  static int init_v##v(void **context, uint64_t id, int *mask, const char *name, int nnodes, int nranks, int rank, \
                       abi_logger log) {                                                                          \
    return init(context, mask, &(struct about){v, id, name, nnodes, nranks, rank, log}, __builtin_return_address(0)); \
  }
INIT_OLD(1)
INIT_OLD(2)
INIT_OLD(3)
INIT_NEW(5)
INIT_NEW(6)
static int init_v4(void **context, int *mask, const char *name, uint64_t hash, int nnodes, int nranks, int rank, abi_logger log) {
  return init(context, mask, &(struct about){4, hash, name, nnodes, nranks, rank, log}, __builtin_return_address(0));
}

#define TABLE(version, member, starter) \
  EXPORT struct abi_profiler ncclProfiler_v##version = { \
      "Ringwright", {.member = init_v##version}, starter, stop_event, record_state, finalize};
TABLE(1, v1, start_v1)
TABLE(2, v1, start_v2)
TABLE(3, v1, start_v3)
TABLE(4, v4, start_v4)
TABLE(5, v5, start_v6)
TABLE(6, v5, start_v6)
