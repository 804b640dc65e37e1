/* Products whose weights have 8 or 4 bits, and whose rows are rounded to 8 bits, with a scale for each group of inputs.

Sums within a group are whole numbers; groups are added in their order. So a row has the same bits in any company. */

#ifndef SPECPAIR_BYTES_H
#define SPECPAIR_BYTES_H

#include <stdlib.h>

#include "dots.h"
#include "product.h"

/* Rows in whole numbers: x = numbers * scale. */
struct Rounded {
    int8_t *numbers;  /* [rows][groups][group] */
    float *scales;    /* [rows][groups] */
    int32_t *starts;  /* [rows][groups]: what the middle of the weights, times the numbers, adds to a sum; negative */
    float *levels;    /* [rows][groups]: scale times the sum of the numbers */
    int64_t groups;
};

#if MULTIPLIES_BYTES

#define NIBBLE_MIDDLE 8 /* weights are unsigned: 4 bits around 8, or 8 bits around 128 */
#define BYTE_PARTS (PANEL / BYTE_LANES)

typedef float byte_floats __attribute__((vector_size(4 * BYTE_LANES)));
typedef float byte_floats_at __attribute__((vector_size(4 * BYTE_LANES), aligned(4), may_alias));
typedef uint16_t byte_halves __attribute__((vector_size(2 * BYTE_LANES)));

INLINE int64_t inputs_of_group(const int kind) { return kind == BYTE_WEIGHTS ? BYTE_GROUP : NIBBLE_GROUP; }

INLINE int64_t steps_of_group(const int kind) { return kind == BYTE_WEIGHTS ? BYTE_STEPS : NIBBLE_STEPS; }

/* Nibbles have scales and middles in bf16 behind them. */
INLINE int64_t bytes_of_group(const int kind) {
    return steps_of_group(kind) * STEP + (kind == NIBBLE_WEIGHTS ? 2 * 2 * PANEL : 0);
}

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
        integers numbers = __builtin_convertvector(plus_product(same(shift), part, same(inverse)) - shift, integers);
        total += numbers;
        typedef int8_t bytes __attribute__((vector_size(WIDTH)));
        bytes narrow = __builtin_convertvector(numbers, bytes);
        memcpy(to + i, &narrow, sizeof narrow);
    }
    *scale = most / 127.0f + sum_of(poison);
    return whole_sum_of(total);
}

/* All rows, into memory of this thread that grows and stays. */
INLINE struct Rounded rounded(const int kind, const struct Product *product, const void *x, int64_t stride,
                              int64_t count) {
    const int64_t group = inputs_of_group(kind);
    const int32_t middle = kind == BYTE_WEIGHTS ? BYTE_MIDDLE : NIBBLE_MIDDLE;
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

/* `plus_product` of registers of outputs. */
INLINE byte_floats plus_byte_product(byte_floats sum, byte_floats x, byte_floats y) {
#if defined(__AVX512F__) && BYTE_LANES == 16
    return (byte_floats)_mm512_fmadd_ps((__m512)x, (__m512)y, (__m512)sum);
#elif defined(__FMA__)
    return (byte_floats)_mm256_fmadd_ps((__m256)x, (__m256)y, (__m256)sum);
#else
    return sum + x * y;
#endif
}

/* Adds one group of inputs, for the outputs from register `part` on, to the sums of `rows` rows, a number known when this
   is compiled. Weights are the group's, sums those of the panel. */
INLINE void add_part(const int kind, const int rows, const char *weights, struct Rounded x, int64_t row, int64_t group,
                     int part, float (*sums)[PANEL], struct Fetching fetching) {
    const int64_t size = inputs_of_group(kind);
    const char *scales = weights + NIBBLE_STEPS * STEP, *middles = scales + 2 * PANEL;
    byte_sums dots[BYTE_ROWS][AT_ONCE];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        for (int own = 0; own < AT_ONCE; own++) dots[r][own] = (byte_sums){} + x.starts[(row + r) * x.groups + group];
    add_dots(kind == BYTE_WEIGHTS, rows, weights + part * 4 * BYTE_LANES, x.numbers + (row * x.groups + group) * size,
             x.groups * size, dots, fetching);
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
            byte_floats whole = __builtin_convertvector(dots[r][own], byte_floats), zero = {};
            byte_floats_at *at = (byte_floats_at *)(sums[r] + (part + own) * BYTE_LANES);
            byte_floats sum = group ? (byte_floats)*at : zero;
            if (kind == BYTE_WEIGHTS) *at = plus_byte_product(sum, whole, zero + x.scales[place]);
            else {
                sum = plus_byte_product(sum, whole * x.scales[place], scale);
                *at = plus_byte_product(sum, level, zero + x.levels[place]);
            }
        }
    }
}

/* Adds groups `from` .. `to` - 1 of a panel to the sums of rows `row` .. `row` + `rows` - 1. */
INLINE void add_groups(const int kind, const int rows, const char *weights, struct Rounded x, int64_t row, int64_t from,
                       int64_t to, float (*sums)[PANEL], struct Fetching fetching) {
    for (int64_t group = from; group < to; group++, weights += bytes_of_group(kind))
        for (int part = 0; part < BYTE_PARTS; part += AT_ONCE, fetching = after(fetching, steps_of_group(kind)))
            add_part(kind, rows, weights, x, row, group, part, sums, fetching);
}

#endif

#endif
