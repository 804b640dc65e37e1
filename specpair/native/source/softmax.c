/* Turns rows of logits into probabilities, as `probabilities` in specpair/speculation/sampling.py does.

exp is off by at most two units in the last place, and 0 below e^-87; the largest logit has 1. The sum is exact: each
term is rounded to a multiple of 2^-40, and these are added as integers. So a row has the same bits with any number of
threads, in registers of any width if products and sums are fused in both, and with or without tokens of -inf in
between, as a head with fewer tokens has it. */

#include "softmax.h"
#include "doubles.h"
#include "threads.h"
#include <float.h>
#include <math.h>

#define STRIDE 4 /* registers that are looked at together */
#define LOWEST (-87.0f)
#define GRAIN_LOG2 40
#define ROUNDING 6144.0 /* 1.5 * 2^12: doubles near it are multiples of 2^-40 */

/* `count` numbers, at most WIDTH, and -inf behind them. */
INLINE floats some_of(const float *from, int64_t count) {
    if (count >= WIDTH) return (floats)*(const floats_at *)from;
    floats numbers = same(-INFINITY);
    memcpy(&numbers, from, sizeof *from * count);
    return numbers;
}

INLINE floats higher(floats left, floats right) {
#if defined(__AVX512F__)
    return (floats)_mm512_max_ps((__m512)left, (__m512)right);
#elif defined(__AVX__)
    return (floats)_mm256_max_ps((__m256)left, (__m256)right);
#else
    return larger(left, right);
#endif
}

/* The largest of logits [width]; NaN if one is, or if the largest is infinite. */
static float largest_logit(const float *logits, int64_t width) {
    floats tops[STRIDE];
    integers odd = {};
    for (int s = 0; s < STRIDE; s++) tops[s] = same(-INFINITY);
    int64_t i = 0;
    for (; i + STRIDE * WIDTH <= width; i += STRIDE * WIDTH)
        for (int s = 0; s < STRIDE; s++) {
            floats part = (floats)*(const floats_at *)(logits + i + s * WIDTH);
            odd |= part != part;
            tops[s] = higher(part, tops[s]);
        }
    for (; i < width; i += WIDTH) {
        floats part = some_of(logits + i, width - i);
        odd |= part != part;
        tops[0] = higher(part, tops[0]);
    }
    float largest = largest_of(higher(higher(tops[0], tops[1]), higher(tops[2], tops[3])));
    return any(odd) || largest > FLT_MAX || largest < -FLT_MAX ? NAN : largest;
}

static int64_t first_place(const float *logits, int64_t width, float value) {
    int64_t i = 0;
    for (; i + WIDTH <= width; i += WIDTH)
        if (any((floats)*(const floats_at *)(logits + i) == same(value))) break;
    while (i < width && logits[i] != value) i++;
    return i;
}

int64_t likeliest_place(const float *logits, int64_t width) {
    float largest = largest_logit(logits, width);
    return largest != largest ? -1 : first_place(logits, width, largest);
}

/* exp x for x that is not positive, without what `exponential` needs for others. */
INLINE floats decay(floats x) {
    const floats shift = same(12582912.0f + 127.0f); /* 1.5 * 2^23 rounds to whole numbers; 127 is the exponent of 1 */
    floats moved = plus_product(shift, x, same(1.44269504088896341f)), whole = moved - shift;
    return only(x >= same(LOWEST), fraction_of_exponential(x, whole) * (floats)((integers)moved << 23));
}

INLINE floats terms_of(floats logits, float largest, float temperature) {
    floats relative = logits - same(largest);
    return decay(temperature == 1.0f ? relative : relative / same(temperature));
}

/* A register of terms as integers of 2^-40. In each lane ROUNDING is added twice. */
INLINE counts grains(floats terms) {
#if defined(__AVX512F__)
    doubles low = (doubles)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)terms));
    doubles high = (doubles)_mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)terms, 1));
