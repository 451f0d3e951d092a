/* From the arguments of a call to what it sends and receives on this rank. */
#include "measure.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const unsigned char comm_at[] = {
    [REDUCTION] = 5, [REDUCE_ROOT] = 6,  [BROADCAST] = 4,      [GATHER_ALL] = 6,   [GATHER_ALL_V] = 7, [GATHER_ROOT] = 7,
    [GATHER_ROOT_V] = 8, [SCATTER_ROOT] = 7, [SCATTER_ROOT_V] = 8, [REDUCE_PARTS] = 5, [REDUCE_BLOCK] = 5, [EXCHANGE] = 6,
    [EXCHANGE_V] = 8, [EXCHANGE_W] = 8,  [NOTHING] = 0,        [SEND] = 5,         [RECEIVE] = 5,      [SEND_RECEIVE] = 10,
    [SEND_REPLACE] = 7,
};

struct view { /* a call being measured */
  const word *a;
  bool wide;
  const struct group *group;
  struct begin *out;
};

static int64_t scalar(const struct view *v, int at) { return v->wide ? (int64_t)v->a[at] : (int)v->a[at]; }

static int64_t element(const struct view *v, int at, int place) {
  return v->wide ? ((const int64_t *)v->a[at])[place] : ((const int *)v->a[at])[place];
}

static int64_t sum(const struct view *v, int at) {
  int64_t total = 0;
  for (int i = 0; i < v->group->size; i++) total += element(v, at, i);
  return total;
}

static bool in_place(const struct view *v, int at) { return v->a[at] == library.in_place; }

static void says(struct view *v, struct type type, int64_t count, int64_t sent, int64_t received) {
  v->out->datatype = type.name, v->out->count = count, v->out->sent_bytes = sent, v->out->received_bytes = received;
}

static bool at_root(struct view *v, int at) {
  v->out->has_root = true, v->out->root = (int)v->a[at];
  return v->out->root == v->group->rank;
}

static void reduction(struct view *v, enum form form) {
  struct type type = type_of(v->a[3]);
  v->out->reduce_op = op_name(v->a[4]);
  if (form == REDUCE_PARTS || form == REDUCE_BLOCK) {
    int64_t all = form == REDUCE_PARTS ? sum(v, 2) : scalar(v, 2) * v->group->size;
    int64_t own = form == REDUCE_PARTS ? element(v, 2, v->group->rank) : scalar(v, 2);
    return says(v, type, all, all * type.size_bytes, own * type.size_bytes);
  }
  int64_t bytes = scalar(v, 2) * type.size_bytes;
  bool receives = form == REDUCTION || at_root(v, 5);
  says(v, type, scalar(v, 2), bytes, receives ? bytes : ABSENT);
}

/* All-gather and gather. Where the own part is in place, it is told by the receiving side. */
static void gathering(struct view *v, bool ragged, int type_at, bool receives) {
  bool placed = in_place(v, 0); /* only where something is received as well */
  struct type into = {"", 0}, type;
  int64_t all = 0, own = 0;
  if (receives) {
    into = type_of(v->a[type_at]);
    all = ragged ? sum(v, 4) : scalar(v, 4) * v->group->size;
    own = ragged ? element(v, 4, v->group->rank) : scalar(v, 4);
  }
  type = placed ? into : type_of(v->a[2]);
  int64_t count = placed ? own : scalar(v, 1);
  says(v, type, count, count * type.size_bytes, receives ? all * into.size_bytes : ABSENT);
}

static void scattering(struct view *v, bool ragged) {
  int shift = ragged ? 1 : 0;
  bool root = at_root(v, 6 + shift), placed = in_place(v, 3 + shift);
  if (!root) {
    struct type type = type_of(v->a[5 + shift]);
    int64_t count = scalar(v, 4 + shift);
    return says(v, type, count, ABSENT, count * type.size_bytes);
  }
  struct type type = type_of(v->a[2 + shift]), into = placed ? type : type_of(v->a[5 + shift]);
  int64_t all = ragged ? sum(v, 1) : scalar(v, 1) * v->group->size;
  int64_t own = ragged ? element(v, 1, v->group->rank) : scalar(v, 1);
  int64_t count = placed ? own : scalar(v, 4 + shift);
  says(v, type, all, all * type.size_bytes, count * into.size_bytes);
}

