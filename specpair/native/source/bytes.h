/* Products whose weights have 8 or 4 bits, and whose rows are rounded to 8 bits, with a scale for each group of inputs.

Sums within a group are whole numbers; groups are added in their order. So a row has the same bits in any company. */

#ifndef SPECPAIR_BYTES_H
#define SPECPAIR_BYTES_H

#include <stdlib.h>

#include "dots.h"
#include "product.h"

#if MULTIPLIES_BYTES

#define NIBBLE_MIDDLE 8 /* weights are unsigned: 4 bits around 8, or 8 bits around 128 */
#define BYTE_BYTES (BYTE_STEPS * STEP)                        /* of a group */
#define NIBBLE_BYTES (NIBBLE_STEPS * STEP + 2 * 2 * PANEL) /* nibbles, then scales and middles in bf16 */
#define BYTE_PARTS (PANEL / BYTE_LANES)

typedef float byte_floats __attribute__((vector_size(4 * BYTE_LANES)));
typedef uint16_t byte_halves __attribute__((vector_size(2 * BYTE_LANES)));

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
    return whole_sum_of(total);
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

/* Numbers in bf16, one for each output of a register. */
INLINE byte_floats widened_bytes(const char *from) {
    byte_halves upper;
    memcpy(&upper, from, sizeof upper);
    return (byte_floats)(__builtin_convertvector(upper, byte_words) << 16);
}

/* Adds one group of a panel, for the outputs from register `part` on, to the sums of those. */
INLINE void add_group(const int kind, const int rows, const char *weights, struct Rounded x, int64_t row, int64_t group,
                      int part, byte_floats (*sums)[BYTE_PARTS], struct Fetching fetching) {
    const int64_t size = kind == BYTE_WEIGHTS ? BYTE_GROUP : NIBBLE_GROUP;
    const char *scales = weights + NIBBLE_STEPS * STEP, *middles = scales + 2 * PANEL;
    byte_sums dots[BYTE_ROWS][AT_ONCE];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        for (int own = 0; own < AT_ONCE; own++) dots[r][own] = (byte_sums){} + x.starts[(row + r) * x.groups + group];
    add_dots(kind == BYTE_WEIGHTS, rows, weights + part * 4 * BYTE_LANES, x.numbers + (row * x.groups + group) * size,
             x.groups * size, dots, fetching, group * (kind == BYTE_WEIGHTS ? BYTE_STEPS : NIBBLE_STEPS));
#pragma GCC unroll 2
    for (int own = 0; own < AT_ONCE; own++) {
        byte_floats scale = {}, level = {};
        if (kind == NIBBLE_WEIGHTS) {
            scale = widened_bytes(scales + (part + own) * 2 * BYTE_LANES);
            level = widened_bytes(middles + (part + own) * 2 * BYTE_LANES);
        }
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            int64_t place = (row + r) * x.groups + group;
            byte_floats whole = __builtin_convertvector(dots[r][own], byte_floats) * x.scales[place];
            byte_floats *sum = &sums[r][own];
            if (kind == BYTE_WEIGHTS) *sum += whole;
            else *sum = *sum + whole * scale + level * x.levels[place];
        }
    }
}

/* As `tile` of product.h. */
INLINE void coarse_tile(const int kind, int action, const int rows, const struct Product *product,
                        struct Rounded x, int64_t panel, struct Target target, int64_t row,
                        struct Fetching fetching) {
    const int64_t size = kind == BYTE_WEIGHTS ? BYTE_BYTES : NIBBLE_BYTES;
    const char *weights = (const char *)product->weights + panel * x.groups * size;
    byte_floats sums[BYTE_ROWS][BYTE_PARTS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int part = 0; part < BYTE_PARTS; part++) sums[r][part] = (byte_floats){};
    for (int64_t g = 0; g < x.groups; g++, weights += size)
        for (int part = 0; part < BYTE_PARTS; part += AT_ONCE)
            add_group(kind, rows, weights, x, row, g, part, (byte_floats (*)[BYTE_PARTS])(sums[0] + part), fetching);
    for (int r = 0; r < rows; r++) {
        float kept[PANEL];
        memcpy(kept, sums[r], sizeof kept);
        for (int i = 0; kind == BYTE_WEIGHTS && i < PANEL; i++) kept[i] *= product->scales[panel * PANEL + i];
        finish(action, kept, panel, product, target, row + r);
    }
}

INLINE void coarse_panels(const int kind, int action, const struct Product *product, const void *x,
                          int64_t stride, int64_t count, int64_t first, int64_t last, struct Target target) {
#define TILE(rows) \
    case rows: \
        coarse_tile(kind, action, rows, product, numbers, panel, target, row, fetching); \
        break;
    struct Rounded numbers = kind == BYTE_WEIGHTS ? rounded(product, x, stride, count, BYTE_GROUP, BYTE_MIDDLE)
                                                  : rounded(product, x, stride, count, NIBBLE_GROUP, NIBBLE_MIDDLE);
    const int64_t size = numbers.groups * (kind == BYTE_WEIGHTS ? BYTE_BYTES : NIBBLE_BYTES);
    const int64_t steps = numbers.groups * (kind == BYTE_WEIGHTS ? BYTE_STEPS : NIBBLE_STEPS);
    const int64_t tiles = (count + BYTE_ROWS - 1) / BYTE_ROWS;
    for (int64_t panel = first; panel < last; panel++) {
        const char *next = (const char *)product->weights + (panel + 1 < last ? panel + 1 : panel) * size;
        for (int64_t number = 0; number < tiles; number++) {
            int64_t row = count * number / tiles;
            struct Fetching fetching = fetching_of(next, size, steps, number, tiles);
            switch (count * (number + 1) / tiles - row) {
                SMALL_TILES
                TILE(7)
                TILE(8)
            }
        }
    }
#undef TILE
}

#define EACH(kind) \
    static __attribute__((noinline)) void multiply_##kind( \
        int action, const struct Product *product, const void *x, int64_t stride, int64_t count, int64_t first, \
        int64_t last, struct Target target) { \
        coarse_panels(kind, action, product, x, stride, count, first, last, target); \
    }
EACH(BYTE_WEIGHTS)
EACH(NIBBLE_WEIGHTS)
#undef EACH

static const Multiply COARSE[] = {multiply_BYTE_WEIGHTS, multiply_NIBBLE_WEIGHTS};

#endif

/* As `multiply` of product.h, for weights of any kind. */
static void multiply_any(int action, const struct Product *product, const void *x, int64_t stride, int64_t count,
                         struct Target target, int thread, int threads) {
#if MULTIPLIES_BYTES
    if (product->kind >= BYTE_WEIGHTS) {
        int64_t panels = (product->out + PANEL - 1) / PANEL;
        int64_t first = panels * thread / threads, last = panels * (thread + 1) / threads;
        if (first < last && count)
            COARSE[product->kind - BYTE_WEIGHTS](action, product, x, stride, count, first, last, target);
        return;
    }
#endif
    multiply(action, product, x, stride, count, target, thread, threads);
}

#endif
