/* The functions that say when a nonblocking call is complete, start a prepared one, or match a message before it is received. */
#include "shim.h"

#include <stdlib.h>
#include <string.h>

enum { ON_STACK = 64, LARGEST_STATUS = 32, MPI_UNDEFINED = -32766 };

/* Where to hand on to; by MPI_ and by PMPI_. */
struct way_on {
  const char *name;
  _Atomic(void *) function[2];
};

static void *way_on(struct way_on *way, bool profiled) {
  void *function = atomic_load_explicit(&way->function[profiled], memory_order_acquire);
  if (LIKELY(function)) return function;
  function = profiled ? library_function(way->name) : next_function(way->name + 1);
  atomic_store_explicit(&way->function[profiled], function, memory_order_release);
  return function;
}

/* ---------------------------------------------------------------------------------------------------------------- completing */
struct batch {
  int count;
  bool any, receives;
  struct pending **entries; /* null where a request is not ours */
};

static bool gather(struct batch *batch, int count, word requests) {
  batch->count = count, batch->any = batch->receives = false;
  for (int i = 0; i < count; i++) {
    word key = handle_at(requests, i);
    struct pending *entry = key == library.request_null ? NULL : pending_take(key);
    if (entry && !entry->active) pending_put(key, entry), entry = NULL; /* prepared and not started */
    batch->entries[i] = entry;
    if (!entry) continue;
    batch->any = true;
    batch->receives |= entry->begin.receives || (entry->twin && entry->twin->begin.receives);
  }
  return batch->any;
}

static void settle(struct batch *batch, int i, const void *status) {
  struct pending *entry = i >= 0 && i < batch->count ? batch->entries[i] : NULL;
  if (!entry) return;
  batch->entries[i] = NULL;
  write_end(&entry->begin, status);
  if (entry->twin) write_end(&entry->twin->begin, status);
  if (entry->persistent) entry->active = false, pending_put(entry->key, entry);
  else pending_drop(entry);
}

static void put_back(struct batch *batch) { /* from the last: of equal handles the oldest comes to stand in front */
  for (int i = batch->count - 1; i >= 0; i--)
    if (batch->entries[i]) pending_put(batch->entries[i]->key, batch->entries[i]);
}

/* After a failure some may be complete all the same: those whose handle MPI has taken away. */
static void settle_gone(struct batch *batch, word requests) {
  for (int i = 0; i < batch->count; i++)
    if (batch->entries[i] && handle_at(requests, i) == library.request_null) settle(batch, i, NULL);
}

static const void *status_at(word statuses, int place) {
  return statuses && !no_status(statuses) ? (const char *)statuses + (size_t)place * library.status_bytes : NULL;
}

/* What all of them do: take the entries out, ask MPI, settle what is complete, put the rest back. */
struct asking {
  struct batch batch;
  word statuses;
  void *heap;
};

static bool prepare(struct asking *asking, int count, word requests, word *statuses, int status_count, void *stack) {
  size_t bytes = (size_t)count * sizeof(struct pending *) + (size_t)status_count * LARGEST_STATUS + 16;
  char *room = stack;
  asking->heap = NULL;
  if (count > ON_STACK && !(asking->heap = room = malloc(bytes))) {
    lost(LOST_MEMORY);
    return false;
  }
  asking->batch.entries = (struct pending **)room;
  if (!gather(&asking->batch, count, requests)) {
    free(asking->heap);
    return false;
  }
  if (asking->batch.receives && no_status(*statuses)) /* to learn how much has come, and from whom */
    *statuses = ((word)(asking->batch.entries + count) + 15) & ~(word)15;
  return true;
}

static void finished(struct asking *asking) {
  put_back(&asking->batch);
  free(asking->heap);
}

#define STACK char stack[ON_STACK * (sizeof(struct pending *) + LARGEST_STATUS) + 32] __attribute__((aligned(16)))
#define FOLLOWED(count, from) (!inside && (count) > 0 && program_calls(from) && recording())

static int wait_one(word request, word status, int (*real)(word, word)) {
  struct asking asking;
  STACK;
  if (!prepare(&asking, 1, request, &status, 1, stack)) return real(request, status);
  int failed = real(request, status);
  settle(&asking.batch, 0, failed ? NULL : status_at(status, 0));
  finished(&asking);
  return failed;
}

