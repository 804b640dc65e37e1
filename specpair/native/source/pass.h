/* One forward pass: what it feeds, and its memory. */

#ifndef SPECPAIR_PASS_H
#define SPECPAIR_PASS_H

#include <stdint.h>

struct Segment {
    void *keys, *values; /* of the first layer: [layers][key heads][capacity][head size] */
    int64_t capacity;
    int64_t start;       /* position of the first token; everything before it is in the cache */
    int64_t count;
    int64_t first;       /* index of the first token in the pass */
    const int64_t *paths; /* [count][count], where the tokens from `start` up to each token are stored; null for a chain.
                             A segment of one token may begin with more tokens before it, stored anywhere */
};

struct Pass {
    int64_t token_count, segment_count, row_count, thread_count;
    const int64_t *token_ids, *positions, *rows;
    const struct Segment *segments;
    float *logits;                /* [rows][vocabulary] */
    float *features;              /* [feature layers][feature rows][hidden] */
    const int64_t *feature_places; /* [layers]: place of each layer among the features, -1 for none; or null */
    float *residual;              /* [tokens][hidden] */
    float *projected;             /* [tokens][(heads + 2 key heads) head size], padded to whole panels */
    void *inputs;                 /* [tokens or rows, whichever are more][widest input] of the type of rows */
    void *gated;                  /* [tokens][intermediate] of the type of rows */
    float *scores;                /* [threads][6][score_count], enough for QUERIES */
    int64_t score_count, input_stride, projected_stride;
    const int64_t *feature_rows; /* [feature_row_count]: the tokens whose features are kept */
    int64_t feature_row_count;
};

struct Model;
struct Meeting;

/* The part of one of the threads of a pass. The logits are complete once all have met. */
void run_pass(const struct Model *model, const struct Pass *pass, struct Meeting *meeting, int thread, int threads);

#endif
