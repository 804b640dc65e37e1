/* A register of floats at a time, in the vector extensions of GCC and Clang: 16 with AVX-512, 8 elsewhere.

Every function does the same operations in the same order for a given length, so results never depend on other rows. */

#ifndef SPECPAIR_VECTORS_H
#define SPECPAIR_VECTORS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__AVX__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))
#define EXPORT __attribute__((visibility("default")))
#if defined(__AVX512F__)
#define WIDTH 16
#else
#define WIDTH 8 /* vectors that are wider than a register go through memory */
#endif

typedef float floats __attribute__((vector_size(4 * WIDTH)));
typedef int32_t integers __attribute__((vector_size(4 * WIDTH)));
typedef uint32_t words __attribute__((vector_size(4 * WIDTH)));
typedef float four __attribute__((vector_size(16)));
typedef uint16_t halves __attribute__((vector_size(2 * WIDTH)));
/* The same in memory, at any address: by memcpy GCC goes through the stack, in pieces that are slow to join. */
typedef float floats_at __attribute__((vector_size(4 * WIDTH), aligned(1), may_alias));
typedef uint32_t words_at __attribute__((vector_size(4 * WIDTH), aligned(1), may_alias));
typedef uint16_t halves_at __attribute__((vector_size(2 * WIDTH), aligned(1), may_alias));

INLINE floats same(float value) { return (floats){} + value; }

/* sum + x * y, rounded once where the processor can do that. It is not left to the compiler, which does it in one copy of
   a function and not in another: then a row would not have the same bits in any company. */
INLINE floats plus_product(floats sum, floats x, floats y) {
#if defined(__AVX512F__)
    return (floats)_mm512_fmadd_ps((__m512)x, (__m512)y, (__m512)sum);
#elif defined(__FMA__)
    return (floats)_mm256_fmadd_ps((__m256)x, (__m256)y, (__m256)sum);
#else
    return sum + x * y;
#endif
}

/* The numbers where `chosen` is set, 0 elsewhere. */
INLINE floats only(integers chosen, floats numbers) { return (floats)(chosen & (integers)numbers); }

INLINE floats either(integers chosen, floats yes, floats no) {
    return (floats)((chosen & (integers)yes) | (~chosen & (integers)no));
}

INLINE floats larger(floats left, floats right) { return either(left > right, left, right); }

/* A bit for each number, whether it is chosen. */
INLINE uint32_t bits_of(integers chosen) {
#if defined(__AVX512F__)
    return _mm512_movepi32_mask((__m512i)chosen);
#elif defined(__AVX__)
    return _mm256_movemask_ps((__m256)chosen);
#else
    uint32_t bits = 0;
    for (int i = 0; i < WIDTH; i++) bits |= (uint32_t)(chosen[i] & 1) << i;
    return bits;
#endif
}

INLINE int any(integers chosen) { return bits_of(chosen) != 0; }

INLINE float sum_of(floats numbers) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)numbers);
#else
    float sums[WIDTH];
    memcpy(sums, &numbers, sizeof sums);
    for (int width = WIDTH / 2; width; width /= 2)
        for (int i = 0; i < width; i++) sums[i] += sums[i + width];
    return sums[0];
#endif
}

INLINE int32_t whole_sum_of(integers numbers) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_epi32((__m512i)numbers);
#else
    int32_t sum = 0;
    for (int i = 0; i < WIDTH; i++) sum += numbers[i];
    return sum;
#endif
}

/* Numbers of a and b in the order of 16 places, each a constant. */
#if defined(__clang__)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (integers){__VA_ARGS__})
#endif

