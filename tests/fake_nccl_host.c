/* Stands in for NCCL: loads a profiler plug-in and drives it as a job would, event by event, in the order and from the threads that
 * NCCL uses. Every communicator has two threads: one enqueues, one watches kernels and moves the proxy's network steps.
 *
 * fake_nccl_host PLUGIN VERSION [key=value ...]: comms=2 ops=10 rank=0 nranks=4 truth=FILE kill_at=N (SIGKILL after N operations, when
 * the file has been given time) fork=1 stale=1 finalize=0 slow_net_us=0 slow_gpu_us=0 pause_us=0 churn=N (threads that come and go)
 * storm=N (children forked while all threads are at work)  hang=1 (the last operation never completes) bench=N (start and stop pairs, threads=T,
 * in bursts of burst=1000 with a pause of pause_us after each, which is not counted) */
#define _GNU_SOURCE
#include "nccl_abi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHANNELS = 2, STEPS = 3, MAX_COMMS = 8, QUEUE = 1 << 16 };
static const char *const FUNCS[] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast"};
static const int FUNC_NUMBERS[] = {4, 2, 3, 0};

struct work {
  void *handle;
  int index, is_p2p;
  uint64_t seq;
};
struct comm {
  void *context;
  int number, mask;
  uint64_t hash, seq[4], ce_seq;
  struct work queue[QUEUE];
  int pushed, is_done;
  pthread_mutex_t lock;
  pthread_cond_t more;
};

static struct abi_profiler *plugin;
static int version;
static long comms = 2, ops = 10, rank_, nranks = 4, kill_at = -1, stale, finalize_ = 1, slow_net_us, slow_gpu_us, pause_us, do_fork, churn, hang,
            bench, threads = 1, burst = 1000, storm, same_job;
static FILE *truth;
static pthread_mutex_t truth_lock = PTHREAD_MUTEX_INITIALIZER;
static struct comm comm[MAX_COMMS];

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static uint64_t gpu(uint64_t host) { return host + host / 50000 + 7777777777777ull; } /* 20 ppm fast, far away */
static void nap(long us) {
  if (us > 0) usleep((useconds_t)us);
}

#define TELL(...)                        \
  do {                                   \
    if (truth) {                         \
      pthread_mutex_lock(&truth_lock);   \
      fprintf(truth, __VA_ARGS__);       \
      pthread_mutex_unlock(&truth_lock); \
    }                                    \
  } while (0)

/* Whether NCCL reports a kind of event for a mask: its own rules, written a second time. */
static int reports(int mask, int type) {
  int net = EV_PROXY_STEP | EV_NET, op = net | EV_PROXY_OP, ce = EV_CE_COLL | EV_CE_SYNC | EV_CE_BATCH;
  int coll = EV_COLL | op | EV_KERNEL_CH, p2p = EV_P2P | op | EV_KERNEL_CH, group = EV_GROUP | coll | p2p;
  switch (type) {
    case EV_GROUP: return mask & group;
    case EV_COLL: return mask & coll;
    case EV_P2P: return mask & p2p;
    case EV_PROXY_OP: return mask & op;
    case EV_PROXY_STEP: return mask & net;
    case EV_GROUP_API: return mask & (EV_GROUP_API | EV_P2P_API | EV_COLL_API | EV_LAUNCH | group | ce);
    case EV_COLL_API: return mask & (EV_COLL_API | coll | ce);
    case EV_P2P_API: return mask & (EV_P2P_API | p2p);
    case EV_CE_COLL: return mask & ce;
    default: return mask & type;
  }
}
static int knows(int type) {
  static const int known[] = {0, 0x3f, 0x3f, 0xff, 0xff, 0xfff, 0x7fff};
  return known[version] & type;
}

/* One descriptor is filled for the version in use; the fields common to all come first in each. */
union descr {
  struct abi_descr_v1 v1;
  struct abi_descr_v2 v2;
  struct abi_descr_v3 v3;
  struct abi_descr_v4 v4;
  struct abi_descr_v6 v6;
};

