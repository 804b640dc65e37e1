/* Judges a proposal by the token rule or the block rule, as specpair/speculation/verification.py does.

The products of ratios are taken one by one, where numpy adds logarithms: thresholds may differ in their last bits. Each
is a function of the same numbers, so the output is distributed as before. Of the same weights the same token is drawn. */

#include "doubles.h"
#include "drawing.h"
#include "racing.h"
#include <math.h>
#include <stdlib.h>

#define SMALLEST_WEIGHT 1e-250

/* K = `length` tokens that the draft drew, each with its row of counts, and the target's K + 1 rows. */
struct Proposal {
    int64_t length, width;  /* of the vocabulary */
    const float *target;    /* [K + 1][width] */
    const int64_t *sizes;   /* [K]: of the draft's rows */
    const int64_t *tokens;  /* [K] */
    const int64_t *numbers; /* [K]: the tokens' own counts */
    const uint32_t *ids;    /* of the rows, one after the other */
    const uint32_t *counts;
    double unit; /* what one count stands for: a power of 2, so that probabilities are exact */
};

/* A row of the draft. */
struct Row {
    int64_t size;
    const uint32_t *ids, *counts;
};

static struct Row row_of(const struct Proposal *proposal, int64_t index) {
    int64_t first = 0;
    for (int64_t i = 0; i < index; i++) first += proposal->sizes[i];
    return (struct Row){proposal->sizes[index], proposal->ids + first, proposal->counts + first};
}

/* p(x) / q(x) of token `index`. */
static double ratio(const struct Proposal *proposal, int64_t index) {
    double mass = proposal->target[index * proposal->width + proposal->tokens[index]];
    return mass / (proposal->numbers[index] * proposal->unit);
}

/* P_0 .. P_K: P_0 = 1 and P_i = min(1, P_{i-1} r_i). NaN stays. */
static void find_joint(const struct Proposal *proposal, double *joint) {
    joint[0] = 1.0;
    for (int64_t i = 0; i < proposal->length; i++) {
        double product = joint[i] * ratio(proposal, i);
        joint[i + 1] = product > 1.0 ? 1.0 : product;
    }
}

/* sum_x min(P_i p_{i+1}(x), q_{i+1}(x)), a running sum. */
static double overlap(const struct Proposal *proposal, int64_t index, double joint) {
    const float *target = proposal->target + index * proposal->width;
    struct Row row = row_of(proposal, index);
    double sum = 0.0;
    for (int64_t i = 0; i < row.size; i++) sum += smaller(target[row.ids[i]] * joint, row.counts[i] * proposal->unit);
    return sum;
}

/* h_i of the block rule for `count` = i tokens, 1 .. K. */
static double block_threshold(const struct Proposal *proposal, const double *joint, int64_t count) {
    if (count == proposal->length) return joint[count];
    double residual = joint[count] - overlap(proposal, count, joint[count]);
    if (residual < 0.0) residual = 0.0;
    double whole = residual + (1.0 - joint[count]);
    return whole == 0.0 ? 1.0 : residual / whole;
}

/* The last i with u_i < h_i: from the end on, so that most overlaps are never needed. */
static int64_t accepted_in_block(const struct Proposal *proposal, const double *joint, const double *uniforms) {
    int64_t count = proposal->length;
    while (count && !(uniforms[count - 1] < block_threshold(proposal, joint, count))) count--;
    return count;
}

/* The tokens before the first with u_i >= min(1, r_i); u_i is below 1. */
static int64_t accepted_one_by_one(const struct Proposal *proposal, const double *uniforms) {
    int64_t count = 0;
    while (count < proposal->length && uniforms[count] < ratio(proposal, count)) count++;
    return count;
}

static void widen(const float *row, int64_t width, double scale, double *weights) {
    for (int64_t i = 0; i < width; i++) weights[i] = row[i] * scale;
}

