/* Products of few rows with packed weights: y = x W'.

Weights are packed in panels of 32 outputs. A panel is read once from memory, in order, for all rows; ROWS rows share
each load. Each
output is one running sum over the inputs, in their order, whatever the number of rows: a row has the same bits alone
and in any company. */

#ifndef SPECPAIR_PRODUCT_H
#define SPECPAIR_PRODUCT_H

#include "vectors.h"

#define PANEL 32
#if defined(__AVX512F__)
#define ROWS 8
#else
#define ROWS 2
#endif

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

/* One step of the sums of a row: 16 outputs, two inputs (one if the weights are floats). */
INLINE floats step(const int kind, floats sum, words weights, const void *x) {
    if (kind == FLOAT_WEIGHTS) return sum + (floats)weights * *(const float *)x;
    if (kind == HALF_WEIGHTS) {
        sum = sum + (floats)(weights << 16) * ((const float *)x)[0];
        return sum + (floats)(weights & 0xffff0000) * ((const float *)x)[1];
    }
#if defined(__AVX512BF16__)
    int32_t pair;
    memcpy(&pair, x, sizeof pair);
    return (floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32(pair), (__m512bh)weights);
#else
    uint32_t pair;
    memcpy(&pair, x, sizeof pair);
    words first = (words){} + (pair << 16), second = (words){} + (pair & 0xffff0000);
    sum = sum + (floats)(weights << 16) * (floats)first;
    return sum + (floats)(weights & 0xffff0000) * (floats)second;
#endif
}

INLINE void finish(const int action, floats *sums, int64_t panel, const struct Product *product, struct Target target,
                   int64_t row) {
    int64_t first = panel * PANEL;
    for (int half = 0; half < 2; half++)
        if (product->bias) sums[half] += load(product->bias + first + half * WIDTH, 0, WIDTH);
    if (action == GATE) { /* the first half of a panel is gate, the other up */
        floats gated = sums[0] / (1.0f + exponential(-sums[0])) * sums[1];
        store(offset(target.to, target.is_bf16, row * target.stride + first / 2), target.is_bf16, WIDTH, gated);
        return;
    }
    for (int half = 0; half < 2; half++) {
        int64_t left = product->out - first - half * WIDTH;
        if (left <= 0) return;
        float *to = (float *)target.to + row * target.stride + first + half * WIDTH;
        store(to, 0, left, action == ADD ? load(to, 0, left) + sums[half] : sums[half]);
    }
}

/* `rows` rows of x, a number known when this is compiled, times one panel. */
INLINE void tile(const int kind, const int action, const int rows, const struct Product *product, const void *x,
                 int64_t stride, int64_t panel, struct Target target, int64_t row) {
    const int64_t bytes = kind == HALF_WEIGHTS_AND_ROWS ? 2 : 4, inputs = kind == FLOAT_WEIGHTS ? 1 : 2;
    const int64_t steps = product->in / inputs;
    const char *weights = (const char *)product->weights + panel * steps * PANEL * 4;
    const char *from = (const char *)x + row * stride * bytes;
    floats sums[ROWS][2], kept[ROWS][2];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) sums[r][0] = sums[r][1] = (floats){};
    for (int64_t i = 0; i < steps; i++) {
        words first, second;
        memcpy(&first, weights + i * PANEL * 4, sizeof first);
        memcpy(&second, weights + i * PANEL * 4 + sizeof first, sizeof second);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            const char *inputs_of = from + (r * stride + i * inputs) * bytes;
            sums[r][0] = step(kind, sums[r][0], first, inputs_of);
            sums[r][1] = step(kind, sums[r][1], second, inputs_of);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) { /* sums stay in registers: their places must be known until here */
        kept[r][0] = sums[r][0];
        kept[r][1] = sums[r][1];
    }
    for (int r = 0; r < rows; r++) finish(action, kept[r], panel, product, target, row + r);
}

/* Panels first .. last - 1 for `count` rows. */
INLINE void panels_of(const int kind, const int action, const struct Product *product, const void *x, int64_t stride,
                      int64_t count, int64_t first, int64_t last, struct Target target) {
#define TILE(rows) \
    case rows: \
        tile(kind, action, rows, product, x, stride, panel, target, row); \
        break;
    for (int64_t panel = first; panel < last; panel++) {
        int64_t row = 0;
        for (; row + ROWS <= count; row += ROWS) tile(kind, action, ROWS, product, x, stride, panel, target, row);
        switch (count - row) {
            TILE(1)
#if ROWS > 2
            TILE(2)
            TILE(3)
            TILE(4)
            TILE(5)
            TILE(6)
            TILE(7)
#endif
        }
    }
#undef TILE
}

/* One function for each kind and action, so that each is compiled for its own constants. */
#define EACH(kind, action) \
    static __attribute__((noinline)) void multiply_##kind##_##action( \
        const struct Product *product, const void *x, int64_t stride, int64_t count, int64_t first, int64_t last, \
        struct Target target) { \
        panels_of(kind, action, product, x, stride, count, first, last, target); \
    }
EACH(FLOAT_WEIGHTS, STORE)
EACH(FLOAT_WEIGHTS, ADD)
EACH(FLOAT_WEIGHTS, GATE)
EACH(HALF_WEIGHTS, STORE)
EACH(HALF_WEIGHTS, ADD)
EACH(HALF_WEIGHTS, GATE)
EACH(HALF_WEIGHTS_AND_ROWS, STORE)
EACH(HALF_WEIGHTS_AND_ROWS, ADD)
EACH(HALF_WEIGHTS_AND_ROWS, GATE)
#undef EACH

typedef void (*Multiply)(const struct Product *, const void *, int64_t, int64_t, int64_t, int64_t, struct Target);

static const Multiply MULTIPLY[3][3] = {
    {multiply_FLOAT_WEIGHTS_STORE, multiply_FLOAT_WEIGHTS_ADD, multiply_FLOAT_WEIGHTS_GATE},
    {multiply_HALF_WEIGHTS_STORE, multiply_HALF_WEIGHTS_ADD, multiply_HALF_WEIGHTS_GATE},
    {multiply_HALF_WEIGHTS_AND_ROWS_STORE, multiply_HALF_WEIGHTS_AND_ROWS_ADD, multiply_HALF_WEIGHTS_AND_ROWS_GATE},
};

/* This thread's part of the product of `count` rows of x, `stride` numbers apart. */
static void multiply(int action, const struct Product *product, const void *x, int64_t stride, int64_t count,
                     struct Target target, int thread, int threads) {
    int64_t panels = (product->out + PANEL - 1) / PANEL;
    int64_t first = panels * thread / threads, last = panels * (thread + 1) / threads;
    if (first < last && count)
        MULTIPLY[product->kind][action](product, x, stride, count, first, last, target);
}

#endif