static size_t descr_bytes(void) {
  size_t size[] = {0,
                   sizeof(struct abi_descr_v1),
                   sizeof(struct abi_descr_v2),
                   sizeof(struct abi_descr_v3),
                   sizeof(struct abi_descr_v4),
                   sizeof(struct abi_descr_v6),
                   sizeof(struct abi_descr_v6)};
  return size[version];
}

#define EACH(statement_on_d)                         \
  switch (version) {                                 \
    case 1: { struct abi_descr_v1 *d = &u->v1; statement_on_d; } break; \
    case 2: { struct abi_descr_v2 *d = &u->v2; statement_on_d; } break; \
    case 3: { struct abi_descr_v3 *d = &u->v3; statement_on_d; } break; \
    case 4: { struct abi_descr_v4 *d = &u->v4; statement_on_d; } break; \
    default: { struct abi_descr_v6 *d = &u->v6; statement_on_d; } break; \
  }

static union descr *blank(int type, void *parent, int rank) {
  union descr *u = calloc(1, descr_bytes()); /* of the right size: a plug-in that reads too far is seen by the sanitizer */
  EACH(d->type = (uint8_t)type; d->parent = parent; d->rank = rank)
  if (version >= 5) u->v6.type = (uint64_t)type;
  return u;
}

static void *start(struct comm *c, union descr *u, int type) {
  void *handle = (void *)0x1;
  if (!reports(c->mask, type) || !knows(type)) handle = NULL;
  else plugin->start(c->context, &handle, u);
  free(u);
  return handle;
}
static void stop(void *handle) {
  if (handle) plugin->stop(handle);
}
static void record(void *handle, int state, void *with) {
  if (handle) plugin->record(handle, state, with);
}

static void *start_coll(struct comm *c, int i, void *api, void *group, uint64_t seq) {
  union descr *u = blank(EV_COLL, version >= 5 ? api : group, (int)rank_);
  int f = i % 4;
  char name[32];
  snprintf(name, sizeof name, "comm%d", c->number);
#define COMMON d->coll.seq = seq; d->coll.count = 1000u + (size_t)i; d->coll.root = 0; d->coll.channels = CHANNELS; d->coll.warps = 16;
#define TEXT COMMON d->coll.func = FUNCS[f]; d->coll.datatype = "ncclFloat32"; d->coll.algo = "RING"; d->coll.proto = "LL128";
#define NAME d->coll.name = name; d->coll.hash = c->hash;
  switch (version) {
    case 1: { struct abi_descr_v1 *d = &u->v1; COMMON NAME d->coll.func = (uint8_t)FUNC_NUMBERS[f]; d->coll.datatype = 7; d->coll.algo = 1;
              d->coll.proto = 1; d->coll.op = 2; d->coll.traffic = 4096; } break;
    case 2: { struct abi_descr_v2 *d = &u->v2; TEXT NAME d->coll.traffic = 4096; } break;
    case 3: { struct abi_descr_v3 *d = &u->v3; TEXT NAME } break;
    case 4: { struct abi_descr_v4 *d = &u->v4; TEXT } break;
    default: { struct abi_descr_v6 *d = &u->v6; TEXT d->coll.group = group; } break;
  }
  return start(c, u, EV_COLL);
}

static void *start_p2p(struct comm *c, int i, void *api, void *group) {
  union descr *u = blank(EV_P2P, version >= 5 ? api : group, (int)rank_);
  char name[32];
  snprintf(name, sizeof name, "comm%d", c->number);
#define P2P d->p2p.func = "Send"; d->p2p.datatype = "ncclBfloat16"; d->p2p.count = 500u + (size_t)i; d->p2p.peer = (int)((rank_ + 1) % nranks);
  switch (version) {
    case 1: { struct abi_descr_v1 *d = &u->v1; d->p2p.name = name; d->p2p.hash = c->hash; d->p2p.func = 6; d->p2p.datatype = 9;
              d->p2p.count = 500u + (size_t)i; d->p2p.peer = (int)((rank_ + 1) % nranks); } break;
    case 2: { struct abi_descr_v2 *d = &u->v2; P2P d->p2p.name = name; d->p2p.hash = c->hash; } break;
    case 3: { struct abi_descr_v3 *d = &u->v3; P2P d->p2p.name = name; d->p2p.hash = c->hash; } break;
    case 4: { struct abi_descr_v4 *d = &u->v4; P2P d->p2p.channels = 1; } break;
    default: { struct abi_descr_v6 *d = &u->v6; P2P d->p2p.channels = 1; d->p2p.group = group; } break;
  }
  return start(c, u, EV_P2P);
}

