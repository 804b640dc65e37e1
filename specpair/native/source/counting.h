/* Rows of counts, and draws from them. */

#ifndef SPECPAIR_COUNTING_H
#define SPECPAIR_COUNTING_H

#include <stdint.h>

#define ROOM 4 /* floats for each token of a row */

/* Makes a row of probabilities [width] into `ids` and `numbers` [most] and draws by a number below 2^24: `place` is that
   of the token among them. `room` has ROOM floats for each of the row. Returns the size; 0 for a row of NaN. */
int64_t draw_row(const float *row, int64_t width, double mass, int64_t most, int64_t chosen, float *room, uint32_t *ids,
                 uint32_t *numbers, int64_t *place);

#endif
