/* The MPI shim of Ringwright: what its files share.
 *
 * It is compiled without any mpi.h, once for all MPI libraries. Every argument travels as a machine word: a handle is an int in
 * MPICH and a pointer in Open MPI, and on the 64-bit systems of Linux both arrive and leave in a word of their own, whatever its
 * upper half holds. So a call is handed on untouched even when the library turns out to be another one than was expected; what
 * the words mean is asked from `library`, which learns it from the libmpi that the process has really loaded. */
#ifndef RINGWRIGHT_MPI_SHIM_H
#define RINGWRIGHT_MPI_SHIM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if !defined(__LP64__) || !defined(__linux__)
#error "the shim passes arguments as 64-bit words: Linux on a 64-bit processor is needed"
#endif

#define EXPORT __attribute__((visibility("default")))
#define LIKELY(x) __builtin_expect(!!(x), 1)

typedef uintptr_t word;
enum { MAX_WORDS = 13 };

/* ------------------------------------------------------------------------------------------------- library.c: the libmpi */
struct library {
  word comm_world, comm_null, request_null, message_null, message_no_proc, type_null, type_byte, in_place;
  int proc_null, any_source;
  size_t handle_bytes, status_bytes, source_at;
  bool status_ignore_is_one;
};
extern struct library library;
bool library_known(void);                   /* finds it, once; false while no libmpi is loaded or its kind is unknown */
void *library_function(const char *name);   /* of libmpi itself: "PMPI_..." */
void *next_function(const char *name);      /* what the program would have called: another tool's, else libmpi's */
bool program_calls(const void *address);    /* false where libmpi or a component of it calls its own interface */
const char *op_name(word op);               /* "sum", ...; "user" for the program's own */
bool type_is_predefined(word datatype);     /* lives for ever, so that its handle may be remembered */

static inline word handle(word given) { return library.handle_bytes == 4 ? (uint32_t)given : given; }
static inline word handle_at(word array, int64_t place) {
  return library.handle_bytes == 4 ? ((const uint32_t *)array)[place] : ((const word *)array)[place];
}
static inline bool no_status(word status) { return status == (word)(library.status_ignore_is_one ? 1 : 0); }

/* What the shim itself asks of MPI. Handles are words, outputs are what the standard says. */
#define ASKED(X)                                                                                                                  \
  X(Initialized, (int *))                                                                                                         \
  X(Finalized, (int *))                                                                                                           \
  X(Get_library_version, (char *, int *))                                                                                         \
  X(Comm_rank, (word, int *))                                                                                                     \
  X(Comm_size, (word, int *))                                                                                                     \
  X(Comm_test_inter, (word, int *))                                                                                               \
  X(Comm_get_name, (word, char *, int *))                                                                                         \
  X(Comm_group, (word, word *))                                                                                                   \
  X(Comm_create_keyval, (void *, void *, int *, void *))                                                                          \
  X(Comm_get_attr, (word, int, void *, int *))                                                                                    \
  X(Comm_set_attr, (word, int, void *))                                                                                           \
  X(Group_translate_ranks, (word, int, const int *, word, int *))                                                                 \
  X(Group_free, (word *))                                                                                                         \
  X(Type_size, (word, int *))                                                                                                     \
  X(Type_size_x, (word, int64_t *))                                                                                               \
  X(Type_get_name, (word, char *, int *))                                                                                         \
  X(Get_elements_x, (const void *, word, int64_t *))                                                                              \
  X(Test_cancelled, (const void *, int *))
#define MEMBER(name, arguments) int(*name) arguments;
struct ask { ASKED(MEMBER) };
#undef MEMBER
extern struct ask ask; /* filled by library_known() */

/* --------------------------------------------------------------------------------------------------- lines.c: the file */
enum loss { LOST_WRITES, LOST_MEMORY, LOST_INTER, LOST_REFUSED, LOST_FREED, LOST_TRANSFERS, LOST_WINDOWS, LOST_KINDS };
struct line {
  char *at, *end; /* writing stops before `end`, so that a line too long is cut and then not written */
  char text[768];
};
void line_begin(struct line *, char kind);
void line_int(struct line *, int64_t);
void line_null(struct line *);
void line_text(struct line *, const char *);
void line_end(struct line *);
void whole_line(const char *text, size_t bytes); /* one write() */
void lost(enum loss);
int64_t now_ns(void);
bool file_open(const char *folder, const char *header, size_t bytes);
void file_end(const char *how, bool has_code, int64_t code); /* the last lines; whoever comes first says how it ended */
void file_forget(void); /* in a child after fork: the file is the parent's */
size_t escaped(char *into, size_t room, const char *text, size_t bytes);

/* ---------------------------------------------------------------------------------- groups.c: communicators and datatypes */
struct group {
  int gid, size, rank;
  bool inter;
};
const struct group *group_of(word comm); /* written as a "g" line when met first; null where it cannot be told */
struct type {
  const char *name;
  int64_t size_bytes;
};
struct type type_of(word datatype);

/* ---------------------------------------------------------------------------------------- pending.c: calls not yet completed */
enum { ABSENT = INT64_MIN };
struct begin { /* one "b" line */
  int64_t n, count, sent_bytes, received_bytes; /* ABSENT where there is none */
  int gid, root, peer;
  bool has_root, has_peer, async, receives, any_source;
  const char *op, *datatype, *reduce_op;
};
struct pending {
  struct pending *next;
  word key;
  struct begin begin;
  struct pending *twin; /* the second half of a send and receive in one */
  void *held;           /* arrays that the library reads until the call is complete */
  bool persistent, active;
};
void write_begin(struct begin *); /* gives it its number */
void write_end(const struct begin *, const void *status);
struct pending *pending_new(const struct begin *);
void pending_put(word key, struct pending *);
struct pending *pending_take(word key);
void pending_drop(struct pending *);
#define MESSAGE_KEY(handle) ((handle) | (word)1 << 62)

/* -------------------------------------------------------------------------------------------------- shim.c: when it records */
bool recording(void); /* starts lazily where MPI was initialized behind our back */
extern __thread int inside __attribute__((tls_model("initial-exec"))); /* depth of MPI calls on this thread */

#endif
