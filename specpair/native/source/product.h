/* Products of few rows with packed weights: y = x W'. tiles.h computes them.

Weights are packed in panels of 32 outputs, which are read from memory in order. Several rows share each load, and make a
tile with it. Each output is one running sum over the inputs, in their order, whatever the number
of rows: a row has the same bits alone and in any company. */

#ifndef SPECPAIR_PRODUCT_H
#define SPECPAIR_PRODUCT_H

#include "vectors.h"

#define PANEL 32
#define PARTS (PANEL / WIDTH)

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

/* `sums` has those of a row for one panel. */
static __attribute__((noinline)) void finish(int action, const float *sums, int64_t panel,
                                             const struct Product *product, struct Target target, int64_t row) {
    int64_t first = panel * PANEL;
    floats parts[PARTS];
    for (int part = 0; part < PARTS; part++) {
        parts[part] = load(sums + part * WIDTH, 0, WIDTH);
        if (product->kind == BYTE_WEIGHTS) parts[part] *= load(product->scales + first + part * WIDTH, 0, WIDTH);
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

#endif
