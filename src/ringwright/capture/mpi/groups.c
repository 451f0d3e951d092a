/* What communicators, datatypes and reductions are, in words of the calls file.
 *
 * A communicator is described when it is met first and remembered by an attribute of its own: MPI deletes the attribute with the
 * communicator, so a handle that is used again for another one is met anew. Attributes of ours are not copied to duplicates. */
#include "shim.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t describing = PTHREAD_MUTEX_INITIALIZER;
static int keyval;
static bool has_keyval;
static int groups_met;

static int not_copied(word comm, int key, void *extra, void *value, void *copy, int *flag) {
  (void)comm, (void)key, (void)extra, (void)value, (void)copy;
  *flag = 0;
  return 0;
}

static int deleted(word comm, int key, void *value, void *extra) {
  (void)comm, (void)key, (void)extra;
  free(value);
  return 0;
}

/* ------------------------------------------------------------------------------------------------------------ communicators */
/* Global ranks of the members; null where there is no way to tell. The caller frees them. */
static int *members_of(word comm, int size) {
  word mine = 0, world = 0;
  int *ranks = malloc(2 * sizeof(int) * (size_t)size);
  if (!ranks) return NULL;
  for (int i = 0; i < size; i++) ranks[size + i] = i;
  bool good = ask.Comm_group(comm, &mine) == 0;
  bool have_world = good && ask.Comm_group(library.comm_world, &world) == 0;
  good = have_world && ask.Group_translate_ranks(mine, size, ranks + size, world, ranks) == 0;
  if (mine) ask.Group_free(&mine);
  if (have_world) ask.Group_free(&world);
  for (int i = 0; good && i < size; i++) good = ranks[i] >= 0; /* a member from outside of our world: spawned or connected */
  if (good) return ranks;
  free(ranks);
  return NULL;
}

static void write_group(word comm, const struct group *group) {
  char given[1024] = "", name[2048];
  int length = 0, *ranks = members_of(comm, group->size);
  ask.Comm_get_name(comm, given, &length);
  escaped(name, sizeof name, given, strlen(given));
  size_t room = sizeof name + 128 + (ranks ? 12 * (size_t)group->size : 0), at;
  char *text = malloc(room);
  if (!text) {
    free(ranks);
    return lost(LOST_MEMORY);
  }
  at = (size_t)snprintf(text, room, "[\"g\",%d,\"%s\",\"\",\"mpi\",%d,%d,", group->gid, name, group->size, group->rank);
  for (int i = 0; ranks && i < group->size; i++) at += (size_t)snprintf(text + at, room - at, "%c%d", i ? ',' : '[', ranks[i]);
  at += (size_t)snprintf(text + at, room - at, ranks ? "]]\n" : "null]\n");
  whole_line(text, at);
  free(text);
  free(ranks);
}

static struct group *described(word comm) {
  struct group *group = malloc(sizeof *group);
  int inter = 0;
  if (!group) return NULL;
  if (ask.Comm_test_inter(comm, &inter) || ask.Comm_size(comm, &group->size) || ask.Comm_rank(comm, &group->rank)) {
    free(group);
    return NULL;
  }
  group->inter = inter;
  group->gid = inter ? -1 : groups_met++;
  if (!inter) write_group(comm, group);
  return group;
}

static struct group *met_first(word comm) {
  struct group *group = NULL;
  int found = 0;
  pthread_mutex_lock(&describing);
  if (!has_keyval) has_keyval = ask.Comm_create_keyval((void *)not_copied, (void *)deleted, &keyval, NULL) == 0;
  if (has_keyval && ask.Comm_get_attr(comm, keyval, &group, &found) == 0 && !found) {
    group = described(comm);
    if (group && ask.Comm_set_attr(comm, keyval, group)) {
      free(group);
      group = NULL;
    }
  } else if (!found) group = NULL;
  pthread_mutex_unlock(&describing);
  if (!group) lost(LOST_MEMORY);
  return group;
}

const struct group *group_of(word comm) {
  static _Atomic bool ready;
  struct group *group = NULL;
  int found = 0;
  if (handle(comm) == library.comm_null) return NULL; /* MPI will say so in its own words */
  if (LIKELY(atomic_load_explicit(&ready, memory_order_acquire))) {
    if (ask.Comm_get_attr(comm, keyval, &group, &found)) return NULL;
    if (LIKELY(found)) return group;
  }
  group = met_first(comm);
  atomic_store_explicit(&ready, has_keyval, memory_order_release);
  return group;
}

