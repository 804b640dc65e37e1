/* Proposals that are drawn whole, in one call. */

#ifndef SPECPAIR_CHAINS_H
#define SPECPAIR_CHAINS_H

#include "counting.h"
#include "racing.h"
#include <stdint.h>

/* A proposal to draw, and what was drawn. */
struct Chain {
    void *keys, *values; /* as those of a segment; a head's segments are its own, and these three are not used */
    int64_t capacity;
    int64_t position;      /* of its first token */
    int64_t count;         /* most of its tokens */
    int64_t width;         /* of a row's logits only the first so many may be drawn */
    int64_t is_coupled;    /* chosen with shared noise, and not drawn from counts */
    uint64_t seed;         /* of that noise */
    double temperature;    /* 0: greedy */
    double min_confidence; /* it ends with the token after which it has less; 0: it does not */
    const int64_t *chosen; /* [count]: numbers below 2^24 if drawn from counts */
    uint32_t *entries;     /* [count][2][most]: the ids and counts that tokens were drawn from, or null */
    int64_t *sizes;        /* [count]: of these; 1 without entries */
    int64_t *tokens;       /* [count] */
    double *shares;        /* [count]: probabilities at temperature 1 if there is a min_confidence */
    double confidence;     /* before the first token, then after the last */
    int64_t length;        /* tokens that were drawn: fewer if it ended, or a row was not finite */
    int64_t is_over;
    int64_t is_awaited;    /* somebody waits for it */
    int64_t look_most;     /* tokens of an outlook; 0 without */
    int64_t rank;          /* of the token taken from the first row, in its outlook; 0: the drawn one. Without min_confidence */
    int64_t race_step;     /* its first token is the one of this rank in the race of this step; below 0: it is drawn */
    int64_t *look_sizes;   /* [count] */
    int64_t *look_tokens;  /* [count][look_most], and their shares */
    double *look_shares;
    int64_t base;          /* with a path: the position of its first token */
    const int64_t *path;   /* where the tokens from `base` on are stored; null: where their positions say */
};

struct Draft {
    int64_t chain_count;
    int64_t width;            /* logits of a row */
    const int64_t *token_ids; /* [width], ascending; null if all tokens have a logit */
    const float *first;       /* [chains][first_stride]: logits of all tokens after the last that was fed; null for a head */
    int64_t first_stride;
    double mass; /* of the tokens that a row of counts has to reach */
    int64_t most;
    struct Chain *chains;
    const volatile int64_t *stop; /* if another thread sets it, drawing ends after the step; null: it does not */
    int64_t due;                  /* when the first step may end, in ns of the monotonic clock; 0 without a pace */
    int64_t pass_time, row_time;  /* ns that later steps take at least: for the pass, and for each of its rows */
};

/* The largest logits [width], the largest first, with their softmax among themselves. */
void look_at(const float *logits, int64_t width, const int64_t *token_ids, struct Outlook *outlook);

#define CHAIN_ROOM (1 + ROOM) /* floats for each logit of a row, of each thread that draws */

/* Draws the next token of a chain from a row of its logits, or ends it: its last token was drawn, its confidence is too
   low, or the row is not finite. */
void draw_next(const struct Draft *draft, struct Chain *chain, const float *row, float *room);

#endif