static void *start_api(struct comm *c, int type, int i, void *parent) {
  union descr *u = blank(type, parent, (int)rank_);
  if (version < 5) {
    free(u);
    return NULL;
  }
  if (type == EV_GROUP_API) u->v6.group_api.depth = 1, u->v6.group_api.captured = i % 2;
  if (type == EV_COLL_API)
    u->v6.coll_api.func = FUNCS[i % 4], u->v6.coll_api.count = 1000u + (size_t)i, u->v6.coll_api.datatype = "ncclFloat32",
    u->v6.coll_api.stream = (void *)0x5000, u->v6.coll_api.captured = i % 2;
  if (type == EV_P2P_API)
    u->v6.p2p_api.func = "Send", u->v6.p2p_api.count = 500u + (size_t)i, u->v6.p2p_api.datatype = "ncclBfloat16",
    u->v6.p2p_api.stream = (void *)0x6000;
  if (type == EV_LAUNCH) u->v6.launch.stream = (void *)0x5000;
  return start(c, u, type);
}

static void push(struct comm *c, void *handle, int i, int is_p2p, uint64_t seq) {
  pthread_mutex_lock(&c->lock);
  c->queue[c->pushed++ % QUEUE] = (struct work){handle, i, is_p2p, seq};
  pthread_cond_signal(&c->more);
  pthread_mutex_unlock(&c->lock);
}

static void copy_engine(struct comm *c, int i) {
  void *group_api = start_api(c, EV_GROUP_API, i, NULL), *api = start_api(c, EV_COLL_API, i, group_api);
  union descr *u = blank(EV_CE_COLL, api, (int)rank_);
  u->v6.ce_coll.seq = c->ce_seq, u->v6.ce_coll.ce_seq = (uint32_t)c->ce_seq, u->v6.ce_coll.func = "AllGather";
  u->v6.ce_coll.count = 4000, u->v6.ce_coll.datatype = "ncclFloat16", u->v6.ce_coll.sync = "MC", u->v6.ce_coll.batches = 2;
  u->v6.ce_coll.stream = (void *)0x7000;
  uint64_t before = now();
  void *coll = start(c, u, EV_CE_COLL);
  u = blank(EV_CE_SYNC, coll, (int)rank_);
  u->v6.ce_sync.nranks = (int)nranks;
  void *sync = coll ? start(c, u, EV_CE_SYNC) : (free(u), NULL);
  stop(sync);
  u = blank(EV_CE_BATCH, coll, (int)rank_);
  u->v6.ce_batch.ops = 3, u->v6.ce_batch.bytes = 8000;
  void *batch = coll ? start(c, u, EV_CE_BATCH) : (free(u), NULL);
  stop(batch);
  stop(coll);
  stop(api);
  stop(group_api);
  TELL("ce %d AllGather %lu 4000 %lu\n", c->number, (unsigned long)c->ce_seq, (unsigned long)before);
  c->ce_seq++;
}

static void enqueue(struct comm *c, int i) {
  if (version >= 6 && i % 5 == 4) {
    copy_engine(c, i);
    return;
  }
  uint64_t before = now(), seq = c->seq[i % 4]++;
  void *group_api = start_api(c, EV_GROUP_API, i, NULL), *api = start_api(c, EV_COLL_API, i, group_api);
  stop(api);
  void *p2p_api = i % 4 == 3 ? start_api(c, EV_P2P_API, i, group_api) : NULL;
  stop(p2p_api);
  record(group_api, ST_GROUP_START_STOP, NULL);
  record(group_api, ST_GROUP_END_START, NULL);
  void *group = start(c, blank(EV_GROUP, NULL, 0), EV_GROUP);
  void *coll = start_coll(c, i, api, group, seq), *p2p = i % 4 == 3 ? start_p2p(c, i, p2p_api, group) : NULL;
  void *launch = start_api(c, EV_LAUNCH, i, group_api);
  stop(launch);
  stop(coll);
  if (stale) plugin->stop(coll), plugin->record(coll, ST_SEND_WAIT, NULL), plugin->stop((void *)0xdeadbeefdeadbeef);
  stop(p2p);
  stop(group);
  stop(group_api);
  TELL("coll %d %s %lu %d %lu\n", c->number, FUNCS[i % 4], (unsigned long)seq, 1000 + i, (unsigned long)before);
  push(c, coll, i, 0, seq);
  if (i % 4 == 3) {
    TELL("p2p %d Send %d %d\n", c->number, 500 + i, (int)((rank_ + 1) % nranks));
    push(c, p2p, i, 1, seq);
  }
}

