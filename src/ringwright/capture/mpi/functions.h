/* Every function of MPI that is recorded, in one table: X(name, words, form, op), in the order of the standard's chapters.
 *
 * `words` counts its arguments. The form tells where its arguments stand (measure.c). The same names with I before them are the
 * nonblocking ones, with a request behind; those with _init the prepared ones, with an info and a request behind; those with _c take
 * counts of 64 bits. */
#ifndef RINGWRIGHT_MPI_FUNCTIONS_H
#define RINGWRIGHT_MPI_FUNCTIONS_H

enum form {
  REDUCTION,       /* send, receive, count, type, op, comm */
  REDUCE_ROOT,     /* send, receive, count, type, op, root, comm */
  BROADCAST,       /* buffer, count, type, root, comm */
  GATHER_ALL,      /* send, n, type, receive, n, type, comm */
  GATHER_ALL_V,    /* send, n, type, receive, ns, places, type, comm */
  GATHER_ROOT,     /* send, n, type, receive, n, type, root, comm */
  GATHER_ROOT_V,   /* send, n, type, receive, ns, places, type, root, comm */
  SCATTER_ROOT,    /* send, n, type, receive, n, type, root, comm */
  SCATTER_ROOT_V,  /* send, ns, places, type, receive, n, type, root, comm */
  REDUCE_PARTS,    /* send, receive, ns, type, op, comm */
  REDUCE_BLOCK,    /* send, receive, n, type, op, comm */
  EXCHANGE,        /* send, n, type, receive, n, type, comm */
  EXCHANGE_V,      /* send, ns, places, type, receive, ns, places, type, comm */
  EXCHANGE_W,      /* send, ns, places, types, receive, ns, places, types, comm */
  NOTHING,         /* comm */
  SEND,            /* buffer, n, type, peer, tag, comm */
  RECEIVE,         /* buffer, n, type, peer, tag, comm */
  SEND_RECEIVE,    /* send, n, type, peer, tag, receive, n, type, peer, tag, comm */
  SEND_REPLACE,    /* buffer, n, type, peer, tag, peer, tag, comm */
  TRANSFER,        /* buffer, n, type, peer, place, n, type, ..., window: counted, as are the next two */
  FETCH,           /* buffer, n, type, result, n, type, peer, ..., window */
  WINDOW,          /* a window is made */
};

enum way { BLOCKING, NONBLOCKING, WITH_STATUS, PERSISTENT };

#define BOTH_COLLECTIVES(X)                                                                                                       \
  X(Allreduce, Iallreduce, 6, REDUCTION, "all-reduce")                                                                            \
  X(Reduce, Ireduce, 7, REDUCE_ROOT, "reduce")                                                                                    \
  X(Scan, Iscan, 6, REDUCTION, "scan")                                                                                            \
  X(Exscan, Iexscan, 6, REDUCTION, "exscan")                                                                                      \
  X(Bcast, Ibcast, 5, BROADCAST, "broadcast")                                                                                     \
  X(Allgather, Iallgather, 7, GATHER_ALL, "all-gather")                                                                           \
  X(Allgatherv, Iallgatherv, 8, GATHER_ALL_V, "all-gather")                                                                       \
  X(Gather, Igather, 8, GATHER_ROOT, "gather")                                                                                    \
  X(Gatherv, Igatherv, 9, GATHER_ROOT_V, "gather")                                                                                \
  X(Scatter, Iscatter, 8, SCATTER_ROOT, "scatter")                                                                                \
  X(Scatterv, Iscatterv, 9, SCATTER_ROOT_V, "scatter")                                                                            \
  X(Reduce_scatter, Ireduce_scatter, 6, REDUCE_PARTS, "reduce-scatter")                                                           \
  X(Reduce_scatter_block, Ireduce_scatter_block, 6, REDUCE_BLOCK, "reduce-scatter")                                               \
  X(Alltoall, Ialltoall, 7, EXCHANGE, "all-to-all")                                                                               \
  X(Alltoallv, Ialltoallv, 9, EXCHANGE_V, "all-to-all")                                                                           \
  X(Alltoallw, Ialltoallw, 9, EXCHANGE_W, "all-to-all")

