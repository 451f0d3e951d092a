/* The functions that stand in front of MPI's: those that communicate.
 *
 * Each exists as MPI_... and as PMPI_...: the Fortran bindings of some libraries (Open MPI) call the second. Both record when the
 * program calls them and hand on to what the program would have reached without us. Calls from inside MPI pass through. */
#include "measure.h"

#include <stdlib.h>

enum { MPI_ERROR = 15 }; /* "other error" or near it in every library: for a function that the library does not have */
static const size_t LARGEST_STATUS = 64;

enum number {
#define NUMBER(name, words, form, op, way) F_##name, F_##name##_c,
#define NUMBER_Y(name, words, form, op, way) F_##name,
#define NUMBER_TWO(name, iname, words, form, op) \
  F_##name, F_##name##_c, F_##iname, F_##iname##_c, F_##name##_init, F_##name##_init_c,
  BOTH_COLLECTIVES(NUMBER_TWO) RECORDED(NUMBER, NUMBER_Y) FUNCTIONS
};

static const struct function functions[FUNCTIONS] = {
#define ROW(name, words, form, op, way) \
  [F_##name] = {"PMPI_" #name, "PMPI_" #name, op, words, form, way, 0}, \
  [F_##name##_c] = {"PMPI_" #name "_c", "PMPI_" #name, op, words, form, way, 1},
#define ROW_Y(name, words, form, op, way) [F_##name] = {"PMPI_" #name, "PMPI_" #name, op, words, form, way, 0},
#define ROW_TWO(name, iname, words, form, op) \
  ROW(name, words, form, op, BLOCKING) ROW(iname, words + 1, form, op, NONBLOCKING) ROW(name##_init, words + 2, form, op, PERSISTENT)
    BOTH_COLLECTIVES(ROW_TWO) RECORDED(ROW, ROW_Y)};

/* ------------------------------------------------------------------------------------------------------------- handing on */
struct target {
  _Atomic(void *) function;
  _Atomic bool narrow; /* the plain function stands in for a missing _c */
};
static struct target targets[FUNCTIONS][2]; /* by MPI_ and by PMPI_ */

static void *target_of(const struct function *f, bool profiled, bool *narrows) {
  struct target *target = &targets[f - functions][profiled];
  void *function = atomic_load_explicit(&target->function, memory_order_acquire);
  if (!LIKELY(function)) {
    const char *name = f->name + !profiled; /* without the P */
    function = profiled ? library_function(name) : next_function(name);
    if (!function && f->wide) {
      function = profiled ? library_function(f->plain_name) : next_function(f->plain_name + 1);
      atomic_store(&target->narrow, true);
    }
    atomic_store_explicit(&target->function, function, memory_order_release);
  }
  *narrows = f->wide && atomic_load_explicit(&target->narrow, memory_order_relaxed);
  return function;
}

static int reach(void *function, int words, const word *a) {
  switch (words) {
    case 1: return ((int (*)(word))function)(a[0]);
    case 2: return ((int (*)(word, word))function)(a[0], a[1]);
    case 3: return ((int (*)(word, word, word))function)(a[0], a[1], a[2]);
    case 5: return ((int (*)(word, word, word, word, word))function)(a[0], a[1], a[2], a[3], a[4]);
    case 6: return ((int (*)(word, word, word, word, word, word))function)(a[0], a[1], a[2], a[3], a[4], a[5]);
    case 7:
      return ((int (*)(word, word, word, word, word, word, word))function)(a[0], a[1], a[2], a[3], a[4], a[5], a[6]);
    case 8:
      return ((int (*)(word, word, word, word, word, word, word, word))function)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]);
    case 9:
      return ((int (*)(word, word, word, word, word, word, word, word, word))function)(a[0], a[1], a[2], a[3], a[4], a[5], a[6],
                                                                                      a[7], a[8]);
    case 10:
      return ((int (*)(word, word, word, word, word, word, word, word, word, word))function)(a[0], a[1], a[2], a[3], a[4], a[5],
                                                                                            a[6], a[7], a[8], a[9]);
    case 11:
      return ((int (*)(word, word, word, word, word, word, word, word, word, word, word))function)(
          a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]);
    case 12:
      return ((int (*)(word, word, word, word, word, word, word, word, word, word, word, word))function)(
          a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
    default:
      return ((int (*)(word, word, word, word, word, word, word, word, word, word, word, word, word))function)(
          a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12]);
  }
}