static int64_t mixed(const struct view *v, int counts_at, int types_at, struct type *type, int64_t *count) {
  int64_t bytes = 0;
  for (int i = 0; i < v->group->size; i++) {
    struct type one = type_of(handle_at(v->a[types_at], i));
    bytes += element(v, counts_at, i) * one.size_bytes;
    *count += element(v, counts_at, i);
    if (i == 0) *type = one;
    else if (strcmp(type->name, one.name)) type->name = "mixed";
  }
  return bytes;
}

static void exchange(struct view *v, enum form form) {
  bool placed = in_place(v, 0);
  int64_t count = 0, sent, received, ignored = 0;
  struct type type = {"", 0}, into = {"", 0};
  if (form == EXCHANGE_W) {
    received = mixed(v, 5, 7, placed ? &type : &into, placed ? &count : &ignored);
    sent = placed ? received : mixed(v, 1, 3, &type, &count);
    return says(v, type, count, sent, received);
  }
  bool ragged = form == EXCHANGE_V;
  into = type_of(v->a[ragged ? 7 : 5]);
  type = placed ? into : type_of(v->a[ragged ? 3 : 2]);
  int64_t back = ragged ? sum(v, 5) : scalar(v, 4) * v->group->size;
  count = placed ? back : ragged ? sum(v, 1) : scalar(v, 1) * v->group->size;
  says(v, type, count, count * type.size_bytes, back * into.size_bytes);
}

/* One message; nothing where its other end is MPI_PROC_NULL. */
static int message(struct view *v, bool receives, int count_at, int peer_at) {
  int peer = (int)v->a[peer_at];
  struct type type = type_of(v->a[count_at + 1]);
  int64_t count = scalar(v, count_at), bytes = count * type.size_bytes;
  if (peer == library.proc_null) return 0;
  v->out->op = receives ? "recv" : "send", v->out->receives = receives;
  v->out->any_source = receives && peer == library.any_source;
  v->out->has_peer = !v->out->any_source, v->out->peer = peer;
  says(v, type, count, receives ? ABSENT : bytes, receives ? bytes : ABSENT);
  v->out++;
  return 1;
}

static void collective(struct view *v, enum form form) {
  switch (form) {
    case REDUCTION: case REDUCE_ROOT: case REDUCE_PARTS: case REDUCE_BLOCK: return reduction(v, form);
    case GATHER_ALL: return gathering(v, false, 5, true);
    case GATHER_ALL_V: return gathering(v, true, 6, true);
    case GATHER_ROOT: return gathering(v, false, 5, at_root(v, 6));
    case GATHER_ROOT_V: return gathering(v, true, 6, at_root(v, 7));
    case SCATTER_ROOT: return scattering(v, false);
    case SCATTER_ROOT_V: return scattering(v, true);
    case EXCHANGE: case EXCHANGE_V: case EXCHANGE_W: return exchange(v, form);
    case BROADCAST: {
      struct type type = type_of(v->a[2]);
      int64_t bytes = scalar(v, 1) * type.size_bytes;
      at_root(v, 3);
      return says(v, type, scalar(v, 1), bytes, bytes);
    }
    default: return says(v, (struct type){"", 0}, 0, 0, 0); /* a barrier */
  }
}

word comm_of(const struct function *f, const word *arguments) { return arguments[comm_at[f->form]]; }

int measure(const struct function *f, const word *arguments, struct begin two[2]) {
  if (f->form >= TRANSFER) {
    lost(f->form == WINDOW ? LOST_WINDOWS : LOST_TRANSFERS);
    return 0;
  }
  const struct group *group = group_of(comm_of(f, arguments));
  if (!group) return 0;
  if (group->inter) {
    lost(LOST_INTER);
    return 0;
  }
  for (int i = 0; i < 2; i++)
    two[i] = (struct begin){.gid = group->gid, .op = f->op, .datatype = "", .reduce_op = "", .async = f->way & 1};
  struct view v = {arguments, f->wide, group, two};
  switch (f->form) {
    case SEND: return message(&v, false, 1, 3);
    case RECEIVE: return message(&v, true, 1, 3);
    case SEND_RECEIVE: return message(&v, false, 1, 3) + message(&v, true, 6, 8);
    case SEND_REPLACE: return message(&v, false, 1, 3) + message(&v, true, 1, 5);
    default: collective(&v, f->form); return 1;
  }
}

