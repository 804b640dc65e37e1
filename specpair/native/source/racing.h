/* Chooses with Gumbel noise, as specpair/speculation/gumbel.py does. */

#ifndef SPECPAIR_RACING_H
#define SPECPAIR_RACING_H

#include <stdint.h>

/* The place of the token that arrives first if each does at its rate, by the noise of seed and position; 0 if no rate is
   positive. Place i is token i, or token_ids[i] if there are any, ascending. */
int64_t first_to_arrive(const float *rates, int64_t width, const int64_t *token_ids, uint64_t seed, uint64_t position);

#endif
