/* Calls that have begun and are not known to be complete, by the handle of their request (or of a matched message).
 *
 * Libraries hand out one and the same handle for all operations that were complete at once, so a handle may stand here several
 * times; the oldest is taken first. Whoever waits or tests takes the entry out before it asks MPI, since MPI may give the handle
 * to another thread the moment it is free, and puts it back in front when the operation was not complete. */
#include "shim.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BUCKETS = 1 << 12 };
static struct pending *first[BUCKETS], *last[BUCKETS], *spare;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t bucket_of(word key) { return (size_t)((key * 0x9E3779B97F4A7C15u) >> 52); }

struct pending *pending_new(const struct begin *begin) {
  pthread_mutex_lock(&lock);
  struct pending *entry = spare;
  if (entry) spare = entry->next;
  pthread_mutex_unlock(&lock);
  if (!entry) entry = malloc(sizeof *entry);
  if (!entry) {
    lost(LOST_MEMORY);
    return NULL;
  }
  memset(entry, 0, sizeof *entry);
  entry->begin = *begin;
  entry->active = true;
  return entry;
}

void pending_drop(struct pending *entry) {
  if (!entry) return;
  if (entry->twin) pending_drop(entry->twin);
  free(entry->held);
  pthread_mutex_lock(&lock);
  entry->next = spare, spare = entry;
  pthread_mutex_unlock(&lock);
}

void pending_put(word key, struct pending *entry) {
  size_t bucket = bucket_of(key);
  bool back = entry->key == key && entry->key; /* it was taken from here: it is the oldest */
  entry->key = key;
  pthread_mutex_lock(&lock);
  entry->next = back ? first[bucket] : NULL;
  if (!first[bucket]) first[bucket] = last[bucket] = entry;
  else if (back) first[bucket] = entry;
  else last[bucket] = last[bucket]->next = entry;
  pthread_mutex_unlock(&lock);
}

struct pending *pending_take(word key) {
  size_t bucket = bucket_of(key);
  struct pending *before = NULL, *entry;
  pthread_mutex_lock(&lock);
  for (entry = first[bucket]; entry && entry->key != key; entry = entry->next) before = entry;
  if (entry) {
    if (before) before->next = entry->next;
    else first[bucket] = entry->next;
    if (last[bucket] == entry) last[bucket] = before;
  }
  pthread_mutex_unlock(&lock);
  return entry;
}

/* --------------------------------------------------------------------------------------------------------- the lines of a call */
void write_begin(struct begin *begin) {
  static _Atomic int64_t numbers;
  static __thread int thread __attribute__((tls_model("initial-exec")));
  struct line line;
  if (!thread) thread = (int)syscall(SYS_gettid);
  begin->n = atomic_fetch_add_explicit(&numbers, 1, memory_order_relaxed);
  line_begin(&line, 'b');
  line_int(&line, begin->n);
  line_int(&line, now_ns());
  line_int(&line, begin->gid);
  line_text(&line, begin->op);
  line_text(&line, begin->datatype);
  line_int(&line, begin->count);
  line_int(&line, begin->sent_bytes);
  line_int(&line, begin->received_bytes);
  line_int(&line, begin->has_root ? begin->root : ABSENT);
  line_int(&line, begin->has_peer ? begin->peer : ABSENT);
  line_text(&line, begin->reduce_op);
  line_null(&line);
  line_int(&line, begin->async);
  line_int(&line, thread);
  line_end(&line);
}

/* A receive whose status says other than its begin did (fewer bytes, a sender that was left open) ends with both. */
void write_end(const struct begin *begin, const void *status) {
  struct line line;
  int64_t got = 0, ended = now_ns();
  int cancelled = 0, sender = begin->peer;
  line_begin(&line, 'e');
  line_int(&line, begin->n);
  line_int(&line, ended);
  if (begin->receives && status && !(begin->async && ask.Test_cancelled(status, &cancelled) == 0 && cancelled) &&
      ask.Get_elements_x(status, library.type_byte, &got) == 0 && got >= 0) {
    if (begin->any_source) sender = *(const int *)((const char *)status + library.source_at);
    if (got != begin->received_bytes || begin->any_source) line_int(&line, got), line_int(&line, sender);
  }
  line_end(&line);
}