/* -------------------------------------------------------------------------------------------------- 64-bit counts, made narrow
 * A program may ask, by a weak symbol, whether the library has MPI_Allreduce_c, and finds ours. Where the library has none, the
 * plain function is called: a count travels in a word and needs no change as long as an int holds it; arrays are copied. */
static bool narrow_array(word *argument, int size, int **room) {
  const int64_t *from = (const int64_t *)*argument;
  if (!from) return true;
  for (int i = 0; i < size; i++) {
    if (from[i] > INT_MAX || from[i] < INT_MIN) return false;
    (*room)[i] = (int)from[i];
  }
  *argument = (word)*room;
  *room += size;
  return true;
}

bool narrow(const struct function *f, word *a, void **held) {
  static const struct {
    signed char scalars[2], arrays[4];
  } where[] = {
      [REDUCTION] = {{2, -1}, {-1, -1, -1, -1}},     [REDUCE_ROOT] = {{2, -1}, {-1, -1, -1, -1}},
      [BROADCAST] = {{1, -1}, {-1, -1, -1, -1}},     [GATHER_ALL] = {{1, 4}, {-1, -1, -1, -1}},
      [GATHER_ALL_V] = {{1, -1}, {4, 5, -1, -1}},    [GATHER_ROOT] = {{1, 4}, {-1, -1, -1, -1}},
      [GATHER_ROOT_V] = {{1, -1}, {4, 5, -1, -1}},   [SCATTER_ROOT] = {{1, 4}, {-1, -1, -1, -1}},
      [SCATTER_ROOT_V] = {{5, -1}, {1, 2, -1, -1}},  [REDUCE_PARTS] = {{-1, -1}, {2, -1, -1, -1}},
      [REDUCE_BLOCK] = {{2, -1}, {-1, -1, -1, -1}},  [EXCHANGE] = {{1, 4}, {-1, -1, -1, -1}},
      [EXCHANGE_V] = {{-1, -1}, {1, 2, 5, 6}},       [EXCHANGE_W] = {{-1, -1}, {1, 2, 5, 6}},
      [NOTHING] = {{-1, -1}, {-1, -1, -1, -1}},      [SEND] = {{1, -1}, {-1, -1, -1, -1}},
      [RECEIVE] = {{1, -1}, {-1, -1, -1, -1}},       [SEND_RECEIVE] = {{1, 6}, {-1, -1, -1, -1}},
      [SEND_REPLACE] = {{1, -1}, {-1, -1, -1, -1}},  [TRANSFER] = {{1, 5}, {-1, -1, -1, -1}},
      [FETCH] = {{1, 4}, {-1, -1, -1, -1}},          [WINDOW] = {{-1, -1}, {-1, -1, -1, -1}},
  };
  for (int i = 0; i < 2; i++)
    if (where[f->form].scalars[i] >= 0 && (int64_t)a[where[f->form].scalars[i]] > INT_MAX) return false;
  if (where[f->form].arrays[0] < 0) return true;
  int size = 0, remote = 0;
  if (!library_known() || ask.Comm_size(comm_of(f, a), &size)) return false;
  int (*remote_size)(word, int *) = (int (*)(word, int *))library_function("PMPI_Comm_remote_size");
  int inter = 0;
  if (ask.Comm_test_inter(comm_of(f, a), &inter)) return false;
  if (inter && remote_size && remote_size(comm_of(f, a), &remote) == 0) size = remote;
  int *room = malloc(4 * sizeof(int) * (size_t)size);
  if (!room) return false;
  *held = room;
  /* Arrays that matter only at the root may be anything elsewhere. */
  bool rooted = f->form == GATHER_ROOT_V || f->form == SCATTER_ROOT_V;
  int root = rooted ? (int)a[7] : 0, rank = 0;
  if (rooted && (ask.Comm_rank(comm_of(f, a), &rank) || (!inter && rank != root) || (inter && root >= 0))) return true;
  bool placed = a[0] == library.in_place && (f->form == EXCHANGE_V || f->form == EXCHANGE_W);
  for (int i = placed ? 2 : 0; i < 4 && where[f->form].arrays[i] >= 0; i++)
    if (!narrow_array(&a[where[f->form].arrays[i]], size, &room)) return false;
  return true;
}
