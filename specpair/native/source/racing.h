/* Chooses with Gumbel noise, as specpair/speculation/gumbel.py does. */

#ifndef SPECPAIR_RACING_H
#define SPECPAIR_RACING_H

#include <stdint.h>

/* The first tokens to arrive by the middle of their upper bits, the fastest first. */
struct Outlook {
    int64_t most, size;
    int64_t *tokens; /* [most] */
    double *speeds;  /* [most], in the end their shares */
};

/* The place of the token that arrives first if each does at its rate, by the noise of seed and position; 0 if no rate is
   positive. Place i is token i, or token_ids[i] if there are any, ascending. Fills the outlook, if there is one. */
int64_t first_to_arrive(const float *rates, int64_t width, const int64_t *token_ids, uint64_t seed, uint64_t position,
                        struct Outlook *outlook);

/* The key of the noise that draws the target's own token of a step: no position has it. */
#define OWN_TOKEN_OF(step) ((uint64_t)(step) ^ UINT64_C(1) << 63)

#endif