/* ---------------------------------------------------------------------------------------------------------------- datatypes
 * Datatypes of the standard live for ever and are looked up by handle; those of the program are asked for their size at every
 * call, since a handle may stand for another one tomorrow. */
enum { KNOWN_TYPES = 256, NAME_BYTES = 40 };
struct known_type {
  _Atomic word key; /* handle + 1, so that an empty place is zero */
  int64_t size_bytes;
  char name[NAME_BYTES];
};
static struct known_type known_types[KNOWN_TYPES];

/* Kinds by words in MPI's names: the first that fits. Bits are added where a kind has several widths. */
static const struct {
  const char *part, *kind;
} kinds[] = {
    {"LONG_DOUBLE", NULL}, {"BFLOAT16", "bfloat"}, {"COMPLEX", "complex"}, {"BOOL", "bool"},  {"LOGICAL", "bool"},
    {"UINT", "uint"},      {"UNSIGNED", "uint"},   {"BYTE", "uint"},       {"PACKED", "uint"}, {"FLOAT", "float"},
    {"DOUBLE", "float"},   {"REAL", "float"},      {"CHAR", "int"},        {"INT", "int"},     {"LONG", "int"},
    {"SHORT", "int"},      {"OFFSET", "int"},      {"COUNT", "int"},
};

static bool is_pair(const char *name) { /* of MINLOC and MAXLOC */
  static const char *const pairs[] = {"FLOAT_INT", "DOUBLE_INT", "LONG_INT", "SHORT_INT", "2INT", "LONG_DOUBLE_INT",
                                      "2REAL",     "2DOUBLE_PRECISION", "2INTEGER"};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
    if (!strcmp(name, pairs[i])) return true;
  return false;
}

static void our_name(char *into, const char *given, int64_t size_bytes) {
  const char *name = strncmp(given, "MPI_", 4) ? strncmp(given, "MPIX_", 5) ? given : given + 5 : given + 4;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !is_pair(name); i++) {
    if (!strstr(name, kinds[i].part)) continue;
    if (!kinds[i].kind) break;
    if (!strcmp(kinds[i].kind, "bool")) snprintf(into, NAME_BYTES, "bool");
    else snprintf(into, NAME_BYTES, "%s%d", kinds[i].kind, (int)(8 * size_bytes));
    return;
  }
  char plain[NAME_BYTES] = "";
  for (size_t i = 0; i + 1 < sizeof plain && name[i]; i++)
    plain[i] = isalnum((unsigned char)name[i]) ? (char)tolower((unsigned char)name[i]) : '-';
  memcpy(into, plain, sizeof plain);
}

static int64_t size_of(word datatype) {
  int size = 0;
  int64_t large = 0;
  if (ask.Type_size(datatype, &size) == 0 && size >= 0) return size;
  return ask.Type_size_x(datatype, &large) == 0 && large >= 0 ? large : 0; /* more than an int holds */
}

static struct type keep_type(word key, word datatype, int64_t size_bytes) {
  static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER;
  struct type type = {"predefined", size_bytes};
  pthread_mutex_lock(&keeping);
  for (size_t i = 0, place = (key >> 3 ^ key) % KNOWN_TYPES; i < KNOWN_TYPES; i++, place = (place + 1) % KNOWN_TYPES) {
    struct known_type *known = &known_types[place];
    word there = atomic_load(&known->key);
    if (there && there != key) continue;
    if (!there) {
      char given[1024] = "";
      int length = 0;
      ask.Type_get_name(datatype, given, &length);
      our_name(known->name, given, size_bytes);
      known->size_bytes = size_bytes;
      atomic_store_explicit(&known->key, key, memory_order_release);
    }
    type.name = known->name;
    break;
  }
  pthread_mutex_unlock(&keeping);
  return type;
}

struct type type_of(word datatype) {
  word key = handle(datatype) + 1;
  if (handle(datatype) == library.type_null) return (struct type){"", 0};
  for (size_t i = 0, place = (key >> 3 ^ key) % KNOWN_TYPES; i < KNOWN_TYPES; i++, place = (place + 1) % KNOWN_TYPES) {
    struct known_type *known = &known_types[place];
    word there = atomic_load_explicit(&known->key, memory_order_acquire);
    if (LIKELY(there == key)) return (struct type){known->name, known->size_bytes};
    if (!there) break;
  }
  if (!type_is_predefined(datatype)) return (struct type){"derived", size_of(datatype)};
  return keep_type(key, datatype, size_of(datatype));
}
