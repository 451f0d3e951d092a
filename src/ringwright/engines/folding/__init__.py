"""Folding: simulate one rank for all that do the same (a quotient by symmetry), where program and machine allow it.

A ring all-reduce on a ring of eight ranks has 14 steps of eight messages. Turn everything by one rank and it is the same
program on the same machine::

    step 0      0 -> 1 -> 2 -> 3 -> 4 -> 5 -> 6 -> 7 -> 0        eight messages, chunk r from rank r to rank r + 1
    turned      1 -> 2 -> 3 -> 4 -> 5 -> 6 -> 7 -> 0 -> 1        the same eight
    folded      0 -> 0'                                          one of them, which stands for eight

So all eight links are busy at the same times, and 14 messages over one link take as long as 112 over eight. On 131,072 ranks
that is the difference between 34 thousand million messages and 262 thousand. Nothing is assumed: each part checks one
condition, and where one fails the program is laid out whole, with the reason.

1. ``families`` collects what differs only in where its chunks begin: the 14 steps above are two, adding and copying.
2. ``patterns`` reads how ranks and chunks depend on the position in a block: rank r + 1 modulo 8, chunk r - step modulo 8.
3. ``refine`` cuts ranges so that all families see the same digits of a rank (8 = 2 x 4 where one of them works inside nodes).
4. ``mesh`` offers groups of turns: of the eight ranks, of the four nodes alone, ...; the largest that fits is taken.
5. ``slots`` checks that slots turn with the ranks, and names the slot that stands for its images.
6. ``orbits`` checks the machine: rates, latencies, shared capacities and faults are equal for all images of a resource, and
   no resource serves two images of one message. What turns into each other is an *orbit*.
7. ``fold`` lays out one message of each orbit on a machine with one resource of each orbit: the *quotient*.

Where switches of the network add up and copy, no turn shows that ranks are alike, for the switch stays where it is:
eight ranks give to one switch, and it gives to all. There the program folds by classes (``by_class``):

1. ``move_lists`` gathers the ends that many blocks share.
2. ``partition`` divides nodes, pairs and resources into classes in which all do the same.
3. ``meetings`` cuts classes until no resource serves two of one, and checks the order of what comes at one instant.

``quotient`` is what both make. Its result equals that of the whole, to the picosecond; tests hold it to that wherever both can
run.
"""