static int test_one(word request, word flag, word status, int (*real)(word, word, word)) {
  struct asking asking;
  STACK;
  if (!prepare(&asking, 1, request, &status, 1, stack)) return real(request, flag, status);
  int failed = real(request, flag, status);
  if (failed) settle_gone(&asking.batch, request);
  else if (*(int *)flag) settle(&asking.batch, 0, status_at(status, 0));
  finished(&asking);
  return failed;
}

static int wait_all(word count, word requests, word statuses, int (*real)(word, word, word)) {
  struct asking asking;
  STACK;
  if (!prepare(&asking, (int)count, requests, &statuses, (int)count, stack)) return real(count, requests, statuses);
  int failed = real(count, requests, statuses);
  if (failed) settle_gone(&asking.batch, requests);
  else
    for (int i = 0; i < (int)count; i++) settle(&asking.batch, i, status_at(statuses, i));
  finished(&asking);
  return failed;
}

static int test_all(word count, word requests, word flag, word statuses, int (*real)(word, word, word, word)) {
  struct asking asking;
  STACK;
  if (!prepare(&asking, (int)count, requests, &statuses, (int)count, stack)) return real(count, requests, flag, statuses);
  int failed = real(count, requests, flag, statuses);
  if (failed) settle_gone(&asking.batch, requests);
  for (int i = 0; !failed && *(int *)flag && i < (int)count; i++) settle(&asking.batch, i, status_at(statuses, i));
  finished(&asking);
  return failed;
}

static int wait_any(word count, word requests, word index, word status, int (*real)(word, word, word, word)) {
  struct asking asking;
  STACK;
  if (!prepare(&asking, (int)count, requests, &status, 1, stack)) return real(count, requests, index, status);
  int failed = real(count, requests, index, status);
  if (failed) settle_gone(&asking.batch, requests);
  else settle(&asking.batch, *(int *)index, status_at(status, 0));
  finished(&asking);
  return failed;
}

static int test_any(word count, word requests, word index, word flag, word status, int (*real)(word, word, word, word, word)) {
  struct asking asking;
  STACK;
  if (!prepare(&asking, (int)count, requests, &status, 1, stack)) return real(count, requests, index, flag, status);
  int failed = real(count, requests, index, flag, status);
  if (failed) settle_gone(&asking.batch, requests);
  else if (*(int *)flag) settle(&asking.batch, *(int *)index, status_at(status, 0));
  finished(&asking);
  return failed;
}

static int some(word count, word requests, word done, word indices, word statuses, int (*real)(word, word, word, word, word)) {
  struct asking asking;
  STACK;
  if (!prepare(&asking, (int)count, requests, &statuses, (int)count, stack)) return real(count, requests, done, indices, statuses);
  int failed = real(count, requests, done, indices, statuses), many = *(int *)done;
  if (failed) settle_gone(&asking.batch, requests);
  for (int i = 0; !failed && many != MPI_UNDEFINED && i < many; i++)
    settle(&asking.batch, ((int *)indices)[i], status_at(statuses, i));
  finished(&asking);
  return failed;
}

/* ------------------------------------------------------------------------------------------------- prepared calls, and freeing */
static void start_one(word request) {
  word key = handle(request);
  struct pending *entry = key == library.request_null ? NULL : pending_take(key);
  if (!entry) return;
  if (entry->persistent && !entry->active) entry->active = true, write_begin(&entry->begin);
  pending_put(key, entry);
}

static void release(word request) {
  word key = handle_at(request, 0);
  struct pending *entry = key == library.request_null ? NULL : pending_take(key);
  if (!entry) return;
  if (entry->active) lost(LOST_FREED);
  entry->held = entry->active ? NULL : entry->held; /* the library may read it still */
  pending_drop(entry);
}

/* --------------------------------------------------------------------------------------------------------- matched messages */
static void matched(word comm, word message, word status) {
  const struct group *group = group_of(comm);
  word key = handle_at(message, 0);
  if (!group || group->inter || key == library.message_null || key == library.message_no_proc) return;
  struct begin begin = {.gid = group->gid, .op = "recv", .reduce_op = "", .has_peer = true, .receives = true};
  begin.peer = *(const int *)((const char *)status + library.source_at);
  struct pending *entry = pending_new(&begin);
  if (entry) pending_put(MESSAGE_KEY(key), entry);
}

