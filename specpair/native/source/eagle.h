/* An EAGLE-3 head and one of its steps: what the units that draft with it share. */

#ifndef SPECPAIR_EAGLE_H
#define SPECPAIR_EAGLE_H

#include "decoder.h"

struct Eagle {
    struct Model decoder;   /* of one layer, whose first product takes twice the width */
    const float *pair_norm; /* of a pair's hidden state */
    int64_t normalises_residual, feeds_back_normalised;
    int64_t tap_count, tap_size;
    struct Product join;       /* of the features of all taps, one after the other */
    const float *tap_norms;    /* [taps][tap size], or null */
    const float *joined_norm;  /* [taps * tap size], or null */
    struct Product key_value;  /* the panels of the layer's first product that have keys and values */
    int64_t key_value_start;   /* outputs of the layer's first product before them */
};

/* One more token of each of several texts. */
struct Step {
    const struct Eagle *head;
    const struct Pass *pass;
    const float *hidden; /* [tokens][width], of the tokens before */
    float *left;         /* [tokens][width], for the tokens after */
};

/* The part of one of the threads. The logits of the pass and `left` are complete once all have met. */
void run_step(const struct Step *step, struct Meeting *meeting, int thread, int threads);

#endif
