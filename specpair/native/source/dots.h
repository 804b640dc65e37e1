/* Sums of products of bytes over one group of inputs, for the outputs of one section of a panel. They are whole
numbers, so they are the same on every processor.

With VNNI one instruction multiplies four bytes by four and adds them in 32 bits. AVX2 adds pairs of products in 16 bits
first. Weights of 4 bits fit: 8 pairs of at most 2 * 15 * 127. Weights of 8 bits do not while they are unsigned, so
their signs are given to the inputs: a pair is at most 2 * 127 * 127. */

#ifndef SPECPAIR_DOTS_H
#define SPECPAIR_DOTS_H

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "fetching.h"
#include "vectors.h"

#if defined(__AVX512VNNI__)
#define MULTIPLIES_BYTES 1
#define BYTE_LANES 16 /* outputs in a register */
#define AT_ONCE 2     /* registers of outputs in a section */
#define BYTE_MIDDLE 128 /* what is subtracted from a weight of 8 bits afterwards */
#elif defined(__AVX2__)
#define MULTIPLIES_BYTES 1
#define BYTE_LANES 8
#define AT_ONCE 1
#define BYTE_MIDDLE 0
#else
#define MULTIPLIES_BYTES 0
#endif

#if MULTIPLIES_BYTES

#define BYTE_GROUP 64   /* inputs that share a scale, beside weights of 8 bits */
#define NIBBLE_GROUP 32 /* of 4 bits, which have scales for each group themselves */
#define BYTE_ROWS 8     /* whose sums of a section fit into registers */
#define STEP 128        /* bytes that are multiplied by four inputs, or by eight if they are nibbles */
#define BYTE_STEPS (BYTE_GROUP / 4)
#define NIBBLE_STEPS (NIBBLE_GROUP / 8)

typedef int32_t byte_sums __attribute__((vector_size(4 * BYTE_LANES)));
typedef uint32_t byte_words __attribute__((vector_size(4 * BYTE_LANES)));
/* In memory: by memcpy GCC puts what it has loaded on the stack, and loads it from there. */
typedef uint32_t byte_words_at __attribute__((vector_size(4 * BYTE_LANES), aligned(1), may_alias));

INLINE int32_t four_of(const int8_t *numbers) {
    int32_t four;
    memcpy(&four, numbers, sizeof four);
    return four;
}

#if defined(__AVX512VNNI__)

INLINE byte_sums dot(byte_sums sum, byte_words weights, const int8_t *numbers) {
    return (byte_sums)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)weights, _mm512_set1_epi32(four_of(numbers)));
}

/* Adds a group's products to the sums of `rows` rows, whose numbers are `stride` bytes apart. */
INLINE void add_dots(const int is_bytes, const int rows, const char *weights, const int8_t *numbers, int64_t stride,
                     byte_sums sums[BYTE_ROWS][AT_ONCE], struct Fetching fetching) {
    for (int64_t i = 0; i < (is_bytes ? BYTE_STEPS : NIBBLE_STEPS); i++) {
        if (asks(is_bytes ? 8 : 4, rows)) fetch(fetching, i);
        const byte_words_at *at = (const byte_words_at *)(weights + i * STEP);
        byte_words loaded[AT_ONCE] = {at[0], at[1]};
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            const int8_t *own = numbers + r * stride;
#pragma GCC unroll 2
            for (int part = 0; part < AT_ONCE; part++)
                if (is_bytes) sums[r][part] = dot(sums[r][part], loaded[part], own + i * 4);
                else {
                    sums[r][part] = dot(sums[r][part], loaded[part] & 0x0f0f0f0f, own + i * 8);
                    sums[r][part] = dot(sums[r][part], (loaded[part] >> 4) & 0x0f0f0f0f, own + i * 8 + 4);
                }
        }
    }
}

#else

/* Pairs of products, in 16 bits. */
INLINE __m256i pairs(__m256i weights, __m256i numbers) { return _mm256_maddubs_epi16(weights, numbers); }

INLINE void add_byte_dots(const int rows, const char *weights, const int8_t *numbers, int64_t stride,
                          byte_sums sums[BYTE_ROWS][AT_ONCE], struct Fetching fetching) {
    const __m256i ones = _mm256_set1_epi16(1), middle = _mm256_set1_epi8((char)0x80);
    for (int64_t i = 0; i < BYTE_STEPS; i++) {
        if (asks(8, rows)) fetch(fetching, i);
        __m256i loaded = _mm256_xor_si256(_mm256_loadu_si256((const void *)(weights + i * STEP)), middle);
        __m256i sizes = _mm256_abs_epi8(loaded);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            __m256i four = _mm256_set1_epi32(four_of(numbers + r * stride + i * 4));
            sums[r][0] += (byte_sums)_mm256_madd_epi16(pairs(sizes, _mm256_sign_epi8(four, loaded)), ones);
        }
    }
}

INLINE void add_nibble_dots(const int rows, const char *weights, const int8_t *numbers, int64_t stride,
                            byte_sums sums[BYTE_ROWS][AT_ONCE], struct Fetching fetching) {
    const __m256i low = _mm256_set1_epi8(0x0f);
    __m256i narrow[BYTE_ROWS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) narrow[r] = _mm256_setzero_si256();
    for (int64_t i = 0; i < NIBBLE_STEPS; i++) {
        if (asks(4, rows)) fetch(fetching, i);
        __m256i loaded = _mm256_loadu_si256((const void *)(weights + i * STEP));
        __m256i first = _mm256_and_si256(loaded, low), second = _mm256_and_si256(_mm256_srli_epi16(loaded, 4), low);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            const int8_t *own = numbers + r * stride + i * 8;
            narrow[r] = _mm256_add_epi16(narrow[r], pairs(first, _mm256_set1_epi32(four_of(own))));
            narrow[r] = _mm256_add_epi16(narrow[r], pairs(second, _mm256_set1_epi32(four_of(own + 4))));
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) sums[r][0] += (byte_sums)_mm256_madd_epi16(narrow[r], _mm256_set1_epi16(1));
}

/* Adds a group's products to the sums of `rows` rows, whose numbers are `stride` bytes apart. */
INLINE void add_dots(const int is_bytes, const int rows, const char *weights, const int8_t *numbers, int64_t stride,
                     byte_sums sums[BYTE_ROWS][AT_ONCE], struct Fetching fetching) {
    if (is_bytes) add_byte_dots(rows, weights, numbers, stride, sums, fetching);
    else add_nibble_dots(rows, weights, numbers, stride, sums, fetching);
}

#endif

#endif

#endif