static struct pending *received(word count, bool wide, word type, word message, bool async) {
  struct pending *entry = pending_take(MESSAGE_KEY(handle_at(message, 0)));
  if (!entry) return NULL;
  struct type of = type_of(type);
  entry->begin.datatype = of.name, entry->begin.async = async;
  entry->begin.count = wide ? (int64_t)count : (int)count;
  entry->begin.sent_bytes = ABSENT, entry->begin.received_bytes = entry->begin.count * of.size_bytes;
  write_begin(&entry->begin);
  return entry;
}

/* ------------------------------------------------------------------------------------------------------------- the wrappers */
#define EACH(X) X(MPI_, false) X(PMPI_, true)
#define WAY(name) static struct way_on to_##name = {"PMPI_" #name, {NULL, NULL}};
#define TO(name, profiled) way_on(&to_##name, profiled)
#define HERE __builtin_return_address(0)
#define AROUND(count, recorded, plain)     \
  int failed;                              \
  if (FOLLOWED(count, HERE)) {             \
    inside++;                              \
    failed = recorded;                     \
    inside--;                              \
  } else failed = plain;                   \
  return failed;

WAY(Wait) WAY(Test) WAY(Waitall) WAY(Testall) WAY(Waitany) WAY(Testany) WAY(Waitsome) WAY(Testsome)
WAY(Start) WAY(Startall) WAY(Request_free) WAY(Mprobe) WAY(Improbe) WAY(Mrecv) WAY(Imrecv) WAY(Mrecv_c) WAY(Imrecv_c)

#define WAIT(prefix, profiled) EXPORT int prefix##Wait(word r, word s) { \
  int (*real)(word, word) = TO(Wait, profiled); AROUND(1, wait_one(r, s, real), real(r, s)) }
#define TEST(prefix, profiled) EXPORT int prefix##Test(word r, word f, word s) { \
  int (*real)(word, word, word) = TO(Test, profiled); AROUND(1, test_one(r, f, s, real), real(r, f, s)) }
#define WAITALL(prefix, profiled) EXPORT int prefix##Waitall(word n, word r, word s) { \
  int (*real)(word, word, word) = TO(Waitall, profiled); AROUND((int)n, wait_all(n, r, s, real), real(n, r, s)) }
#define TESTALL(prefix, profiled) EXPORT int prefix##Testall(word n, word r, word f, word s) { \
  int (*real)(word, word, word, word) = TO(Testall, profiled); AROUND((int)n, test_all(n, r, f, s, real), real(n, r, f, s)) }
#define WAITANY(prefix, profiled) EXPORT int prefix##Waitany(word n, word r, word i, word s) { \
  int (*real)(word, word, word, word) = TO(Waitany, profiled); AROUND((int)n, wait_any(n, r, i, s, real), real(n, r, i, s)) }
#define TESTANY(prefix, profiled) EXPORT int prefix##Testany(word n, word r, word i, word f, word s) { \
  int (*real)(word, word, word, word, word) = TO(Testany, profiled); \
  AROUND((int)n, test_any(n, r, i, f, s, real), real(n, r, i, f, s)) }
#define WAITSOME(prefix, profiled) EXPORT int prefix##Waitsome(word n, word r, word d, word i, word s) { \
  int (*real)(word, word, word, word, word) = TO(Waitsome, profiled); \
  AROUND((int)n, some(n, r, d, i, s, real), real(n, r, d, i, s)) }
#define TESTSOME(prefix, profiled) EXPORT int prefix##Testsome(word n, word r, word d, word i, word s) { \
  int (*real)(word, word, word, word, word) = TO(Testsome, profiled); \
  AROUND((int)n, some(n, r, d, i, s, real), real(n, r, d, i, s)) }
#define START(prefix, profiled) EXPORT int prefix##Start(word r) { \
  int (*real)(word) = TO(Start, profiled); AROUND(1, (start_one(handle_at(r, 0)), real(r)), real(r)) }
#define FREE(prefix, profiled) EXPORT int prefix##Request_free(word r) { \
  int (*real)(word) = TO(Request_free, profiled); AROUND(1, (release(r), real(r)), real(r)) }
EACH(WAIT) EACH(TEST) EACH(WAITALL) EACH(TESTALL) EACH(WAITANY) EACH(TESTANY) EACH(WAITSOME) EACH(TESTSOME)
EACH(START) EACH(FREE)

