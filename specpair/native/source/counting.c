/* Turns rows of probabilities into counts and draws from them, as specpair/speculation/sparse_rows.py does.

Floats from 2^-29 on are multiples of 2^-52, so their sums up to 1 are exact in doubles, in whatever order. Only where
less likely tokens count can the order of a sum show; it depends on the row alone. */

#include "counting.h"
#include "doubles.h"
#include <stdlib.h>

#define TOTAL (1 << 24)

static const float LEAST[] = {0x1p-15f, 0x1p-18f, 0x1p-22f, 0.0f};

/* Room for a row [width], and what is in it. */
struct Candidates {
    uint32_t *ids;
    float *values, *pool, *other; /* `values` belong to the ids; the others are to choose among */
    int64_t count;
};

/* The most likely tokens of a row. */
struct Support {
    int64_t size;
    float least;  /* probability of the last of them */
    int64_t ties; /* how many of the equally likely are among them */
    double mass;
};

/* Finds the tokens above `least`, in order. A whole register is written each time: as many tokens as were looked at are
   in the room. */
static void find(struct Candidates *found, const float *row, int64_t width, float least) {
    int64_t count = 0, i = 0;
#if defined(__AVX512F__)
    __m512i places = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (; i + 16 <= width; i += 16) {
        __m512 part = _mm512_loadu_ps(row + i);
        __mmask16 above = _mm512_cmp_ps_mask(part, _mm512_set1_ps(least), _CMP_GT_OQ);
        if (!above) continue;
        __m512i ids = _mm512_add_epi32(places, _mm512_set1_epi32((int)i));
        _mm512_storeu_si512(found->ids + count, _mm512_maskz_compress_epi32(above, ids));
        _mm512_storeu_ps(found->values + count, _mm512_maskz_compress_ps(above, part));
        count += __builtin_popcount(above);
    }
#endif
    while (i < width) {
        int64_t end = i + 8 < width ? i + 8 : width;
#if defined(__AVX__)
        __m256 bound = _mm256_set1_ps(least);
        if (end == i + 8 && !_mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(row + i), bound, _CMP_GT_OQ))) i = end;
#endif
        for (; i < end; i++) {
            found->ids[count] = (uint32_t)i;
            found->values[count] = row[i];
            count += row[i] > least;
        }
    }
    found->count = count;
}

static double sum(const float *values, int64_t count) {
    doubles sums = {};
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) sums += __builtin_convertvector(*(const singles_at *)(values + i), doubles);
    double all = 0.0;
    for (int lane = 0; lane < LANES; lane++) all += sums[lane];
    for (; i < count; i++) all += values[i];
    return all;
}

static float middle(float a, float b, float c) {
    float low = a < b ? a : b, high = a < b ? b : a;
    return c < low ? low : c > high ? high : c;
}

/* Puts those of values [count] that are above `pivot` first, and those below into `other`. Returns how many are above. */
static int64_t part(float *values, float *other, int64_t count, float pivot, int64_t *below) {
    int64_t above = 0, i = 0;
    *below = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= count; i += 16) {
        __m512 some = _mm512_loadu_ps(values + i), bound = _mm512_set1_ps(pivot);
        __mmask16 is_above = _mm512_cmp_ps_mask(some, bound, _CMP_GT_OQ);
        __mmask16 is_below = _mm512_cmp_ps_mask(some, bound, _CMP_LT_OQ);
        _mm512_storeu_ps(values + above, _mm512_maskz_compress_ps(is_above, some));
        _mm512_storeu_ps(other + *below, _mm512_maskz_compress_ps(is_below, some));
        above += __builtin_popcount(is_above);
        *below += __builtin_popcount(is_below);
    }
#endif
    for (; i < count; i++) {
        float value = values[i];
        values[above] = value;
        above += value > pivot;
        other[*below] = value;
        *below += value < pivot;
    }
    return above;
}

/* The smallest support that reaches `mass` or has `most` tokens; all if none does. Like a quickselect: of the rest, what
   is above a pivot is either all in, or all that can be in. */
static struct Support smallest(struct Candidates *found, double mass, int64_t most) {
    struct Support support = {};
    float *pool = found->pool, *other = found->other;
    int64_t count = found->count;
    memcpy(pool, found->values, count * sizeof *pool);
    while (count) {
        float pivot = middle(pool[0], pool[count / 2], pool[count - 1]);
        int64_t below, above = part(pool, other, count, pivot, &below);
        double gained = sum(pool, above);
        if (above && (support.mass + gained >= mass || support.size + above >= most)) {
            count = above;
            continue;
        }
        support = (struct Support){support.size + above, pivot, 0, support.mass + gained};
        for (int64_t equal = count - above - below; support.ties < equal;) {
            support.ties++;
            support.size++;
            support.mass += pivot;
            if (support.mass >= mass || support.size == most) return support;
        }
        float *rest = other;
        other = pool;
        pool = rest;
        count = below;
    }
    return support;
}

