/* Products whose weights have 8 or 4 bits, and whose rows are rounded to 8 bits, with a scale for each group of inputs.

Sums within a group are whole numbers; groups are added in their order. So a row has the same bits in any company. */

#ifndef SPECPAIR_BYTES_H
#define SPECPAIR_BYTES_H

#include <stdlib.h>

#include "product.h"

#if defined(__AVX512VNNI__)
#define MULTIPLIES_BYTES 1
#else
#define MULTIPLIES_BYTES 0
#endif

#if MULTIPLIES_BYTES

#define BYTE_GROUP 64  /* inputs that share a scale, beside weights of 8 bits */
#define NIBBLE_GROUP 32 /* of 4 bits, which have scales for each group themselves */
#define BYTE_MIDDLE 128 /* weights are unsigned: 8 bits around 128, or 4 around 8 */
#define NIBBLE_MIDDLE 8
#define STEP (PANEL * 4) /* bytes that are multiplied by four inputs, or by eight if they are nibbles */
#define NIBBLE_BYTES (NIBBLE_GROUP / 8 * STEP + 2 * 2 * PANEL) /* of a group: nibbles, then scales and middles in bf16 */

/* Rows in whole numbers: x = numbers * scale. */
struct Rounded {
    int8_t *numbers;  /* [rows][groups][group] */
    float *scales;    /* [rows][groups] */
    int32_t *starts;  /* [rows][groups]: what the middle of the weights, times the numbers, adds to a sum; negative */
    float *levels;    /* [rows][groups]: scale times the sum of the numbers */
    int64_t groups;
};

/* One group of a row, and the sum of its numbers; one that is not finite makes the scale NaN. */
INLINE int32_t round_group(const void *x, int is_bf16, int64_t count, const int64_t group, int8_t *to, float *scale) {
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to whole numbers */
    floats largest = {}, poison = {};
    for (int64_t i = 0; i < group && i < count; i += WIDTH) {
        floats part = load(offset(x, is_bf16, i), is_bf16, count - i);
        largest = larger((floats)((words)part & 0x7fffffff), largest);
        poison += part * 0.0f;
    }
    float most = largest_of(largest);
    float inverse = most > 1e-30f ? 127.0f / most : 0.0f;
    integers total = {};
    for (int64_t i = 0; i < group; i += WIDTH) {
        floats part = i < count ? load(offset(x, is_bf16, i), is_bf16, count - i) : (floats){};
        integers numbers = __builtin_convertvector((part * inverse + shift) - shift, integers);
        total += numbers;
        typedef int8_t bytes __attribute__((vector_size(WIDTH)));
        bytes narrow = __builtin_convertvector(numbers, bytes);
        memcpy(to + i, &narrow, sizeof narrow);
    }
    *scale = most / 127.0f + sum_of(poison);
    return _mm512_reduce_add_epi32((__m512i)total);
}

/* All rows, into memory of this thread that grows and stays. */
static struct Rounded rounded(const struct Product *product, const void *x, int64_t stride, int64_t count,
                              const int64_t group, const int32_t middle) {
    static __thread char *memory;
    static __thread int64_t size;
    int64_t groups = (product->in + group - 1) / group, wanted = count * groups * (group + 12);
    if (wanted > size) {
        free(memory);
        memory = aligned_alloc(64, (wanted + 63) / 64 * 64);
        if (!memory) abort();
        size = wanted;
    }
    struct Rounded rows = {(int8_t *)memory, (float *)(memory + count * groups * group), 0, 0, groups};
    rows.starts = (int32_t *)(rows.scales + count * groups);
    rows.levels = (float *)(rows.starts + count * groups);
    for (int64_t r = 0; r < count; r++)
        for (int64_t g = 0; g < groups; g++) {
            int64_t place = r * groups + g;
            int32_t sum = round_group(offset(x, (int)product->is_bf16, r * stride + g * group), (int)product->is_bf16,
                                      product->in - g * group, group, rows.numbers + place * group, rows.scales + place);
            rows.starts[place] = -middle * sum;
            rows.levels[place] = rows.scales[place] * sum;
        }
    return rows;
}

INLINE integers dot(integers sum, words weights, const int8_t *numbers) {
    int32_t four;
    memcpy(&four, numbers, sizeof four);
    return (integers)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)weights, _mm512_set1_epi32(four));
}