static int start_all(word count, word requests, int (*real)(word, word)) {
  for (int i = 0; i < (int)count; i++) start_one(handle_at(requests, i));
  return real(count, requests);
}
#define STARTALL(prefix, profiled) EXPORT int prefix##Startall(word n, word r) { \
  int (*real)(word, word) = TO(Startall, profiled); AROUND((int)n, start_all(n, r, real), real(n, r)) }
EACH(STARTALL)

static int probe(word s, word t, word c, word m, word st, int (*real)(word, word, word, word, word)) {
  _Alignas(16) char own[LARGEST_STATUS];
  word status = no_status(st) ? (word)own : st;
  int failed = real(s, t, c, m, status);
  if (!failed) matched(c, m, status);
  return failed;
}
#define MPROBE(prefix, profiled) EXPORT int prefix##Mprobe(word s, word t, word c, word m, word st) { \
  int (*real)(word, word, word, word, word) = TO(Mprobe, profiled); AROUND(1, probe(s, t, c, m, st, real), real(s, t, c, m, st)) }

static int probe_now(word s, word t, word c, word f, word m, word st, int (*real)(word, word, word, word, word, word)) {
  _Alignas(16) char own[LARGEST_STATUS];
  word status = no_status(st) ? (word)own : st;
  int failed = real(s, t, c, f, m, status);
  if (!failed && *(int *)f) matched(c, m, status);
  return failed;
}
#define IMPROBE(prefix, profiled) EXPORT int prefix##Improbe(word s, word t, word c, word f, word m, word st) { \
  int (*real)(word, word, word, word, word, word) = TO(Improbe, profiled); \
  AROUND(1, probe_now(s, t, c, f, m, st, real), real(s, t, c, f, m, st)) }
EACH(MPROBE) EACH(IMPROBE)

static int receive(word b, word n, bool wide, word t, word m, word st, int (*real)(word, word, word, word, word)) {
  _Alignas(16) char own[LARGEST_STATUS];
  struct pending *entry = received(n, wide, t, m, false);
  word status = entry && no_status(st) ? (word)own : st;
  int failed = real(b, n, t, m, status);
  if (entry) write_end(&entry->begin, failed ? NULL : (void *)status);
  pending_drop(entry);
  return failed;
}

static int receive_later(word b, word n, bool wide, word t, word m, word r, int (*real)(word, word, word, word, word)) {
  struct pending *entry = received(n, wide, t, m, true);
  int failed = real(b, n, t, m, r);
  if (entry && !failed) entry->key = 0, pending_put(handle_at(r, 0), entry);
  else pending_drop(entry);
  return failed;
}

/* The _c forms differ in the count alone, which travels in a word: where the library has none the plain one takes it. */
static void *either(struct way_on *large, struct way_on *plain, bool profiled, word count) {
  void *function = way_on(large, profiled);
  return function || (int64_t)count > INT32_MAX ? function : way_on(plain, profiled);
}
#define MRECV(prefix, profiled) \
  EXPORT int prefix##Mrecv(word b, word n, word t, word m, word s) { \
    int (*real)(word, word, word, word, word) = TO(Mrecv, profiled); \
    AROUND(1, receive(b, n, false, t, m, s, real), real(b, n, t, m, s)) } \
  EXPORT int prefix##Imrecv(word b, word n, word t, word m, word r) { \
    int (*real)(word, word, word, word, word) = TO(Imrecv, profiled); \
    AROUND(1, receive_later(b, n, false, t, m, r, real), real(b, n, t, m, r)) } \
  EXPORT int prefix##Mrecv_c(word b, word n, word t, word m, word s) { \
    int (*real)(word, word, word, word, word) = either(&to_Mrecv_c, &to_Mrecv, profiled, n); \
    if (!real) return 15; \
    AROUND(1, receive(b, n, true, t, m, s, real), real(b, n, t, m, s)) } \
  EXPORT int prefix##Imrecv_c(word b, word n, word t, word m, word r) { \
    int (*real)(word, word, word, word, word) = either(&to_Imrecv_c, &to_Imrecv, profiled, n); \
    if (!real) return 15; \
    AROUND(1, receive_later(b, n, true, t, m, r, real), real(b, n, t, m, r)) }
EACH(MRECV)
