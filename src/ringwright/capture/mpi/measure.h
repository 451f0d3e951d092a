#ifndef RINGWRIGHT_MPI_MEASURE_H
#define RINGWRIGHT_MPI_MEASURE_H
#include "functions.h"
#include "shim.h"

/* Fill one or two begins from the arguments of a call; return how many (none: nothing is sent, or its communicator is unknown). */
int measure(const struct function *, const word *arguments, struct begin two[2]);
/* For a library without the _c form: its arrays of 64-bit counts as arrays of ints. False where that cannot be done. */
bool narrow(const struct function *, word *arguments, void **held);
word comm_of(const struct function *, const word *arguments);
#endif