/* As `tile` of product.h. */
INLINE void coarse_tile(const int kind, const int action, const int rows, const struct Product *product,
                        struct Rounded x, int64_t panel, struct Target target, int64_t row) {
    const int64_t group = kind == BYTE_WEIGHTS ? BYTE_GROUP : NIBBLE_GROUP;
    const int64_t size = kind == BYTE_WEIGHTS ? BYTE_GROUP / 4 * STEP : NIBBLE_BYTES;
    const char *weights = (const char *)product->weights + panel * x.groups * size;
    floats sums[ROWS][2], kept[ROWS][2];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) sums[r][0] = sums[r][1] = (floats){};
    for (int64_t g = 0; g < x.groups; g++, weights += size) {
        integers dots[ROWS][2];
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
            dots[r][0] = dots[r][1] = (integers){} + x.starts[(row + r) * x.groups + g];
        const int8_t *numbers = x.numbers + (row * x.groups + g) * group;
        for (int64_t i = 0; i < (kind == BYTE_WEIGHTS ? group / 4 : group / 8); i++) {
            words loaded[2];
            memcpy(loaded, weights + i * STEP, sizeof loaded);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) {
                const int8_t *own = numbers + r * x.groups * group;
#pragma GCC unroll 2
                for (int half = 0; half < 2; half++)
                    if (kind == BYTE_WEIGHTS) dots[r][half] = dot(dots[r][half], loaded[half], own + i * 4);
                    else {
                        dots[r][half] = dot(dots[r][half], loaded[half] & 0x0f0f0f0f, own + i * 8);
                        dots[r][half] = dot(dots[r][half], (loaded[half] >> 4) & 0x0f0f0f0f, own + i * 8 + 4);
                    }
            }
        }
        const char *after = weights + NIBBLE_GROUP / 8 * STEP;
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            floats scale = {}, level = {};
            if (kind == NIBBLE_WEIGHTS) {
                scale = load(after + half * 2 * WIDTH, 1, WIDTH);
                level = load(after + 2 * PANEL + half * 2 * WIDTH, 1, WIDTH);
            }
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) {
                int64_t place = (row + r) * x.groups + g;
                floats whole = __builtin_convertvector(dots[r][half], floats) * x.scales[place];
                if (kind == BYTE_WEIGHTS) sums[r][half] += whole;
                else sums[r][half] = sums[r][half] + whole * scale + level * x.levels[place];
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        for (int half = 0; half < 2; half++)
            kept[r][half] = kind == NIBBLE_WEIGHTS
                                ? sums[r][half]
                                : sums[r][half] * load(product->scales + panel * PANEL + half * WIDTH, 0, WIDTH);
    for (int r = 0; r < rows; r++) finish(action, kept[r], panel, product, target, row + r);
}

INLINE void coarse_panels(const int kind, const int action, const struct Product *product, const void *x,
                          int64_t stride, int64_t count, int64_t first, int64_t last, struct Target target) {
#define TILE(rows) \
    case rows: \
        coarse_tile(kind, action, rows, product, numbers, panel, target, row); \
        break;
    struct Rounded numbers = kind == BYTE_WEIGHTS ? rounded(product, x, stride, count, BYTE_GROUP, BYTE_MIDDLE)
                                                  : rounded(product, x, stride, count, NIBBLE_GROUP, NIBBLE_MIDDLE);
    for (int64_t panel = first; panel < last; panel++) {
        int64_t row = 0;
        for (; row + ROWS <= count; row += ROWS) coarse_tile(kind, action, ROWS, product, numbers, panel, target, row);
        switch (count - row) {
            TILE(1)
            TILE(2)
            TILE(3)
            TILE(4)
            TILE(5)
            TILE(6)
            TILE(7)
        }
    }
#undef TILE
}

#define EACH(kind, action) \
    static __attribute__((noinline)) void multiply_##kind##_##action( \
        const struct Product *product, const void *x, int64_t stride, int64_t count, int64_t first, int64_t last, \
        struct Target target) { \
        coarse_panels(kind, action, product, x, stride, count, first, last, target); \
    }
EACH(BYTE_WEIGHTS, STORE)
EACH(BYTE_WEIGHTS, ADD)
EACH(BYTE_WEIGHTS, GATE)
EACH(NIBBLE_WEIGHTS, STORE)
EACH(NIBBLE_WEIGHTS, ADD)
EACH(NIBBLE_WEIGHTS, GATE)
#undef EACH

static const Multiply COARSE[2][3] = {
    {multiply_BYTE_WEIGHTS_STORE, multiply_BYTE_WEIGHTS_ADD, multiply_BYTE_WEIGHTS_GATE},
    {multiply_NIBBLE_WEIGHTS_STORE, multiply_NIBBLE_WEIGHTS_ADD, multiply_NIBBLE_WEIGHTS_GATE},
};

#endif

/* As `multiply` of product.h, for weights of any kind. */
static void multiply_any(int action, const struct Product *product, const void *x, int64_t stride, int64_t count,
                         struct Target target, int thread, int threads) {
#if MULTIPLIES_BYTES
    if (product->kind >= BYTE_WEIGHTS) {
        int64_t panels = (product->out + PANEL - 1) / PANEL;
        int64_t first = panels * thread / threads, last = panels * (thread + 1) / threads;
        if (first < last && count)
            COARSE[product->kind - BYTE_WEIGHTS][action](product, x, stride, count, first, last, target);
        return;
    }
#endif
    multiply(action, product, x, stride, count, target, thread, threads);
}

#endif
