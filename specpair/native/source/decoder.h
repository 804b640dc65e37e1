/* A decoder and one of its passes: what the units that run its layers share. */

#ifndef SPECPAIR_DECODER_H
#define SPECPAIR_DECODER_H

#include "attention.h"
#include "meeting.h"
#include "pass.h"
#include "product.h"
#include "threads.h"

struct Layer {
    const float *attention_norm;
    struct Product query_key_value;
    const float *query_norm, *key_norm; /* [head size], or null */
    struct Product output;
    const float *mlp_norm;
    struct Product gate_up;
    struct Product down;
    double scaling;
    int64_t window; /* 0: none */
};

struct Model {
    int64_t layer_count, hidden, heads, key_heads, head_size, intermediate;
    int64_t is_bf16; /* rows of products, keys and values */
    double eps;
    int64_t is_embedding_bf16;
    const void *embedding;
    const float *cosine, *sine; /* [positions][head size / 2] */
    const float *norm;
    struct Product head;
    const struct Layer *layers;
    int64_t first_key; /* keys before this position do not exist */
};

/* The root-mean-square norm of `size` numbers, to a row of any type. */
INLINE void normalise(const float *x, const float *weight, int64_t size, double eps, void *to, int is_bf16) {
    floats squares = {};
    for (int64_t i = 0; i < size; i += WIDTH) {
        floats part = load(x + i, 0, size - i);
        squares += part * part;
    }
    float scale = 1.0f / sqrtf(sum_of(squares) / size + (float)eps);
    for (int64_t i = 0; i < size; i += WIDTH)
        store(offset(to, is_bf16, i), is_bf16, size - i,
              load(x + i, 0, size - i) * scale * load(weight + i, 0, size - i));
}

/* Where the rows of one head of a layer begin in the memory of a sequence. */
INLINE void *cached(const struct Model *model, void *base, const struct Segment *segment, int64_t layer, int64_t head,
                    int64_t position) {
    int64_t row = (layer * model->key_heads + head) * segment->capacity + position;
    return offset(base, model->is_bf16, row * model->head_size);
}

/* This thread's part of the product of `count` rows of x, `stride` numbers apart. */
void multiply_rows(int action, const struct Product *product, const void *x, int64_t stride, int64_t count,
                   struct Target target, int thread, int threads);

/* Rotates the heads from `first_head` on, of queries and then of keys, and stores keys and values. */
void place_heads(const struct Model *model, const struct Pass *pass, int64_t index, int64_t first_head, int thread,
                 int threads);

/* A layer, from its normalised inputs on to the residual. */
void run_layer(const struct Model *model, const struct Pass *pass, struct Meeting *meeting, int64_t index, int thread,
               int threads);

/* The logits of the rows of the pass, from the residual. */
void run_head(const struct Model *model, const struct Pass *pass, struct Meeting *meeting, int thread, int threads);

#endif
