/* Random words as in specpair/speculation/randomness.py: Philox4x64-10 of Salmon et al., "Parallel Random Numbers: As Easy
as 1, 2, 3" (2011). Block i of the stream of (seed, domain, step) has the words 4 i .. 4 i + 3. */

#ifndef SPECPAIR_PHILOX_H
#define SPECPAIR_PHILOX_H

#include "doubles.h"

#define FIRST_MULTIPLIER UINT64_C(0xD2E7470EE14C6C93)
#define SECOND_MULTIPLIER UINT64_C(0xCA5A826395121157)
#define FIRST_KEY_STEP UINT64_C(0x9E3779B97F4A7C15)
#define SECOND_KEY_STEP UINT64_C(0xBB67AE8584CAA73B)
#define PHILOX_ROUNDS 10
#define BLOCK_WORDS 4

/* A stream of words. */
struct Stream {
    uint64_t seed, domain, step;
};

/* The upper and the lower 64 bits of a product. */
INLINE uint64_t whole_product(uint64_t left, uint64_t right, uint64_t *low) {
    unsigned __int128 product = (unsigned __int128)left * right;
    *low = (uint64_t)product;
    return (uint64_t)(product >> 64);
}

/* The words of one block. */
INLINE void fill_block(struct Stream stream, uint64_t block, uint64_t *to) {
    uint64_t words[BLOCK_WORDS] = {block + 1, stream.step}, key = stream.seed, other_key = stream.domain;
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t low, other_low, high = whole_product(words[0], FIRST_MULTIPLIER, &low);
        uint64_t other_high = whole_product(words[2], SECOND_MULTIPLIER, &other_low);
        words[0] = other_high ^ words[1] ^ key;
        words[2] = high ^ words[3] ^ other_key;
        words[1] = other_low;
        words[3] = low;
        key += FIRST_KEY_STEP;
        other_key += SECOND_KEY_STEP;
    }
    memcpy(to, words, sizeof words);
}

#if defined(__AVX512F__)
#define BLOCKS_AT_ONCE (2 * LANES) /* two registers of each word, as a product waits for the one before */

typedef uint64_t counts_at __attribute__((vector_size(8 * LANES), aligned(1), may_alias));

/* Of the lower halves of lanes. */
INLINE counts half_products(counts left, counts right) {
    return (counts)_mm512_mul_epu32((__m512i)left, (__m512i)right);
}

INLINE counts whole_products(counts left, uint64_t multiplier, counts *low) {
    const counts lower_half = (counts){} + UINT32_MAX;
    counts small = (counts){} + (multiplier & UINT32_MAX), large = (counts){} + (multiplier >> 32);
    counts upper = left >> 32, least = half_products(left, small);
    counts carried = half_products(upper, small) + (least >> 32);
    counts middle = half_products(left, large) + (carried & lower_half);
    *low = (middle << 32) | (least & lower_half);
    return half_products(upper, large) + (carried >> 32) + (middle >> 32);
}

#define MIXED(a, b, ...) (counts)_mm512_permutex2var_epi64((__m512i)(a), (__m512i)(longs){__VA_ARGS__}, (__m512i)(b))

/* Stores the words of LANES blocks, of which each has a register, block by block. */
INLINE void store_blocks(const counts *words, uint64_t *to) {
    counts left[2], right[2], *target = left;
    for (int pair = 0; pair < BLOCK_WORDS; pair += 2, target = right) {
        target[0] = MIXED(words[pair], words[pair + 1], 0, 8, 1, 9, 2, 10, 3, 11);
        target[1] = MIXED(words[pair], words[pair + 1], 4, 12, 5, 13, 6, 14, 7, 15);
    }
    for (int half = 0; half < 2; half++) {
        *(counts_at *)(to + 2 * half * LANES) = MIXED(left[half], right[half], 0, 1, 8, 9, 2, 3, 10, 11);
        *(counts_at *)(to + (2 * half + 1) * LANES) = MIXED(left[half], right[half], 4, 5, 12, 13, 6, 7, 14, 15);
    }
}

/* The words of BLOCKS_AT_ONCE blocks. */
INLINE void fill_blocks(struct Stream stream, uint64_t block, uint64_t *to) {
    counts words[2][BLOCK_WORDS] = {};
    uint64_t key = stream.seed, other_key = stream.domain;
    for (int half = 0; half < 2; half++) {
        words[half][0] = (counts){0, 1, 2, 3, 4, 5, 6, 7} + (block + 1 + half * LANES);
        words[half][1] += stream.step;
    }
#pragma GCC unroll 10
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            counts *own = words[half], low, other_low, high = whole_products(own[0], FIRST_MULTIPLIER, &low);
            counts other_high = whole_products(own[2], SECOND_MULTIPLIER, &other_low);
            own[0] = other_high ^ own[1] ^ key;
            own[2] = high ^ own[3] ^ other_key;
            own[1] = other_low;
            own[3] = low;
        }
        key += FIRST_KEY_STEP;
        other_key += SECOND_KEY_STEP;
    }
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) store_blocks(words[half], to + half * BLOCK_WORDS * LANES);
}
#undef MIXED
#else /* products of 64 bits are faster one by one than by four products of halves in AVX2 */
#define BLOCKS_AT_ONCE 1
INLINE void fill_blocks(struct Stream stream, uint64_t block, uint64_t *to) { fill_block(stream, block, to); }
#endif

#endif
