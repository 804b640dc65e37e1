/* Checks distributions that another process sent. Nothing about them is trusted. */

#include "doubles.h"

#define MOST_LOG2 30

/* Whether a row [size] ascends to an id below `vocab_size`, without a zero, and sums to `total`. */
static int is_sound(const uint32_t *ids, const uint32_t *numbers, int64_t size, int64_t vocab_size, uint64_t total) {
    uint32_t falls = 0, zeros = 0;
    uint64_t sum = 0;
    for (int64_t i = 1; i < size; i++) falls |= ids[i] <= ids[i - 1];
    for (int64_t i = 0; i < size; i++) {
        zeros |= numbers[i] == 0;
        sum += numbers[i];
    }
    return !falls && !zeros && sum == total && ids[size - 1] < vocab_size;
}

/* The number of a token in an ascending row [size]; 0 if it is not there. */
static uint32_t number_of(int64_t token, const uint32_t *ids, const uint32_t *numbers, int64_t size) {
    int64_t first = 0;
    while (size > 1) {
        int64_t half = size / 2;
        if (ids[first + half] <= token) first += half;
        size -= half;
    }
    return ids[first] == token ? numbers[first] : 0;
}

/* Looks through `length` rows, one after the other, and notes the numbers of the drawn tokens. `table` [3][length] has
   the sizes of the rows and the drawn tokens, and gets these numbers. `ids` and `numbers` have so many bytes. Returns 0
   if all is well; otherwise there is a mistake, or a row does not ascend. */
EXPORT int64_t specpair_check_rows(int64_t length, int64_t *table, const uint32_t *ids, int64_t id_bytes,
                                   const uint32_t *numbers, int64_t number_bytes, int64_t total_log2,
                                   int64_t vocab_size) {
    const int64_t *sizes = table, *tokens = table + length;
    uint64_t entries = 0;
    if (total_log2 < 0 || total_log2 > MOST_LOG2 || id_bytes != number_bytes) return 1;
    for (int64_t i = 0; i < length; i++) {
        if (sizes[i] < 1 || sizes[i] > vocab_size || (entries += sizes[i]) > (uint64_t)id_bytes / 4) return 1;
    }
    if (entries * 4 != (uint64_t)id_bytes) return 1;
    for (int64_t i = 0; i < length; i++) {
        if (!is_sound(ids, numbers, sizes[i], vocab_size, UINT64_C(1) << total_log2)) return 1;
        table[2 * length + i] = number_of(tokens[i], ids, numbers, sizes[i]);
        if (!table[2 * length + i]) return 1;
        ids += sizes[i];
        numbers += sizes[i];
    }
    return 0;
}
