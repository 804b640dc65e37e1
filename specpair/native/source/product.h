/* Products of few rows with packed weights: y = x W'.

Weights are packed in panels of 32 outputs. A panel is read once from memory, in order, for all rows; ROWS rows share
each load, and make a tile with it. Tiles are of about the same size. Each output is one running sum over the inputs, in
their order, whatever the number of rows: a row has the same bits alone and in any company. */

#ifndef SPECPAIR_PRODUCT_H
#define SPECPAIR_PRODUCT_H

#include "fetching.h"
#include "vectors.h"

#define PANEL 32
#define PARTS (PANEL / WIDTH)
#if defined(__AVX512F__)
#define ROWS 14 /* whose sums of a section, two registers each, fit into registers */
#else
#define ROWS 6
#endif
#define SECTIONS (PARTS / 2)
#define BLOCK 64 /* steps of one section before the next: what they read stays in the innermost cache */

/* Cases for tiles of each size that every processor has; TILE is defined where they are used. */
#define SMALL_TILES TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6)

enum { FLOAT_WEIGHTS, HALF_WEIGHTS, HALF_WEIGHTS_AND_ROWS, BYTE_WEIGHTS, NIBBLE_WEIGHTS };
enum { STORE, ADD, GATE };

struct Product {
    const void *weights; /* [panels][in][32] float, or [panels][in / 2][32][2] bfloat16 */
    const float *bias;   /* [panels * 32], or null */
    int64_t in;          /* inputs, even */
    int64_t out;         /* outputs, without the padding of the last panel */
    int64_t kind;        /* type of weights and rows */
    const float *scales; /* of weights of 8 bits: [panels * 32] */
    int64_t is_bf16;     /* of rows, if the kind does not say so */
};

struct Target {
    void *to;
    int64_t stride;  /* numbers from one row to the next */
    int64_t is_bf16; /* of a gate's results */
};

/* One step of the sums of a row: a register of outputs, two inputs (one if the weights are floats). */
INLINE floats step(const int kind, floats sum, words weights, const void *x) {
    if (kind == FLOAT_WEIGHTS) return sum + (floats)weights * *(const float *)x;
    if (kind == HALF_WEIGHTS) {
        sum = sum + (floats)(weights << 16) * ((const float *)x)[0];
        return sum + (floats)(weights & 0xffff0000) * ((const float *)x)[1];
    }
    uint32_t pair;
    memcpy(&pair, x, sizeof pair);
#if defined(__AVX512BF16__)
    return (floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32((int32_t)pair), (__m512bh)weights);
#else
    words first = (words){} + (pair << 16), second = (words){} + (pair & 0xffff0000);
    sum = sum + (floats)(weights << 16) * (floats)first;
    return sum + (floats)(weights & 0xffff0000) * (floats)second;
#endif
}

/* `sums` has those of a row for one panel. */
static __attribute__((noinline)) void finish(int action, const float *sums, int64_t panel,
                                             const struct Product *product, struct Target target, int64_t row) {
    int64_t first = panel * PANEL;
    floats parts[PARTS];
    for (int part = 0; part < PARTS; part++) {
        parts[part] = load(sums + part * WIDTH, 0, WIDTH);
        if (product->bias) parts[part] += load(product->bias + first + part * WIDTH, 0, WIDTH);
    }
    if (action == GATE) { /* the first half of a panel is gate, the other up */
        for (int part = 0; part < PARTS / 2; part++) {
            floats gated = parts[part] / (1.0f + exponential(-parts[part])) * parts[part + PARTS / 2];
            int64_t place = row * target.stride + first / 2 + part * WIDTH;
            store(offset(target.to, target.is_bf16, place), target.is_bf16, WIDTH, gated);
        }
        return;
    }
    for (int part = 0; part < PARTS; part++) {
        int64_t left = product->out - first - part * WIDTH;
        if (left <= 0) return;
        float *to = (float *)target.to + row * target.stride + first + part * WIDTH;
        store(to, 0, left, action == ADD ? load(to, 0, left) + parts[part] : parts[part]);
    }
}

/* Adds steps `from` .. `to` - 1 of a section to the sums of `rows` rows of x, a number known when this is compiled.
   Weights and sums begin with the section's. */
