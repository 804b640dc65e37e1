/* Sums of products with weights of 32 and 16 bits, over a block of a panel's inputs. */

#ifndef SPECPAIR_SUMS_H
#define SPECPAIR_SUMS_H

#include "fetching.h"
#include "product.h"

#if defined(__AVX512F__)
#define ROWS 14 /* whose sums of a section, two registers each, fit into registers */
#else
#define ROWS 5 /* six would fit, but GCC keeps some of their sums in memory */
#endif
#define SECTIONS (PARTS / 2)

/* One step of the sums of a row: a register of outputs, two inputs (one if the weights are floats). */
INLINE floats step(const int kind, floats sum, words weights, const void *x) {
    if (kind == FLOAT_WEIGHTS) return plus_product(sum, (floats)weights, same(*(const float *)x));
    if (kind == HALF_WEIGHTS) {
        sum = plus_product(sum, (floats)(weights << 16), same(((const float *)x)[0]));
        return plus_product(sum, (floats)(weights & 0xffff0000), same(((const float *)x)[1]));
    }
    uint32_t pair;
    memcpy(&pair, x, sizeof pair);
#if defined(__AVX512BF16__)
    return (floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32((int32_t)pair), (__m512bh)weights);
#else
    words first = (words){} + (pair << 16), second = (words){} + (pair & 0xffff0000);
    sum = plus_product(sum, (floats)(weights << 16), (floats)first);
    return plus_product(sum, (floats)(weights & 0xffff0000), (floats)second);
#endif
}

/* Adds the steps of a block, `from` .. `to` - 1 of the panel, to the sums of `rows` rows of x, a number known when this is
   compiled. Weights, the block's, and sums begin with those of a section. Rows are `stride` bytes apart. */
INLINE void add_steps(const int kind, const int rows, const char *weights, const char *x, int64_t stride, int64_t from,
                      int64_t to, float (*sums)[PANEL], struct Fetching fetching) {
    const int64_t size = kind == HALF_WEIGHTS ? 8 : 4; /* of a row's inputs of a step */
    floats own[ROWS][2];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int part = 0; part < 2; part++)
            own[r][part] = from ? (floats)*(const floats_at *)(sums[r] + part * WIDTH) : (floats){};
    x += from * size;
    for (int64_t i = 0; i < to - from; i++) {
        const words_at *loaded = (const words_at *)(weights + i * PANEL * 4);
        if (asks(kind == FLOAT_WEIGHTS ? 32 : 16, rows)) fetch(fetching, i);
        words first = loaded[0], second = loaded[1];
#if defined(__AVX__) && !defined(__AVX512F__)
        if (kind == FLOAT_WEIGHTS) __asm__("" : "+x"(first), "+x"(second)); /* or GCC loads them anew for each row */
#endif
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            const char *inputs = x + r * stride;
            own[r][0] = step(kind, own[r][0], first, inputs);
            own[r][1] = step(kind, own[r][1], second, inputs);
        }
        x += size;
        __asm__("" : "+r"(x)); /* or GCC keeps a pointer for each row, and then some sums in memory */
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int part = 0; part < 2; part++) *(floats_at *)(sums[r] + part * WIDTH) = own[r][part];
}

#endif
