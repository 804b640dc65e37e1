/* Asks memory for weights before they are multiplied. */

#ifndef SPECPAIR_FETCHING_H
#define SPECPAIR_FETCHING_H

#include "vectors.h"

/* What a tile asks for while it works: its part of weights to come, some bytes in each step. Without it memory would rest
   while sums are made of what is in the caches, and the sums while more comes. */
struct Fetching {
    const char *from;
    int64_t pitch; /* bytes in a step */
};

/* Whether a tile of `rows` rows asks, for weights of so many bits. The sums of few rows take less time than memory does, and
   a processor that foresees reading in order then does better unaided. */
INLINE int asks(const int bits, const int rows) {
#if defined(__AVX512F__)
    return rows * 8 > bits;
#else
    return 1;
#endif
}

/* For the first of `tiles` tiles, which take `steps` steps each; `size` bytes are to come, from `next` on. */
INLINE struct Fetching fetching_of(const void *next, int64_t size, int64_t steps, int64_t tiles) {
    return (struct Fetching){next, size / (steps * tiles)};
}

/* What is to be asked for after `steps` steps. */
INLINE struct Fetching after(struct Fetching fetching, int64_t steps) {
    return (struct Fetching){fetching.from + steps * fetching.pitch, fetching.pitch};
}

/* With AVX-512 into the second cache: in the innermost one a panel would drive out what tiles read there. */
INLINE void fetch(struct Fetching fetching, int64_t step) {
    const char *from = fetching.from + step * fetching.pitch;
#if defined(__AVX512F__)
    __builtin_prefetch(from, 0, 2);
    if (fetching.pitch > 64) __builtin_prefetch(from + 64, 0, 2);
    if (fetching.pitch > 128) __builtin_prefetch(from + 128, 0, 2);
#else
    __builtin_prefetch(from, 0, 3); /* a block is small, and all its tiles read it there */
#endif
}

#endif
