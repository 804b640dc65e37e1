/* Attention of a few queries of one key head over its sequence's keys and values, where they lie in the cache. */

#ifndef SPECPAIR_ATTENTION_H
#define SPECPAIR_ATTENTION_H

#include <math.h>

#include "pass.h"
#include "vectors.h"

#if defined(__AVX512F__)
#define QUERIES 6 /* at once; as many as have their sums in registers */
#else
#define QUERIES 2
#endif

/* Queries that share a key head, and the range of keys that each sees. */
struct Queries {
    const float *rows[QUERIES]; /* rotated and scaled */
    void *results[QUERIES];
    int64_t from[QUERIES], to[QUERIES];
    float *scores[QUERIES];     /* by key, counted from `base`, with room for 16 more */
    int64_t base;               /* a multiple of WIDTH */
    const int64_t *path;        /* of a token of a tree or a tail: where its keys from `start` on are; or null */
    int64_t start;
    const void *next;           /* keys that are read after these; memory is asked for them while values are read */
};

/* Where the key of a position is stored; `is_tree` if there is a path. What is on it is read as if it were stored as a
   chain, so its sums have the same bits. */
INLINE int64_t place_of(const struct Queries *asked, const int is_tree, int64_t key) {
    return is_tree && key >= asked->start ? asked->path[key - asked->start] : key;
}

/* Scores of keys `key` .. `key` + 3. Those from `to` on do not exist: the last one is read in their place, and nobody
   reads what comes of it. */
INLINE void score_four(const int queries, const struct Queries *asked, const int is_tree, const void *keys,
                       const int is_bf16, const int64_t size, int64_t key, int64_t to) {
    const void *own[4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        int64_t place = place_of(asked, is_tree, key + k < to ? key + k : to - 1);
        own[k] = offset(keys, is_bf16, place * size);
    }
    floats sums[QUERIES][4] = {};
    for (int64_t i = 0; i < size; i += WIDTH) {
        floats loaded[4];
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) loaded[k] = load(offset(own[k], is_bf16, i), is_bf16, size - i);
#pragma GCC unroll 6
        for (int q = 0; q < queries; q++) {
            floats part = load(asked->rows[q] + i, 0, size - i);
#pragma GCC unroll 4
            for (int k = 0; k < 4; k++) sums[q][k] = plus_product(sums[q][k], part, loaded[k]);
        }
    }
#pragma GCC unroll 6
    for (int q = 0; q < queries; q++) {
        four found = four_sums(sums[q][0], sums[q][1], sums[q][2], sums[q][3]);
        memcpy(asked->scores[q] + key - asked->base, &found, sizeof found);
    }
}

/* The values are read next, so memory is asked for them meanwhile. */
INLINE void score(const int queries, const struct Queries *asked, const int is_tree, const void *keys,
                  const void *values, const int is_bf16, const int64_t size, int64_t from, int64_t to) {
    for (int64_t key = from; key < to; key += 4) {
        const char *soon = offset(values, is_bf16, key * size);
        for (int64_t place = 0; place < 4 * size * (is_bf16 ? 2 : 4); place += 64)
            __builtin_prefetch(soon + place, 0, 2);
        score_four(queries, asked, is_tree, keys, is_bf16, size, key, to);
    }
}

/* Hides the keys that a query does not see, up to whole groups of WIDTH. */
INLINE void hide(const struct Queries *asked, int q) {
    float *scores = asked->scores[q];
    int64_t end = (asked->to[q] - asked->base + WIDTH - 1) / WIDTH * WIDTH;
    for (int64_t i = 0; i < asked->from[q] - asked->base; i++) scores[i] = -INFINITY;
    for (int64_t i = asked->to[q] - asked->base; i < end; i++) scores[i] = -INFINITY;
}

/* Turns scores into weights, and returns 1 / their sum. */
INLINE float soften_scores(float *scores, int64_t count) {
    floats largest = same(-INFINITY), sum = {};
    for (int64_t i = 0; i < count; i += WIDTH) largest = larger(load(scores + i, 0, WIDTH), largest);
    float top = largest_of(largest);
    for (int64_t i = 0; i < count; i += WIDTH) {
        floats weights = exponential(load(scores + i, 0, WIDTH) - top);
        sum += weights;
        store(scores + i, 0, WIDTH, weights);
    }
    return 1.0f / sum_of(sum);
}

/* Whether the fourth part of a stretch of values, and all before it, are there: known when this is compiled for the
   usual sizes of heads. */
