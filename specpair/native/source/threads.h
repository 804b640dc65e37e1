/* What GCC makes of `#pragma omp`; Clang would call another library than the one that torch has loaded. */

#ifndef SPECPAIR_THREADS_H
#define SPECPAIR_THREADS_H

#define WEAK __attribute__((weak)) /* without an OpenMP library in the process they are null, and one thread runs all */
WEAK void GOMP_parallel(void (*function)(void *), void *data, unsigned threads, unsigned flags);
WEAK int omp_get_thread_num(void);
WEAK int omp_get_num_threads(void);

#endif