INLINE void add_steps(const int kind, const int rows, const char *weights, const char *x, int64_t stride, int64_t from,
                      int64_t to, float (*sums)[PANEL], struct Fetching fetching) {
    const int64_t bytes = kind == HALF_WEIGHTS_AND_ROWS ? 2 : 4, inputs = kind == FLOAT_WEIGHTS ? 1 : 2;
    floats own[ROWS][2];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int part = 0; part < 2; part++)
            own[r][part] = from ? (floats)*(const floats_at *)(sums[r] + part * WIDTH) : (floats){};
    for (int64_t i = from; i < to; i++) {
        const words_at *loaded = (const words_at *)(weights + i * PANEL * 4);
        fetch_soon(weights + i * PANEL * 4, BLOCK * PANEL * 4);
        fetch(fetching, i);
        words first = loaded[0], second = loaded[1];
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            const char *inputs_of = x + (r * stride + i * inputs) * bytes;
            own[r][0] = step(kind, own[r][0], first, inputs_of);
            own[r][1] = step(kind, own[r][1], second, inputs_of);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int part = 0; part < 2; part++) *(floats_at *)(sums[r] + part * WIDTH) = own[r][part];
}

INLINE int64_t steps_of(const int kind, const struct Product *product) {
    return kind == FLOAT_WEIGHTS ? product->in : product->in / 2;
}

/* `rows` rows of x times one panel. */
INLINE void tile(const int kind, int action, const int rows, const struct Product *product, const void *x,
                 int64_t stride, int64_t panel, struct Target target, int64_t row, struct Fetching fetching) {
    const int64_t bytes = kind == HALF_WEIGHTS_AND_ROWS ? 2 : 4, steps = steps_of(kind, product);
    const int64_t block = SECTIONS == 1 ? steps : BLOCK;
    const char *weights = (const char *)product->weights + panel * steps * PANEL * 4;
    float sums[ROWS][PANEL];
    for (int64_t from = 0; from < steps; from += block) {
        int64_t to = from + block < steps ? from + block : steps;
        for (int section = 0; section < SECTIONS; section++)
            add_steps(kind, rows, weights + section * PANEL * 4 / SECTIONS, (const char *)x + row * stride * bytes,
                      stride, from, to, (float (*)[PANEL])(sums[0] + section * 2 * WIDTH), fetching);
    }
    for (int r = 0; r < rows; r++) finish(action, sums[r], panel, product, target, row + r);
}

/* Panels first .. last - 1 for `count` rows. */
INLINE void panels_of(const int kind, int action, const struct Product *product, const void *x, int64_t stride,
                      int64_t count, int64_t first, int64_t last, struct Target target) {
#define TILE(rows) \
    case rows: \
        tile(kind, action, rows, product, x, stride, panel, target, row, fetching); \
        break;
    const int64_t steps = steps_of(kind, product), size = steps * PANEL * 4, tiles = (count + ROWS - 1) / ROWS;
    for (int64_t panel = first; panel < last; panel++) {
        const char *next = (const char *)product->weights + (panel + 1 < last ? panel + 1 : panel) * size;
        for (int64_t number = 0; number < tiles; number++) {
            int64_t row = count * number / tiles;
            struct Fetching fetching = fetching_of(next, size, steps, number, tiles);
            switch (count * (number + 1) / tiles - row) {
                SMALL_TILES
#if ROWS > 6
                TILE(7)
                TILE(8)
                TILE(9)
                TILE(10)
                TILE(11)
                TILE(12)
                TILE(13)
                TILE(14)
#endif
            }
        }
    }
#undef TILE
}

/* One function for each kind, so that each is compiled for its own constants. */
#define EACH(kind) \
    static __attribute__((noinline)) void multiply_##kind( \
        int action, const struct Product *product, const void *x, int64_t stride, int64_t count, int64_t first, \
        int64_t last, struct Target target) { \
        panels_of(kind, action, product, x, stride, count, first, last, target); \
    }
EACH(FLOAT_WEIGHTS)
EACH(HALF_WEIGHTS)
EACH(HALF_WEIGHTS_AND_ROWS)
#undef EACH

typedef void (*Multiply)(int, const struct Product *, const void *, int64_t, int64_t, int64_t, int64_t, struct Target);

static const Multiply MULTIPLY[] = {multiply_FLOAT_WEIGHTS, multiply_HALF_WEIGHTS, multiply_HALF_WEIGHTS_AND_ROWS};

/* This thread's part of the product of `count` rows of x, `stride` numbers apart. */
static void multiply(int action, const struct Product *product, const void *x, int64_t stride, int64_t count,
                     struct Target target, int thread, int threads) {
    int64_t panels = (product->out + PANEL - 1) / PANEL;
    int64_t first = panels * thread / threads, last = panels * (thread + 1) / threads;
    if (first < last && count) MULTIPLY[product->kind](action, product, x, stride, count, first, last, target);
}

#endif
