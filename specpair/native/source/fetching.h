/* Asks memory for weights before they are multiplied. */

#ifndef SPECPAIR_FETCHING_H
#define SPECPAIR_FETCHING_H

#include "vectors.h"

/* What a tile asks for while it works: its part of weights to come, some bytes in each step. Without it memory would rest
   while sums are made of what is in the caches, and the sums while more comes. */
struct Fetching {
    const char *from;
    int64_t pitch; /* bytes in a step */
    int is_far;    /* beside many tiles: in the innermost cache it would drive out what they read */
};

/* For the first of `tiles` tiles, which take `steps` steps each; `size` bytes are to come, from `next` on. */
INLINE struct Fetching fetching_of(const void *next, int64_t size, int64_t steps, int64_t tiles) {
    return (struct Fetching){next, size / (steps * tiles), tiles > 3};
}

/* What is to be asked for after `steps` steps. */
INLINE struct Fetching after(struct Fetching fetching, int64_t steps) {
    return (struct Fetching){fetching.from + steps * fetching.pitch, fetching.pitch, fetching.is_far};
}

INLINE void fetch(struct Fetching fetching, int64_t step) {
    const char *from = fetching.from + step * fetching.pitch;
#if defined(__AVX512F__)
    if (fetching.is_far) {
        __builtin_prefetch(from, 0, 2);
        return;
    }
    __builtin_prefetch(from, 0, 3);
    if (fetching.pitch > 64) __builtin_prefetch(from + 64, 0, 3);
    if (fetching.pitch > 128) __builtin_prefetch(from + 128, 0, 3);
#else
    __builtin_prefetch(from, 0, 3); /* a block is small, and all its tiles read it there */
#endif
}

#endif