/* The sums of four. */
INLINE four four_sums(floats a, floats b, floats c, floats d) {
#if defined(__AVX512F__)
#define PAIR_SUMS(a, b) \
    (SHUFFLE(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29) + \
     SHUFFLE(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31))
    floats left = PAIR_SUMS(a, b), right = PAIR_SUMS(c, d);
#undef PAIR_SUMS
    floats sums = SHUFFLE(left, right, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
                  SHUFFLE(left, right, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    four parts[4];
    memcpy(parts, &sums, sizeof parts);
    return (parts[0] + parts[1]) + (parts[2] + parts[3]);
#elif defined(__AVX__)
    __m256 sums = _mm256_hadd_ps(_mm256_hadd_ps((__m256)a, (__m256)b), _mm256_hadd_ps((__m256)c, (__m256)d));
    return (four)_mm256_castps256_ps128(sums) + (four)_mm256_extractf128_ps(sums, 1);
#else
    return (four){sum_of(a), sum_of(b), sum_of(c), sum_of(d)};
#endif
}

INLINE float largest_of(floats numbers) {
    float largest = numbers[0];
    for (int i = 1; i < WIDTH; i++) largest = numbers[i] > largest ? numbers[i] : largest;
    return largest;
}

/* bfloat16 is the upper half of a float. */
INLINE floats widened(halves upper) { return (floats)(__builtin_convertvector(upper, words) << 16); }

/* To the nearest, ties to even; NaN stays NaN. */
INLINE halves narrowed(floats numbers) {
    words bits = (words)numbers;
    words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    words is_nan = (words)(numbers != numbers);
    return __builtin_convertvector((~is_nan & rounded) | (is_nan & 0x7fc0), halves);
}

/* Loads and stores of `count` numbers, at most WIDTH, float or bfloat16, from any address; the rest is 0. */
INLINE floats load(const void *from, int is_bf16, int64_t count) {
    size_t size = is_bf16 ? 2 : 4;
    halves narrow = {};
    floats wide = {};
    if (is_bf16) {
        if (count >= WIDTH) return widened((halves)*(const halves_at *)from);
        memcpy(&narrow, from, size * count);
        return widened(narrow);
    }
    if (count >= WIDTH) return (floats)*(const floats_at *)from;
    memcpy(&wide, from, size * count);
    return wide;
}

INLINE void store(void *to, int is_bf16, int64_t count, floats numbers) {
    if (is_bf16) {
        halves narrow = narrowed(numbers);
        if (count >= WIDTH) *(halves_at *)to = narrow;
        else memcpy(to, &narrow, 2 * count);
    } else if (count >= WIDTH) *(floats_at *)to = numbers;
    else memcpy(to, &numbers, 4 * count);
}

INLINE void *offset(const void *from, int is_bf16, int64_t count) {
    return (char *)from + (is_bf16 ? 2 : 4) * count;
}

/* e^x / 2^whole for the whole number nearest to x log2 e: the polynomial of Cephes' expf. */
INLINE floats fraction_of_exponential(floats x, floats whole) {
    floats rest = plus_product(plus_product(x, whole, same(-0.693359375f)), whole, same(2.12194440e-4f));
    floats sum = same(1.9875691500e-4f);
    sum = plus_product(same(1.3981999507e-3f), sum, rest);
    sum = plus_product(same(8.3334519073e-3f), sum, rest);
    sum = plus_product(same(4.1665795894e-2f), sum, rest);
    sum = plus_product(same(1.6666665459e-1f), sum, rest);
    sum = plus_product(same(5.0000001201e-1f), sum, rest);
    return plus_product(rest, sum, rest * rest) + 1.0f;
}

/* exp x, to about two units in the last place; 0 below -87, e^88 above 88. */
INLINE floats exponential(floats x) {
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to whole numbers */
    integers is_tiny = x < same(-87.0f);
    x = either(x > same(88.0f), same(88.0f), x); /* beyond, the exponent would run into the sign */
    floats whole = plus_product(same(shift), x, same(1.44269504088896341f)) - shift;
    integers exponent = (__builtin_convertvector(whole, integers) + 127) << 23;
    return only(~is_tiny, fraction_of_exponential(x, whole) * (floats)exponent);
}

#endif