#else
    singles_at halves[2];
    memcpy(halves, &terms, sizeof halves);
    doubles low = __builtin_convertvector(halves[0], doubles), high = __builtin_convertvector(halves[1], doubles);
#endif
    return (counts)(low + ROUNDING) + (counts)(high + ROUNDING);
}

/* The sum of what `grains` made of `count` terms. */
static double sum_of_grains(counts grains, int64_t count) {
    double rounding = ROUNDING;
    uint64_t sum = 0, bits;
    memcpy(&bits, &rounding, sizeof bits);
    for (int lane = 0; lane < LANES; lane++) sum += grains[lane];
    return (double)(sum - count * bits) * (1.0 / (double)(INT64_C(1) << GRAIN_LOG2));
}

/* exp((logit - largest) / temperature) of each logit. Returns their sum. Registers in which all are far below the largest
   become 0 at once. */
INLINE double find_terms(const float *logits, int64_t width, float largest, const float temperature, float *to) {
    float least = largest + 1.001f * LOWEST * temperature; /* lower ones are below LOWEST, whatever was rounded */
    counts sums = {};
    int64_t i = 0, count = 0;
    for (; i + STRIDE * WIDTH <= width; i += STRIDE * WIDTH) {
        floats parts[STRIDE];
#pragma GCC unroll 4
        for (int s = 0; s < STRIDE; s++) parts[s] = (floats)*(const floats_at *)(logits + i + s * WIDTH);
        if (!any(higher(higher(parts[0], parts[1]), higher(parts[2], parts[3])) >= same(least))) {
            memset(to + i, 0, STRIDE * WIDTH * sizeof *to);
            continue;
        }
#pragma GCC unroll 4
        for (int s = 0; s < STRIDE; s++) {
            floats terms = terms_of(parts[s], largest, temperature);
            *(floats_at *)(to + i + s * WIDTH) = terms;
            sums += grains(terms);
        }
        count += STRIDE * WIDTH;
    }
    for (; i < width; i += WIDTH, count += WIDTH) {
        floats terms = terms_of(some_of(logits + i, width - i), largest, temperature);
        store(to + i, 0, width - i, terms);
        sums += grains(terms);
    }
    return sum_of_grains(sums, count);
}

static void scale(float *numbers, int64_t width, float factor) {
    for (int64_t i = 0; i < width; i++) numbers[i] *= factor;
}

void soften(const float *logits, int64_t width, float temperature, float *to) {
    float largest = largest_logit(logits, width);
    if (largest != largest) {
        for (int64_t i = 0; i < width; i++) to[i] = NAN;
        return;
    }
    if (temperature == 0.0f) {
        memset(to, 0, width * sizeof *to);
        to[first_place(logits, width, largest)] = 1.0f;
        return;
    }
    if (temperature < FLT_MIN) temperature = FLT_MIN;
    double sum = temperature == 1.0f ? find_terms(logits, width, largest, 1.0f, to)
                                     : find_terms(logits, width, largest, temperature, to);
    scale(to, width, (float)(1.0 / sum));
}

struct Rows {
    const float *logits, *temperatures;
    int64_t count, width;
    float *to;
};

static void soften_some(const void *work, struct Meeting *meeting, int thread, int threads) {
    const struct Rows *rows = work;
    (void)meeting;
    for (int64_t r = thread; r < rows->count; r += threads)
        soften(rows->logits + r * rows->width, rows->width, rows->temperatures ? rows->temperatures[r] : 1.0f,
               rows->to + r * rows->width);
}

/* Rows [count][width] with a temperature each, 1 if `temperatures` is null, by so many threads. Returns 0. */
EXPORT int64_t specpair_soften(const float *logits, int64_t count, int64_t width, const float *temperatures,
                               int64_t thread_count, float *to) {
    struct Rows rows = {logits, temperatures, count, width, to};
    run_together(soften_some, &rows, thread_count);
    return 0;
}