static void with_bytes(void *step, int state, size_t bytes) {
  union abi_state with = {.proxy_step = {bytes}};
  record(step, state, version >= 4 ? &with : NULL);
}

static void proxy(struct comm *c, const struct work *w, int channel, int is_send) {
  int is_pxn = w->index % 7 == 6; /* done for a rank of another process, whose handle means nothing here */
  union descr *u = blank(EV_PROXY_OP, is_pxn ? (void *)0x7e57000000000001 : w->handle, (int)rank_);
  EACH(d->proxy_op.pid = is_pxn ? 1 : getpid(); d->proxy_op.channel = (uint8_t)channel; d->proxy_op.peer = (int)((rank_ + 1) % nranks);
       d->proxy_op.steps = STEPS; d->proxy_op.chunk_bytes = 1 << 16; d->proxy_op.is_send = is_send)
  void *op = start(c, u, EV_PROXY_OP);
  if (version >= 4) record(op, ST_OP_IN_PROGRESS, NULL);
  union abi_state sum = {.proxy_op = {0, 0}};
  for (int s = 0; s < STEPS; s++) {
    u = blank(EV_PROXY_STEP, op, (int)rank_);
    EACH(d->proxy_step.step = s)
    void *step = start(c, u, EV_PROXY_STEP);
    if (is_send) {
      with_bytes(step, ST_SEND_GPU_WAIT, 0);
      nap(slow_gpu_us);
      if (version >= 4) with_bytes(step, ST_SEND_PEER_WAIT, 0);
      with_bytes(step, ST_SEND_WAIT, 100u + (size_t)s);
      nap(slow_net_us);
    } else {
      with_bytes(step, ST_RECV_WAIT, 0);
      nap(slow_net_us);
      with_bytes(step, ST_RECV_FLUSH_WAIT, 100u + (size_t)s);
      with_bytes(step, ST_RECV_GPU_WAIT, 100u + (size_t)s);
      nap(slow_gpu_us);
    }
    stop(step);
    sum.proxy_op.bytes += 100u + (size_t)s, sum.proxy_op.steps = s + 1;
    if (version < 4) record(op, is_send ? 2 : 5, &sum);
  }
  stop(op);
  TELL("proxy %d %lu %d %d %d %d %d\n", c->number, (unsigned long)w->seq, w->index, w->is_p2p, channel, is_send, is_pxn);
}

static void *kernel(struct comm *c, const struct work *w, int channel) {
  union descr *u = blank(EV_KERNEL_CH, w->handle, 0);
  uint64_t began = now();
  if (version == 3) u->v3.kernel.channel = (uint8_t)channel;
  if (version == 4) u->v4.kernel.channel = (uint8_t)channel, u->v4.kernel.gpu_ns = gpu(began);
  if (version >= 5) u->v6.kernel.channel = (uint8_t)channel, u->v6.kernel.gpu_ns = gpu(began);
  TELL("kernel %d %lu %d %d %d %lu\n", c->number, (unsigned long)w->seq, w->index, w->is_p2p, channel, (unsigned long)began);
  return start(c, u, EV_KERNEL_CH);
}

