/* Asks memory for weights before they are multiplied. */

#ifndef SPECPAIR_FETCHING_H
#define SPECPAIR_FETCHING_H

#include "vectors.h"

#if defined(__AVX512F__)
#define FETCHES_PANELS 1
#else
#define FETCHES_PANELS 0 /* sums take so long there that asking gains nothing */
#endif

/* What a tile asks for while it works: its part of the panel after its own, some bytes in each step. Without it memory
   would rest while sums are made of a panel that is in the caches, and the sums while the next one comes. */
struct Fetching {
    const char *from;
    int64_t pitch; /* bytes in a step */
    int is_far;    /* beside many tiles: in the innermost cache it would drive out what they read */
};

/* For tile `tile` of `tiles`, which take `steps` steps each; `next` is the panel to come, of `size` bytes. */
INLINE struct Fetching fetching_of(const void *next, int64_t size, int64_t steps, int64_t tile, int64_t tiles) {
    int64_t pitch = size / (steps * tiles);
    return (struct Fetching){(const char *)next + tile * steps * pitch, pitch, tiles > 3};
}

INLINE void fetch(struct Fetching fetching, int64_t step) {
    if (!FETCHES_PANELS) return;
    const char *from = fetching.from + step * fetching.pitch;
    if (fetching.is_far) {
        __builtin_prefetch(from, 0, 2);
        return;
    }
    __builtin_prefetch(from, 0, 3);
    if (fetching.pitch > 64) __builtin_prefetch(from + 64, 0, 3);
    if (fetching.pitch > 128) __builtin_prefetch(from + 128, 0, 3);
}

/* Asks for the memory `ahead` bytes after `from`. Without AVX-512, whose loads are whole lines in order, a panel is read
   in sections with gaps between them, and processors do not foresee that well enough. */
INLINE void fetch_soon(const void *from, int64_t ahead) {
    if (!FETCHES_PANELS) __builtin_prefetch((const char *)from + ahead);
}

#endif