/* Keeps the candidates that are at least as likely as `least`. */
static void keep_likely(struct Candidates *found, float least) {
    int64_t kept = 0, i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= found->count; i += 16) {
        __m512 some = _mm512_loadu_ps(found->values + i);
        __m512i ids = _mm512_loadu_si512(found->ids + i);
        __mmask16 is_kept = _mm512_cmp_ps_mask(some, _mm512_set1_ps(least), _CMP_GE_OQ);
        _mm512_storeu_ps(found->values + kept, _mm512_maskz_compress_ps(is_kept, some));
        _mm512_storeu_si512(found->ids + kept, _mm512_maskz_compress_epi32(is_kept, ids));
        kept += __builtin_popcount(is_kept);
    }
#endif
    for (; i < found->count; i++) {
        found->ids[kept] = found->ids[i];
        found->values[kept] = found->values[i];
        kept += found->values[i] >= least;
    }
    found->count = kept;
}

/* Keeps of the candidates those in the support; of equally likely ones the first. */
static void keep(struct Candidates *found, struct Support support) {
    if (found->count > support.size) keep_likely(found, support.least);
    if (found->count == support.size) return;
    int64_t kept = 0;
    for (int64_t i = 0; i < found->count; i++) {
        int is_tie = found->values[i] == support.least;
        found->ids[kept] = found->ids[i];
        found->values[kept] = found->values[i];
        kept += !is_tie | (support.ties > 0);
        support.ties -= is_tie;
    }
    found->count = kept;
}

/* Counts of the candidates: rounded down, without zeros, the remainder with the most likely. Returns how many. */
static int64_t count_all(const struct Candidates *found, double mass, uint32_t *ids, uint32_t *numbers) {
    double scale = TOTAL / mass;
    int64_t size = 0, likeliest = 0, left = TOTAL;
    float most = 0.0f;
    for (int64_t i = 0; i < found->count; i++) {
        uint32_t number = (uint32_t)(int64_t)(found->values[i] * scale);
        if (!number) continue;
        if (found->values[i] > most) {
            most = found->values[i];
            likeliest = size;
        }
        ids[size] = found->ids[i];
        numbers[size++] = number;
        left -= number;
    }
    if (size) numbers[likeliest] += (uint32_t)left;
    return size;
}

static int64_t drawn_place(const uint32_t *numbers, int64_t size, int64_t chosen) {
    int64_t place = 0;
    while (place < size - 1 && (chosen -= numbers[place]) >= 0) place++;
    return place;
}

static void find_most_likely(struct Candidates *found, const float *row, int64_t width, double mass, int64_t most) {
    for (int level = 0; level < 4; level++) {
        find(found, row, width, LEAST[level]);
        if (found->count >= most || sum(found->values, found->count) >= mass) return;
    }
}

int64_t draw_row(const float *row, int64_t width, double mass, int64_t most, int64_t chosen, float *room, uint32_t *ids,
                 uint32_t *numbers, int64_t *place) {
    struct Candidates found = {(uint32_t *)room, room + width, room + 2 * width, room + 3 * width, 0};
    find_most_likely(&found, row, width, mass, most);
    struct Support support = smallest(&found, mass, most);
    keep(&found, support);
    int64_t size = count_all(&found, support.mass, ids, numbers);
    *place = size ? drawn_place(numbers, size, chosen) : 0;
    return size;
}

/* Makes rows [count][width] into ids and counts, `entries` [count][2][most], with their sizes and the tokens drawn by
   numbers below 2^24, `chosen` [count], as pairs `drawn` [count][2]. A row of NaN has size 0. Returns 0, or 1 if there is
   no memory. */
EXPORT int64_t specpair_draw_rows(const float *rows, int64_t count, int64_t width, double mass, int64_t most,
                                  const int64_t *chosen, uint32_t *entries, int64_t *drawn) {
    float *room = malloc(ROOM * width * sizeof *room);
    if (!room) return 1;
    for (int64_t r = 0; r < count; r++) {
        uint32_t *ids = entries + 2 * r * most;
        int64_t place, *own = drawn + 2 * r;
        own[0] = draw_row(rows + r * width, width, mass, most, chosen[r], room, ids, ids + most, &place);
        own[1] = own[0] ? ids[place] : 0;
    }
    free(room);
    return 0;
}