static void progress_one(struct comm *c, const struct work *w) {
  void *running[CHANNELS] = {0};
  int channels = w->is_p2p ? 1 : CHANNELS;
  for (int ch = 0; ch < channels; ch++) running[ch] = version >= 3 ? kernel(c, w, ch) : NULL;
  for (int ch = 0; ch < channels; ch++) proxy(c, w, ch, 1), proxy(c, w, ch, 0);
  if (hang && w->index == ops - 1 && !w->is_p2p) return;
  for (int ch = 0; ch < channels; ch++) {
    uint64_t ended = now();
    union abi_state with = {.kernel = {gpu(ended)}};
    if (version >= 4) record(running[ch], ST_KERNEL_STOP, &with);
    stop(running[ch]);
    if (version >= 3) TELL("kernel_stop %d %lu %d %d %d %lu\n", c->number, (unsigned long)w->seq, w->index, w->is_p2p, ch, (unsigned long)ended);
  }
}

static void *progress(void *argument) {
  struct comm *c = argument;
  void *ctrl = start(c, blank(EV_PROXY_CTRL, NULL, 0), EV_PROXY_CTRL);
  union abi_state appended = {.proxy_ctrl = {3}};
  record(ctrl, ST_CTRL_APPEND, &appended);
  record(ctrl, ST_CTRL_IDLE, &appended);
  stop(ctrl);
  for (int done = 0;; done++) {
    pthread_mutex_lock(&c->lock);
    while (done == c->pushed && !c->is_done) pthread_cond_wait(&c->more, &c->lock);
    int is_over = done == c->pushed;
    struct work w = c->queue[done % QUEUE];
    pthread_mutex_unlock(&c->lock);
    if (is_over) return NULL;
    progress_one(c, &w);
  }
}

static void *application(void *argument) {
  struct comm *c = argument;
  for (int i = 0; i < ops; i++) {
    enqueue(c, i);
    nap(pause_us);
    if (i == kill_at) {
      usleep(600000);
      kill(getpid(), SIGKILL);
    }
  }
  pthread_mutex_lock(&c->lock);
  c->is_done = 1;
  pthread_cond_signal(&c->more);
  pthread_mutex_unlock(&c->lock);
  return NULL;
}

static void *come_and_go(void *argument) {
  struct comm *c = argument;
  stop(start(c, blank(EV_GROUP, NULL, 0), EV_GROUP));
  return NULL;
}

static void logger(int level, unsigned long flags, const char *file, int line, const char *format, ...) {
  (void)level, (void)flags, (void)file, (void)line, (void)format;
}

static void begin(struct comm *c, int number) {
  char name[32];
  snprintf(name, sizeof name, "comm%d", number);
  c->number = number, c->hash = 0xabc000u + (uint64_t)number, c->pushed = c->is_done = 0;
  pthread_mutex_init(&c->lock, NULL);
  pthread_cond_init(&c->more, NULL);
  int failed = version <= 3   ? plugin->init.v1(&c->context, &c->mask)
               : version == 4 ? plugin->init.v4(&c->context, &c->mask, name, c->hash, 2, (int)nranks, (int)rank_, logger)
                              : plugin->init.v5(&c->context, c->hash, &c->mask, name, 2, (int)nranks, (int)rank_, logger);
  if (failed) fprintf(stderr, "init failed\n"), exit(3);
}

/* What a worker of a data loader might do: a communicator of its own, in a process that was copied from a busy one. */
static void child_work(void) {
  static struct comm own;
  begin(&own, 7);
  for (int i = 0; i < 5; i++) stop(start_coll(&own, i, NULL, NULL, (uint64_t)(i / 4)));
  plugin->finalize(own.context);
}

static void run(void) {
  pthread_t thread[MAX_COMMS][2];
  for (int i = 0; i < comms; i++) {
    if (same_job) rank_ = i; /* one process, several GPUs: each drives one rank of the same communicator */
    begin(&comm[i], same_job ? 0 : i);
  }
  for (int i = 0; i < comms; i++) {
    pthread_create(&thread[i][0], NULL, application, &comm[i]);
    pthread_create(&thread[i][1], NULL, progress, &comm[i]);
  }
  for (int i = 0; i < storm; i++) {
    pid_t child = fork();
    if (!child) {
      truth = NULL;
      child_work();
      _exit(0);
    }
    waitpid(child, NULL, 0);
  }
  for (int i = 0; i < churn; i++) {
    pthread_t passing;
    pthread_create(&passing, NULL, come_and_go, &comm[0]);
    pthread_join(passing, NULL);
  }
  for (int i = 0; i < comms; i++) pthread_join(thread[i][0], NULL), pthread_join(thread[i][1], NULL);
  for (int i = 0; i < comms && finalize_; i++) plugin->finalize(comm[i].context);
}