/* The residual after `count` tokens, max(scale p - q, 0), or the target's row where it has no mass. */
static void find_residual(const struct Proposal *proposal, int64_t count, double scale, double *weights) {
    const float *target = proposal->target + count * proposal->width;
    widen(target, proposal->width, scale, weights);
    if (count < proposal->length) {
        struct Row row = row_of(proposal, count);
        for (int64_t i = 0; i < row.size; i++) {
            double *weight = weights + row.ids[i];
            *weight -= smaller(*weight, row.counts[i] * proposal->unit);
        }
    }
    if (count < proposal->length && !(largest_weight(weights, proposal->width) > SMALLEST_WEIGHT))
        widen(target, proposal->width, scale, weights);
}

static int is_finite(const struct Proposal *proposal) {
    for (int64_t i = 0; i <= proposal->length; i++) {
        float first = proposal->target[i * proposal->width];
        if (first != first) return 0;
    }
    return 1;
}

static struct Proposal proposal_of(const float *target, int64_t width, int64_t length, const int64_t *table,
                                   const uint32_t *ids, const uint32_t *counts, int64_t total_log2) {
    double unit = 1.0 / (double)(INT64_C(1) << total_log2);
    return (struct Proposal){length, width, target, table, table + length, table + 2 * length, ids, counts, unit};
}

static double scale_after(int64_t count, int64_t length, int64_t is_block, const double *joint) {
    return is_block && count < length ? joint[count] : 1.0;
}

/* Weights as the rates of a race with a sum between 1/2 and 1: scaled by a power of 2, so that rounding of the sum does not
   change who wins. */
static void to_rates(const double *weights, int64_t width, float *rates) {
    double sum = 0.0;
    int exponent;
    for (int64_t i = 0; i < width; i++) sum += weights[i];
    frexp(sum, &exponent);
    double scale = isfinite(sum) ? ldexp(1.0, -exponent) : 1.0;
    for (int64_t i = 0; i < width; i++) rates[i] = (float)(weights[i] * scale);
}

/* Judges a proposal, whose `table` [3][K] has sizes, tokens and their counts, all below `width` and sound, by uniforms [K]
   and the noise of `seed` and `step` for the next token. Writes to `judged` the accepted count, the next token, and whether
   the target's rows are numbers. Returns 0, or 1 if there is no memory. */
EXPORT int64_t specpair_judge(const float *target, int64_t width, int64_t length, const int64_t *table,
                              const uint32_t *ids, const uint32_t *counts, int64_t total_log2, int64_t is_block,
                              const double *uniforms, uint64_t seed, uint64_t step, int64_t *judged) {
    struct Proposal proposal = proposal_of(target, width, length, table, ids, counts, total_log2);
    double *joint = malloc((length + 1 + width) * sizeof *joint + width * sizeof(float));
    if (!joint) return 1;
    double *weights = joint + length + 1;
    float *rates = (float *)(weights + width);
    if (is_block) find_joint(&proposal, joint);
    judged[0] = is_block ? accepted_in_block(&proposal, joint, uniforms) : accepted_one_by_one(&proposal, uniforms);
    double scale = scale_after(judged[0], length, is_block, joint);
    find_residual(&proposal, judged[0], scale, weights);
    to_rates(weights, width, rates);
    judged[1] = first_to_arrive(rates, width, 0, seed, OWN_TOKEN_OF(step), 0);
    judged[2] = is_finite(&proposal);
    free(joint);
    return 0;
}

/* What decides about a proposal, for tests that enumerate it: h_1 .. h_K as `thresholds` [K], and what the next token
   would be drawn from after 0 .. K accepted ones, `residuals` [K + 1][width]. */
EXPORT int64_t specpair_explain(const float *target, int64_t width, int64_t length, const int64_t *table,
                                const uint32_t *ids, const uint32_t *counts, int64_t total_log2, int64_t is_block,
                                double *thresholds, double *residuals) {
    struct Proposal proposal = proposal_of(target, width, length, table, ids, counts, total_log2);
    double *joint = malloc((length + 1) * sizeof *joint);
    if (!joint) return 1;
    find_joint(&proposal, joint);
    for (int64_t i = 0; i < length; i++)
        thresholds[i] = is_block ? block_threshold(&proposal, joint, i + 1) : smaller(1.0, ratio(&proposal, i));
    for (int64_t n = 0; n <= length; n++)
        find_residual(&proposal, n, scale_after(n, length, is_block, joint), residuals + n * width);
    free(joint);
    return 0;
}