/* --------------------------------------------------------------------------------------------------------------- recording */
static void follow(const struct function *f, const struct begin *two, int count, word request, void **held) {
  struct pending *entry = pending_new(&two[0]);
  if (!entry) return;
  entry->persistent = f->way == PERSISTENT, entry->active = !entry->persistent;
  if (count == 2) entry->twin = pending_new(&two[1]);
  entry->held = *held, *held = NULL;
  pending_put(handle_at(request, 0), entry);
}

static int recorded(const struct function *f, void *function, word *a, void **held) {
  struct begin two[2];
  _Alignas(16) char status[LARGEST_STATUS];
  int count = measure(f, a, two);
  word *status_at = f->way == WITH_STATUS && count && two[count - 1].receives ? &a[f->words - 1] : NULL;
  if (f->way == PERSISTENT) two[0].async = true;
  else
    for (int i = 0; i < count; i++) write_begin(&two[i]);
  if (status_at && no_status(*status_at)) *status_at = (word)status;
  int failed = reach(function, f->words, a);
  if (failed && count) lost(LOST_REFUSED);
  if (!failed && count && (f->way == NONBLOCKING || f->way == PERSISTENT)) follow(f, two, count, a[f->words - 1], held);
  else if (f->way != PERSISTENT)
    for (int i = 0; i < count; i++) write_end(&two[i], failed || !status_at ? NULL : (void *)*status_at);
  return failed;
}

static int call(enum number number, word *a, bool profiled, const void *from) {
  const struct function *f = &functions[number];
  bool narrows;
  void *function = target_of(f, profiled, &narrows), *held = NULL;
  if (!function) return MPI_ERROR;
  int failed;
  /* Narrow arguments are measured and handed on as the plain function's: the form is the same, the counts are ints. */
  struct function plain = *f;
  if (narrows) {
    if (!narrow(f, a, &held)) return free(held), MPI_ERROR;
    plain.wide = 0, f = &plain;
  }
  if (!inside++ && program_calls(from) && recording()) failed = recorded(f, function, a, &held);
  else failed = reach(function, f->words, a);
  inside--;
  /* Without a record nobody knows when the library is done with the arrays of a nonblocking call: they stay. */
  if (f->way == BLOCKING || f->way == WITH_STATUS || failed) free(held);
  return failed;
}

#define TAKES_1 word a
#define TAKES_2 TAKES_1, word b
#define TAKES_3 TAKES_2, word c
#define TAKES_5 TAKES_3, word d, word e
#define TAKES_6 TAKES_5, word f
#define TAKES_7 TAKES_6, word g
#define TAKES_8 TAKES_7, word h
#define TAKES_9 TAKES_8, word i
#define TAKES_10 TAKES_9, word j
#define TAKES_11 TAKES_10, word k
#define TAKES_12 TAKES_11, word l
#define TAKES_13 TAKES_12, word m
#define GIVES_1 a
#define GIVES_2 a, b
#define GIVES_3 a, b, c
#define GIVES_5 a, b, c, d, e
#define GIVES_6 GIVES_5, f
#define GIVES_7 GIVES_6, g
#define GIVES_8 GIVES_7, h
#define GIVES_9 GIVES_8, i
#define GIVES_10 GIVES_9, j
#define GIVES_11 GIVES_10, k
#define GIVES_12 GIVES_11, l
#define GIVES_13 GIVES_12, m

#define WRAP_ONE(name, prefix, words, profiled)                                        \
  EXPORT int prefix##name(TAKES_##words) {                                             \
    word given[MAX_WORDS] = {GIVES_##words};                                           \
    return call(F_##name, given, profiled, __builtin_return_address(0));               \
  }
#define WRAP_Y(name, words, form, op, way) WRAP_ONE(name, MPI_, words, false) WRAP_ONE(name, PMPI_, words, true)
#define WRAP(name, words, form, op, way) WRAP_Y(name, words, form, op, way) WRAP_Y(name##_c, words, form, op, way)
#define NEXT_5 6
#define NEXT_6 7
#define NEXT_7 8
#define NEXT_8 9
#define NEXT_9 10
#define AFTER_5 7
#define AFTER_6 8
#define AFTER_7 9
#define AFTER_8 10
#define AFTER_9 11
#define WRAP_NEXT(name, words) WRAP_LATE(name, words)
#define WRAP_LATE(name, words) WRAP(name, words, , , )
#define WRAP_TWO(name, iname, words, form, op) \
  WRAP(name, words, form, op, ) WRAP_NEXT(iname, NEXT_##words) WRAP_NEXT(name##_init, AFTER_##words)

BOTH_COLLECTIVES(WRAP_TWO)
RECORDED(WRAP, WRAP_Y)