/* Start and stop pairs of collectives, each followed by what a step of the proxy costs. */
static void *measure(void *argument) {
  struct comm *c = argument;
  double *ns = malloc(2 * sizeof *ns);
  union descr *coll = calloc(1, descr_bytes()), *step = calloc(1, descr_bytes());
  coll->v6.type = EV_COLL, coll->v6.coll.func = "AllReduce", coll->v6.coll.datatype = "ncclFloat32", coll->v6.coll.algo = "RING",
  coll->v6.coll.proto = "SIMPLE", step->v6.type = EV_PROXY_STEP;
  for (int what = 0; what < 2; what++) {
    uint64_t spent = 0;
    for (long done = 0; done < bench; done += burst) {
      uint64_t began = now();
      for (long i = 0; i < burst; i++) {
        void *handle;
        plugin->start(c->context, &handle, what ? step : coll);
        if (what) record(handle, ST_SEND_GPU_WAIT, NULL), record(handle, ST_SEND_WAIT, NULL);
        stop(handle);
      }
      spent += now() - began;
      nap(pause_us);
    }
    ns[what] = (double)spent / (double)bench;
  }
  free(coll);
  free(step);
  return ns;
}

static void run_bench(void) {
  pthread_t thread[64];
  double sum[2] = {0, 0};
  begin(&comm[0], 0);
  for (int i = 0; i < threads; i++) pthread_create(&thread[i], NULL, measure, &comm[0]);
  for (int i = 0; i < threads; i++) {
    double *ns;
    pthread_join(thread[i], (void **)&ns);
    sum[0] += ns[0], sum[1] += ns[1];
    free(ns);
  }
  plugin->finalize(comm[0].context);
  printf("{\"coll_pair_ns\": %.1f, \"step_ns\": %.1f}\n", sum[0] / (double)threads, sum[1] / (double)threads);
}

int main(int count, char **words) {
  if (count < 3) return 2;
  const struct {
    const char *name;
    long *value;
  } numbers[] = {{"comms", &comms},     {"ops", &ops},           {"rank", &rank_},         {"nranks", &nranks}, {"kill_at", &kill_at},
                 {"stale", &stale},     {"finalize", &finalize_}, {"slow_net_us", &slow_net_us}, {"slow_gpu_us", &slow_gpu_us},
                 {"pause_us", &pause_us}, {"fork", &do_fork},    {"churn", &churn},        {"hang", &hang},     {"bench", &bench},
                 {"threads", &threads},   {"burst", &burst},   {"storm", &storm}, {"same_job", &same_job}};
  signal(SIGXFSZ, SIG_DFL);
  version = atoi(words[2]);
  for (int i = 3; i < count; i++) {
    char *equals = strchr(words[i], '=');
    if (!equals) return 2;
    *equals = 0;
    if (!strcmp(words[i], "truth")) truth = fopen(equals + 1, "w");
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
      if (!strcmp(words[i], numbers[n].name)) *numbers[n].value = atol(equals + 1);
  }
  void *library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
  char symbol[32];
  snprintf(symbol, sizeof symbol, "ncclProfiler_v%d", version);
  plugin = library ? dlsym(library, symbol) : NULL;
  if (!plugin) {
    fprintf(stderr, "%s\n", dlerror());
    return 3;
  }
  if (bench) {
    run_bench();
    return 0;
  }
  run();
  if (do_fork) {
    pid_t child = fork();
    if (!child) {
      rank_ += 100;
      truth = NULL;
      run();
      exit(0);
    }
    waitpid(child, NULL, 0);
    memset(comm, 0, sizeof comm);
    run();
  }
  if (finalize_) dlclose(library); /* as NCCL does after its last communicator */
  if (truth) fclose(truth);
  printf("done\n");
  return 0;
}
