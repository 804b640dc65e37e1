#include "threads.h"

/* What GCC makes of `#pragma omp`; Clang would call another library than the one that torch has loaded. */
#define WEAK __attribute__((weak)) /* without an OpenMP library in the process they are null, and one thread runs all */
WEAK void GOMP_parallel(void (*function)(void *), void *data, unsigned threads, unsigned flags);
WEAK int omp_get_thread_num(void);
WEAK int omp_get_num_threads(void);

struct Call {
    Part part;
    const void *work;
    struct Meeting meeting;
};

static void run_part(void *data) {
    struct Call *call = data;
    call->part(call->work, &call->meeting, omp_get_thread_num(), omp_get_num_threads());
}

void run_together(Part part, const void *work, int64_t threads) {
    if (threads == 1 || !GOMP_parallel) {
        part(work, 0, 0, 1);
        return;
    }
    struct Call call = {part, work, {}};
    GOMP_parallel(run_part, &call, (unsigned)threads, 0);
}