#define HAS(part, size, i) ((size) % (4 * WIDTH) == 0 || (part) * WIDTH < (size) - (i))

/* Adds the values of keys `from` .. `to` - 1 to the sums of the queries `first` .. `last` - 1. */
INLINE void add_values(floats sums[QUERIES][4], const int first, const int last, const struct Queries *asked,
                       const int is_tree, const void *values, const int is_bf16, const int64_t size, int64_t i,
                       int64_t from, int64_t to) {
    for (int64_t key = from; key < to; key++) {
        int64_t row = place_of(asked, is_tree, key) * size;
        if (i == 0)
            for (int64_t place = 0; place < size * (is_bf16 ? 2 : 4); place += 64)
                __builtin_prefetch(offset(asked->next, is_bf16, row) + place, 0, 2);
#pragma GCC unroll 4
        for (int part = 0; part < 4; part++) {
            if (!HAS(part, size, i)) continue;
            int64_t place = i + part * WIDTH;
            floats loaded = load(offset(values, is_bf16, row + place), is_bf16, size - place);
#pragma GCC unroll 6
            for (int q = first; q < last; q++)
                sums[q][part] = plus_product(sums[q][part], same(asked->scores[q][key - asked->base]), loaded);
        }
    }
}

/* Sums the values by weight, always in order of keys. Keys that only some of the queries see are added for those. */
INLINE void mix(const int queries, const struct Queries *asked, const int is_tree, const float *scales,
                const void *values, const int is_bf16, const int64_t size, int64_t from, int64_t to) {
    for (int64_t i = 0; i < size; i += 4 * WIDTH) {
        floats sums[QUERIES][4] = {};
#pragma GCC unroll 6
        for (int q = 0; q < queries; q++)
            add_values(sums, q, q + 1, asked, is_tree, values, is_bf16, size, i, asked->from[q], from);
        add_values(sums, 0, queries, asked, is_tree, values, is_bf16, size, i, from, to);
#pragma GCC unroll 6
        for (int q = 0; q < queries; q++)
            add_values(sums, q, q + 1, asked, is_tree, values, is_bf16, size, i, to, asked->to[q]);
#pragma GCC unroll 6
        for (int q = 0; q < queries; q++)
#pragma GCC unroll 4
            for (int part = 0; part < 4; part++) {
                if (!HAS(part, size, i)) continue;
                int64_t place = i + part * WIDTH;
                store(offset(asked->results[q], is_bf16, place), is_bf16, size - place, sums[q][part] * scales[q]);
            }
    }
}

INLINE void attend(const int queries, const struct Queries *asked, const int is_tree, const void *keys,
                   const void *values, const int is_bf16, const int64_t size) {
    int64_t first = asked->from[0], last = asked->to[0], from = first, to = last;
    for (int q = 1; q < queries; q++) {
        if (asked->from[q] < first) first = asked->from[q];
        if (asked->from[q] > from) from = asked->from[q];
        if (asked->to[q] > last) last = asked->to[q];
        if (asked->to[q] < to) to = asked->to[q];
    }
    if (from > to) from = to; /* a narrow window: nothing is seen by all */
    float scales[QUERIES];
    score(queries, asked, is_tree, keys, values, is_bf16, size, first, last);
    for (int q = 0; q < queries; q++) {
        hide(asked, q);
        scales[q] = soften_scores(asked->scores[q], asked->to[q] - asked->base);
    }
    mix(queries, asked, is_tree, scales, values, is_bf16, size, from, to);
}

/* Compiled for each number of queries and the usual sizes of heads. */
static __attribute__((noinline)) void attend_any(int queries, const struct Queries *asked, const void *keys,
                                                 const void *values, int is_bf16, int64_t size) {
    const int is_tree = asked->path != 0;
#define FOR(count, type, length) \
    if (queries == count && is_bf16 == type && size == length) { \
        attend(count, asked, is_tree, keys, values, type, length); \
        return; \
    }
#if QUERIES > 2
#define EACH(type, length) \
    FOR(1, type, length) FOR(2, type, length) FOR(3, type, length) FOR(4, type, length) \
    FOR(5, type, length) FOR(6, type, length)
#else
#define EACH(type, length) FOR(1, type, length) FOR(2, type, length)
#endif
    EACH(0, 64) EACH(1, 64) EACH(0, 128) EACH(1, 128)
#undef EACH
#undef FOR
    attend(queries, asked, is_tree, keys, values, is_bf16, size);
}

#endif
