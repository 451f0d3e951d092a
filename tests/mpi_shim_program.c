/* A program of MPI in C for test_mpi_shim.py: what the bindings of Python cannot show. The first argument names the scene.
 *
 * With -DWITHOUT_HEADER it is compiled for an Open MPI of which only the library is at hand: the few names it uses are declared
 * here as that library exports them, so that the program holds copies of the library's variables as any C program does. */
#define _GNU_SOURCE
#ifdef WITHOUT_HEADER
typedef void *MPI_Comm, *MPI_Datatype, *MPI_Op, *MPI_Request;
typedef struct { int MPI_SOURCE, MPI_TAG, MPI_ERROR, hidden; unsigned long count; } MPI_Status;
extern char ompi_mpi_comm_world[], ompi_mpi_comm_self[], ompi_mpi_double[], ompi_mpi_int[], ompi_mpi_op_sum[], ompi_mpi_op_max[];
#define MPI_COMM_WORLD ((MPI_Comm)ompi_mpi_comm_world)
#define MPI_COMM_SELF ((MPI_Comm)ompi_mpi_comm_self)
#define MPI_DOUBLE ((MPI_Datatype)ompi_mpi_double)
#define MPI_INT ((MPI_Datatype)ompi_mpi_int)
#define MPI_SUM ((MPI_Op)ompi_mpi_op_sum)
#define MPI_MAX ((MPI_Op)ompi_mpi_op_max)
#define MPI_ANY_SOURCE -1
#define MPI_IN_PLACE ((void *)1)
#define MPI_STATUS_IGNORE ((MPI_Status *)0)
#define MPI_STATUSES_IGNORE ((MPI_Status *)0)
int MPI_Init(int *, char ***), MPI_Finalize(void), MPI_Abort(MPI_Comm, int), MPI_Comm_rank(MPI_Comm, int *);
int MPI_Comm_size(MPI_Comm, int *), MPI_Barrier(MPI_Comm);
int MPI_Allreduce(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
int PMPI_Allreduce(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
int MPI_Isend(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int MPI_Irecv(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int MPI_Send(const void *, int, MPI_Datatype, int, int, MPI_Comm);
int MPI_Recv(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status *);
int MPI_Waitall(int, MPI_Request *, MPI_Status *);
int MPI_Init_thread(int *, char ***, int, int *), MPI_Comm_dup(MPI_Comm, MPI_Comm *), MPI_Wait(MPI_Request *, MPI_Status *);
int MPI_Iallreduce(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *);
double MPI_Wtime(void);
#define MPI_THREAD_MULTIPLE 3
#else
#include <mpi.h>
#endif
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int me, p;

static void sums(int n, MPI_Comm comm) {
  for (int i = 0; i < n; i++) {
    double x = 1, y = 0;
    MPI_Allreduce(&x, &y, 1, MPI_DOUBLE, MPI_SUM, comm);
  }
}

static void messages(void) { /* statuses ignored, senders left open, more than fit on the shim's stack */
  enum { MANY = 100 };
  int out[MANY], in[MANY];
  MPI_Request requests[2 * MANY];
  int right = (me + 1) % p;
  for (int i = 0; i < MANY; i++) {
    MPI_Irecv(&in[i], 1, MPI_INT, MPI_ANY_SOURCE, i, MPI_COMM_WORLD, &requests[i]);
    out[i] = i;
  }
  for (int i = 0; i < MANY; i++) MPI_Isend(&out[i], 1, MPI_INT, right, i, MPI_COMM_WORLD, &requests[MANY + i]);
  MPI_Waitall(2 * MANY, requests, MPI_STATUSES_IGNORE);
  MPI_Send(out, 10, MPI_INT, right, 0, MPI_COMM_WORLD);
  MPI_Recv(in, MANY, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  for (int i = 0; i < 10; i++)
    if (in[i] != i) exit(40);
  double z = me;
  MPI_Allreduce(MPI_IN_PLACE, &z, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  if (z != p - 1) exit(41);
}

static void children(void) {
  pid_t child = fork();
  if (child == 0) exit(0); /* by exit: what was registered by the parent runs in the child too */
  int status = 1;
  waitpid(child, &status, 0);
  if (status) exit(42);
}

static void low_numbers(void) { /* a program may close all it knows of, and count on the low numbers being its own */
  sums(10, MPI_COMM_SELF);
  int found = 0;
  for (int fd = 0; fd < 2000; fd++) {
    char link[64], target[4096] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, target, sizeof target - 1) > 0 && strstr(target, "/calls.")) found = fd;
  }
  if (found < 256) exit(43);
}

static void *work(void *comm) {
  for (int i = 0; i < 200; i++) {
    double x = 1, y = 0;
    MPI_Request request;
    MPI_Iallreduce(&x, &y, 1, MPI_DOUBLE, MPI_SUM, *(MPI_Comm *)comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    sums(1, *(MPI_Comm *)comm);
  }
  return NULL;
}

static void threads(void) {
  enum { THREADS = 4 };
  MPI_Comm comms[THREADS];
  pthread_t workers[THREADS];
  for (int i = 0; i < THREADS; i++) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
  for (int i = 0; i < THREADS; i++) pthread_create(&workers[i], NULL, work, &comms[i]);
  for (int i = 0; i < THREADS; i++) pthread_join(workers[i], NULL);
}

static void timed(int n) {
  for (int turn = 0; turn < 3; turn++) {
    double from = MPI_Wtime();
    sums(n, MPI_COMM_WORLD);
    double took = (MPI_Wtime() - from) / n * 1e9;
    MPI_Barrier(MPI_COMM_WORLD);
    if (me == 0) printf("%.1f\n", took);
  }
}

int main(int argc, char **argv) {
  const char *scene = argv[1];
  int level = MPI_THREAD_MULTIPLE;
  if (!strcmp(scene, "threads")) MPI_Init_thread(&argc, &argv, level, &level);
  else MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &p);
  if (!strcmp(scene, "messages")) messages();
  if (!strcmp(scene, "threads")) level == MPI_THREAD_MULTIPLE ? threads() : exit(45);
  if (!strcmp(scene, "sums")) sums(50, MPI_COMM_WORLD);
  if (!strcmp(scene, "code")) sums(5, MPI_COMM_WORLD), printf("rank %d of %d\n", me, p), fflush(stdout);
  if (!strcmp(scene, "fork")) sums(5, MPI_COMM_WORLD), children(), sums(5, MPI_COMM_WORLD);
  if (!strcmp(scene, "low-numbers")) low_numbers();
  if (!strcmp(scene, "timed")) timed(atoi(argv[2]));
  if (!strcmp(scene, "exit")) sums(5, MPI_COMM_SELF), exit(6);
  if (!strcmp(scene, "abort")) sums(5, MPI_COMM_WORLD), MPI_Abort(MPI_COMM_WORLD, 9);
  if (!strcmp(scene, "kill")) {
    sums(50, MPI_COMM_WORLD);
    if (me == 0) kill(getpid(), SIGKILL);
    sums(50, MPI_COMM_WORLD);
  }
  if (!strcmp(scene, "profiled")) { /* as the Fortran bindings of Open MPI call it */
    double x = 1, y;
    for (int i = 0; i < 7; i++) PMPI_Allreduce(&x, &y, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  }
  MPI_Finalize();
  return !strcmp(scene, "code") && me == 0 ? 7 : 0;
}
