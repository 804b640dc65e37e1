/* Work that several threads do together. */

#ifndef SPECPAIR_THREADS_H
#define SPECPAIR_THREADS_H

#include "meeting.h"
#include <stdint.h>

/* The part of one of the threads, which may meet; without others there is no meeting. */
typedef void (*Part)(const void *work, struct Meeting *meeting, int thread, int threads);

/* Runs the part of each of so many threads. */
void run_together(Part part, const void *work, int64_t threads);

#endif
