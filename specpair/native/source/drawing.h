/* Draws from weights, as `draw` in specpair/speculation/draft_rows.py does, to the bit. */

#ifndef SPECPAIR_DRAWING_H
#define SPECPAIR_DRAWING_H

#include <stdint.h>

/* The largest of weights [width]; 0 if none is positive. */
double largest_weight(const double *weights, int64_t width);

/* A place below `width`, in proportion to weights [width], by a number in [0, 1). */
int64_t draw_weighted(const double *weights, int64_t width, double largest, double uniform);

#endif
