/* Rows of logits as probabilities. */

#ifndef SPECPAIR_SOFTMAX_H
#define SPECPAIR_SOFTMAX_H

#include <stdint.h>

/* The first place of the largest of `logits` [width]; -1 if one is NaN or the largest is infinite. */
int64_t likeliest_place(const float *logits, int64_t width);

/* The softmax of logits [width] over a temperature, one-hot at the likeliest place if that is 0. All NaN if there is no
   such place. The bits of a probability do not depend on where in the row the other logits stand, nor on how many are
   -inf. */
void soften(const float *logits, int64_t width, float temperature, float *to);

#endif
