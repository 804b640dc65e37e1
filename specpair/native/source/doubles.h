/* A register of doubles at a time. Sums and draws have numpy's bits: no product is fused with a sum (compiling.py). */

#ifndef SPECPAIR_DOUBLES_H
#define SPECPAIR_DOUBLES_H

#include "vectors.h"

#if defined(__AVX512F__)
#define LANES 8
#else
#define LANES 4
#endif

typedef double doubles __attribute__((vector_size(8 * LANES)));
typedef int64_t longs __attribute__((vector_size(8 * LANES)));
typedef uint64_t counts __attribute__((vector_size(8 * LANES)));
typedef double doubles_at __attribute__((vector_size(8 * LANES), aligned(1), may_alias));
typedef float singles_at __attribute__((vector_size(4 * LANES), aligned(1), may_alias));

INLINE doubles larger_doubles(doubles left, doubles right) {
    longs chosen = left > right;
    return (doubles)((chosen & (longs)left) | (~chosen & (longs)right));
}

INLINE double smaller(double left, double right) { return left < right ? left : right; }

#endif
