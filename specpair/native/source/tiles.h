/* Products, tile by tile: which rows and weights meet when. */

#ifndef SPECPAIR_TILES_H
#define SPECPAIR_TILES_H

#include "bytes.h"
#include "sums.h"

#define TOGETHER 5 /* tiles that share a block; rows of more would drive a small one out of the innermost cache */
#if MULTIPLIES_BYTES && BYTE_ROWS > ROWS
#define MOST_ROWS BYTE_ROWS
#else
#define MOST_ROWS ROWS
#endif
#define MOST_CASES 14 /* rows of a tile that `add_tile` has code for */
_Static_assert(MOST_ROWS <= MOST_CASES, "larger tiles would compute nothing");

/* A tile goes through a block of a panel before the next tile has its turn. With AVX-512 that is the whole panel. Elsewhere
   tiles have fewer rows, so that weights are read more often: from the innermost cache, where a block stays. */
#if defined(__AVX512F__)
#define WHOLE_PANELS 1
#else
#define WHOLE_PANELS 0
#endif

struct Rows {
    const char *numbers; /* floats or bfloat16 */
    int64_t stride;      /* bytes from one row to the next */
    struct Rounded rounded; /* the same, beside weights of few bits */
};

/* The weights of a panel are counted in units: what a step reads or, if they have few bits, a group of inputs. */
INLINE int64_t bytes_of_unit(const int kind) {
#if MULTIPLIES_BYTES
    if (kind >= BYTE_WEIGHTS) return bytes_of_group(kind);
#endif
    return PANEL * 4;
}

/* How often a tile asks for weights to come in each unit. */
INLINE int64_t steps_of_unit(const int kind) {
#if MULTIPLIES_BYTES
    if (kind >= BYTE_WEIGHTS) return steps_of_group(kind) * BYTE_PARTS / AT_ONCE;
#endif
    return SECTIONS;
}

INLINE int64_t units_of(const int kind, const struct Product *product, const struct Rows *x) {
    if (kind >= BYTE_WEIGHTS) return x->rounded.groups;
    return kind == FLOAT_WEIGHTS ? product->in : product->in / 2;
}

INLINE int64_t units_of_block(const int kind, int64_t units) {
    if (WHOLE_PANELS) return units;
    return kind == BYTE_WEIGHTS ? 1 : kind == NIBBLE_WEIGHTS ? 4 : 64;
}

#define AHEAD_OF_ONE 8192 /* bytes: some hundreds of processor cycles, in which memory answers */

/* How far the weights that `tiles` tiles ask for are behind those that they multiply. One tile goes on to them by itself;
   several each ask for a part of the panel that follows when the last one is done. */
INLINE int64_t bytes_ahead(const int kind, int64_t bytes_of_block, int64_t tiles) {
    if (WHOLE_PANELS) return tiles == 1 ? AHEAD_OF_ONE : bytes_of_block;
    return kind >= BYTE_WEIGHTS ? 4096 : 2 * bytes_of_block;
}

INLINE int64_t rows_of_tile(const int kind) {
#if MULTIPLIES_BYTES
    if (kind >= BYTE_WEIGHTS) return BYTE_ROWS;
#endif
    return ROWS;
}

/* Adds units `from` .. `to` - 1 of a panel to the sums of `rows` rows, a number known when this is compiled. */
INLINE void add_rows(const int kind, const int rows, const char *weights, const struct Rows *x, int64_t row,
                     int64_t from, int64_t to, float (*sums)[PANEL], struct Fetching fetching) {
#if MULTIPLIES_BYTES
    if (kind >= BYTE_WEIGHTS) {
        add_groups(kind, rows, weights, x->rounded, row, from, to, sums, fetching);
        return;
    }
#endif
    for (int section = 0; section < SECTIONS; section++)
        add_steps(kind, rows, weights + section * PANEL * 4 / SECTIONS, x->numbers + row * x->stride, x->stride, from, to,
                  (float (*)[PANEL])(sums[0] + section * 2 * WIDTH), after(fetching, section * (to - from)));
}

/* The same for any number of rows that a tile may have. */
INLINE void add_tile(const int kind, int64_t rows, const char *weights, const struct Rows *x, int64_t row, int64_t from,
                     int64_t to, float (*sums)[PANEL], struct Fetching fetching) {
#define TILE(number) \
    case number: \
        if (number <= rows_of_tile(kind)) add_rows(kind, number, weights, x, row, from, to, sums, fetching); \
        break;
    switch (rows) {
        TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6) TILE(7)
        TILE(8) TILE(9) TILE(10) TILE(11) TILE(12) TILE(13) TILE(14)
    }
