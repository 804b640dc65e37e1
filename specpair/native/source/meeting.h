/* Where the threads of a pass wait for each other. */

#ifndef SPECPAIR_MEETING_H
#define SPECPAIR_MEETING_H

#include <sched.h>

#define PATIENCE 1000 /* looks, some tens of microseconds: more than phases usually differ by */

struct Meeting {
    _Alignas(64) int arrived;
    _Alignas(64) int number; /* of meetings that are over */
};

static inline void look_again_soon(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Returns once all threads are there. libgomp's barrier spins or sleeps; where two threads of a pass share a processor,
   because others take the rest, the one that spins keeps the one that works from working. This one lets it work. */
static void meet(struct Meeting *meeting, int threads) {
    if (threads == 1) return;
    int number = __atomic_load_n(&meeting->number, __ATOMIC_RELAXED);
    if (__atomic_add_fetch(&meeting->arrived, 1, __ATOMIC_ACQ_REL) == threads) {
        __atomic_store_n(&meeting->arrived, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&meeting->number, number + 1, __ATOMIC_RELEASE);
        return;
    }
    for (int looks = 0; __atomic_load_n(&meeting->number, __ATOMIC_ACQUIRE) == number; looks++)
        if (looks < PATIENCE)
            look_again_soon();
        else
            sched_yield();
}

#endif
