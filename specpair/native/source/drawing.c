#include "drawing.h"
#include "doubles.h"

#define PARTS 64 /* of the weights, whose sums are kept so that the drawn place is looked for in one part only */

double largest_weight(const double *weights, int64_t width) {
    doubles most = {};
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES) most = larger_doubles(*(const doubles_at *)(weights + i), most);
    double largest = 0.0;
    for (int lane = 0; lane < LANES; lane++) largest = most[lane] > largest ? most[lane] : largest;
    for (; i < width; i++) largest = weights[i] > largest ? weights[i] : largest;
    return largest;
}

/* Sums wrap around where a weight is no number: then any place will do. */
static uint64_t whole_sum(const double *weights, int64_t width, double factor) {
    counts sums = {};
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES)
        sums += (counts)__builtin_convertvector(*(const doubles_at *)(weights + i) * factor, longs);
    uint64_t sum = 0;
    for (int lane = 0; lane < LANES; lane++) sum += sums[lane];
    for (; i < width; i++) sum += (uint64_t)(int64_t)(weights[i] * factor);
    return sum;
}

static int bit_length(uint64_t number) { return number ? 64 - __builtin_clzll(number) : 0; }

int64_t draw_weighted(const double *weights, int64_t width, double largest, double uniform) {
    double factor = (double)(INT64_C(1) << (61 - bit_length(width - 1))) / largest;
    int64_t part = (width + PARTS - 1) / PARTS, count = (width + part - 1) / part;
    uint64_t sums[PARTS], total = 0, sum = 0;
    for (int64_t p = 0; p < count; p++) {
        int64_t first = p * part;
        sums[p] = whole_sum(weights + first, first + part < width ? part : width - first, factor);
        total += sums[p];
    }
    int64_t chosen = (int64_t)(uniform * (double)(int64_t)total), p = 0;
    while (p < count - 1 && (int64_t)(sum + sums[p]) <= chosen) sum += sums[p++];
    int64_t place = p * part;
    for (; place < width - 1; place++) {
        sum += (uint64_t)(int64_t)(weights[place] * factor);
        if ((int64_t)sum > chosen) break;
    }
    return place;
}

/* The same, for `draw`. */
EXPORT int64_t specpair_draw(const double *weights, int64_t width, double uniform) {
    return draw_weighted(weights, width, largest_weight(weights, width), uniform);
}