/* With `Y` for what has no counts, and so no _c either. */
#define RECORDED(X, Y)                                                                                                            \
  X(Send, 6, SEND, "send", BLOCKING)                                                                                              \
  X(Ssend, 6, SEND, "send", BLOCKING)                                                                                             \
  X(Bsend, 6, SEND, "send", BLOCKING)                                                                                             \
  X(Rsend, 6, SEND, "send", BLOCKING)                                                                                             \
  X(Isend, 7, SEND, "send", NONBLOCKING)                                                                                          \
  X(Issend, 7, SEND, "send", NONBLOCKING)                                                                                         \
  X(Ibsend, 7, SEND, "send", NONBLOCKING)                                                                                         \
  X(Irsend, 7, SEND, "send", NONBLOCKING)                                                                                         \
  X(Send_init, 7, SEND, "send", PERSISTENT)                                                                                       \
  X(Ssend_init, 7, SEND, "send", PERSISTENT)                                                                                      \
  X(Bsend_init, 7, SEND, "send", PERSISTENT)                                                                                      \
  X(Rsend_init, 7, SEND, "send", PERSISTENT)                                                                                      \
  X(Recv, 7, RECEIVE, "recv", WITH_STATUS)                                                                                        \
  X(Irecv, 7, RECEIVE, "recv", NONBLOCKING)                                                                                       \
  X(Recv_init, 7, RECEIVE, "recv", PERSISTENT)                                                                                    \
  X(Sendrecv, 12, SEND_RECEIVE, "send", WITH_STATUS)                                                                              \
  X(Sendrecv_replace, 9, SEND_REPLACE, "send", WITH_STATUS)                                                                       \
  X(Isendrecv, 12, SEND_RECEIVE, "send", NONBLOCKING)                                                                             \
  X(Isendrecv_replace, 9, SEND_REPLACE, "send", NONBLOCKING)                                                                      \
  X(Put, 8, TRANSFER, "", BLOCKING)                                                                                               \
  X(Get, 8, TRANSFER, "", BLOCKING)                                                                                               \
  X(Accumulate, 9, TRANSFER, "", BLOCKING)                                                                                        \
  X(Get_accumulate, 12, FETCH, "", BLOCKING)                                                                                      \
  X(Rput, 9, TRANSFER, "", BLOCKING)                                                                                              \
  X(Rget, 9, TRANSFER, "", BLOCKING)                                                                                              \
  X(Raccumulate, 10, TRANSFER, "", BLOCKING)                                                                                      \
  X(Rget_accumulate, 13, FETCH, "", BLOCKING)                                                                                     \
  X(Win_create, 6, WINDOW, "", BLOCKING)                                                                                          \
  X(Win_allocate, 6, WINDOW, "", BLOCKING)                                                                                        \
  X(Win_allocate_shared, 6, WINDOW, "", BLOCKING)                                                                                 \
  Y(Fetch_and_op, 7, FETCH, "", BLOCKING)                                                                                         \
  Y(Compare_and_swap, 7, FETCH, "", BLOCKING)                                                                                     \
  Y(Win_create_dynamic, 3, WINDOW, "", BLOCKING)                                                                                  \
  Y(Barrier, 1, NOTHING, "barrier", BLOCKING)                                                                                     \
  Y(Ibarrier, 2, NOTHING, "barrier", NONBLOCKING)                                                                                 \
  Y(Barrier_init, 3, NOTHING, "barrier", PERSISTENT)

struct function {
  const char *name, *plain_name; /* PMPI_..., and without _c */
  const char *op;
  unsigned char words, form, way, wide;
};

#endif