#undef TILE
}

/* One panel times the rows of tiles `first` .. `last` - 1 of `tiles`. `weights` end at `end`. */
INLINE void multiply_tiles(const int kind, int action, const struct Product *product, const struct Rows *x,
                           int64_t count, int64_t first, int64_t last, int64_t tiles, int64_t panel, const char *weights,
                           const char *end, struct Target target) {
    const int64_t units = units_of(kind, product, x), block = units_of_block(kind, units), size = bytes_of_unit(kind);
    float sums[TOGETHER * MOST_ROWS][PANEL];
    int64_t start = count * first / tiles, stop = count * last / tiles;
    for (int64_t from = 0; from < units; from += block) {
        int64_t to = from + block < units ? from + block : units, steps = (to - from) * steps_of_unit(kind);
        const char *at = weights + from * size, *next = at + bytes_ahead(kind, block * size, tiles);
        struct Fetching fetching = fetching_of(next < end ? next : at, (to - from) * size, steps, last - first);
        for (int64_t tile = first; tile < last; tile++, fetching = after(fetching, steps)) {
            int64_t row = count * tile / tiles;
            add_tile(kind, count * (tile + 1) / tiles - row, at, x, row, WHOLE_PANELS ? 0 : from, to,
                     sums + row - start, fetching);
        }
    }
    for (int64_t row = start; row < stop; row++) finish(action, sums[row - start], panel, product, target, row);
}

/* Panels first .. last - 1 for `count` rows. */
INLINE void multiply_panels(const int kind, int action, const struct Product *product, const struct Rows *x,
                            int64_t count, int64_t first, int64_t last, struct Target target) {
    const int64_t size = units_of(kind, product, x) * bytes_of_unit(kind);
    const int64_t most = rows_of_tile(kind), tiles = (count + most - 1) / most;
    const char *weights = product->weights, *end = weights + last * size;
    for (int64_t panel = first; panel < last; panel++)
        for (int64_t tile = 0; tile < tiles; tile += TOGETHER)
            multiply_tiles(kind, action, product, x, count, tile, tile + TOGETHER < tiles ? tile + TOGETHER : tiles,
                           tiles, panel, weights + panel * size, end, target);
}

/* One function for each kind, so that each is compiled for its own constants. */
#define EACH(kind) \
    static __attribute__((noinline)) void multiply_##kind(int action, const struct Product *product, \
                                                          const struct Rows *x, int64_t count, int64_t first, \
                                                          int64_t last, struct Target target) { \
        multiply_panels(kind, action, product, x, count, first, last, target); \
    }
EACH(FLOAT_WEIGHTS)
EACH(HALF_WEIGHTS)
EACH(HALF_WEIGHTS_AND_ROWS)
#if MULTIPLIES_BYTES
EACH(BYTE_WEIGHTS)
EACH(NIBBLE_WEIGHTS)
#endif
#undef EACH

typedef void (*Multiply)(int, const struct Product *, const struct Rows *, int64_t, int64_t, int64_t, struct Target);

static const Multiply MULTIPLY[] = {
    multiply_FLOAT_WEIGHTS, multiply_HALF_WEIGHTS, multiply_HALF_WEIGHTS_AND_ROWS,
#if MULTIPLIES_BYTES
    multiply_BYTE_WEIGHTS,  multiply_NIBBLE_WEIGHTS,
#endif
};

/* This thread's part of the product of `count` rows of x, `stride` numbers apart. */
static void multiply(int action, const struct Product *product, const void *x, int64_t stride, int64_t count,
                     struct Target target, int thread, int threads) {
    int64_t panels = (product->out + PANEL - 1) / PANEL;
    int64_t first = panels * thread / threads, last = panels * (thread + 1) / threads;
    if (first == last || !count) return;
    struct Rows rows = {x, stride * (product->kind == HALF_WEIGHTS_AND_ROWS ? 2 : 4), {}};
#if MULTIPLIES_BYTES
    if (product->kind == BYTE_WEIGHTS) rows.rounded = rounded(BYTE_WEIGHTS, product, x, stride, count);
    if (product->kind == NIBBLE_WEIGHTS) rows.rounded = rounded(NIBBLE_WEIGHTS, product, x, stride, count);
#endif
    MULTIPLY[product->kind](action, product, &rows, count, first, last, target);
}

#endif
