/* Chooses with Gumbel noise, as specpair/speculation/gumbel.py does, which explains the race. The leader of a row is known
by the upper bits of its noise at first; the lower bits are drawn when another may be before it. */

#include "racing.h"
#include "philox.h"
#include "threads.h"
#include <math.h>
#include <stdlib.h>

#define BITS 53
#define UPPER_BITS 16
#define LOWER_BITS (BITS - UPPER_BITS)
#define UPPER_UNIT (1.0 / (1 << UPPER_BITS))
#define UNIT (1.0 / (double)(INT64_C(1) << BITS))
#define GUMBEL 4 /* the domains of the words with upper and with lower bits */
#define GUMBEL_LOWER 5
#define BLOCK_TOKENS (BLOCK_WORDS * 64 / UPPER_BITS)
#define PART 2048 /* tokens whose upper bits are made at a time: they stay in the nearest cache */
#define STRIDE 4  /* registers that are looked at together */

static const double LIMITS[] = {8.0, 512.0, INFINITY};

/* Upper bits of tokens that follow each other. */
union Uppers {
    uint64_t words[PART * UPPER_BITS / 64];
    uint16_t of[PART];
};

/* A row and the token that leads in it. */
struct Racer {
    const float *rates;
    const int64_t *token_ids; /* or null */
    uint64_t seed, position;
    struct Racer *next; /* another row with the same noise, or null */
    int64_t is_first;   /* of those with its noise */
    struct Outlook *outlook; /* or null */
    int64_t place;
    uint64_t upper;
    double rate, earliest, latest; /* when the leader may arrive; both the same once its lower bits are drawn */
};

INLINE int64_t least(int64_t left, int64_t right) { return left < right ? left : right; }

/* -log(1 - u) of a uniform number u. */
static double arrival(double uniform) { return -log1p(-uniform); }

static int64_t token_at(const struct Racer *racer, int64_t place) {
    return racer->token_ids ? racer->token_ids[place] : place;
}

/* When a token arrives, by all bits of its noise. */
static double exact_time(const struct Racer *racer, int64_t place, uint64_t upper, double rate) {
    int64_t token = token_at(racer, place);
    uint64_t words[BLOCK_WORDS];
    fill_block((struct Stream){racer->seed, GUMBEL_LOWER, racer->position}, token / BLOCK_WORDS, words);
    uint64_t lower = words[token % BLOCK_WORDS] >> (64 - LOWER_BITS);
    double time = arrival((double)(int64_t)(upper << LOWER_BITS | lower) * UNIT), never_zero = 0.5 * UNIT;
    return (time > never_zero ? time : never_zero) / rate;
}

static void finish(struct Racer *racer) {
    if (racer->earliest == racer->latest) return;
    racer->earliest = racer->latest = exact_time(racer, racer->place, racer->upper, racer->rate);
}

static void look(struct Outlook *outlook, int64_t token, uint64_t upper, double rate) {
    double middle = ((double)upper + 0.5) * UPPER_UNIT, *speeds = outlook->speeds;
    int64_t i = outlook->size;
    if (i == outlook->most && rate <= speeds[i - 1] * middle) return; /* an arrival is not before its uniform number */
    double speed = rate / arrival(middle);
    if (i < outlook->most) outlook->size++;
    else if (speed <= speeds[--i]) return;
    for (; i && speeds[i - 1] < speed; i--) {
        speeds[i] = speeds[i - 1];
        outlook->tokens[i] = outlook->tokens[i - 1];
    }
    speeds[i] = speed;
    outlook->tokens[i] = token;
}

/* Lets a token race with the leader. Of tokens that arrive together the last one wins. */
static void enter(struct Racer *racer, int64_t place, uint64_t upper, double rate) {
    if (!(rate > 0.0)) return;
    if (racer->outlook) look(racer->outlook, token_at(racer, place), upper, rate);
    if ((double)upper * UPPER_UNIT > racer->latest * rate) return; /* as above */
    double earliest = arrival((double)upper * UPPER_UNIT) / rate;
    if (earliest > racer->latest) return;
    double latest = arrival((double)(upper + 1) * UPPER_UNIT) / rate;
    if (!(latest < racer->earliest)) {
        finish(racer);
        earliest = latest = exact_time(racer, place, upper, rate);
        if (latest > racer->latest) return;
    }
    racer->place = place;
    racer->upper = upper;
    racer->rate = rate;
    racer->earliest = earliest;
    racer->latest = latest;
}

/* A bit for each of WIDTH tokens, whether its upper bits are at most its rate times `scale`. */
INLINE uint32_t in_time(floats rates, const uint16_t *uppers, float scale) {
    halves own = (halves)*(const halves_at *)uppers;
#if defined(__AVX512F__) /* GCC would convert these by halves, and compare into a register */
    __m512 wide = _mm512_cvtepi32_ps(_mm512_cvtepu16_epi32((__m256i)own));
    return _mm512_cmp_ps_mask(wide, (__m512)(rates * scale), _CMP_LE_OQ);
#else
    floats wide = __builtin_convertvector(__builtin_convertvector(own, integers), floats);
    return bits_of(wide <= rates * scale);
#endif
}

INLINE void enter_some(struct Racer *racer, int64_t first, const uint16_t *uppers, uint32_t chosen) {
    for (; chosen; chosen &= chosen - 1) {
        int i = __builtin_ctz(chosen);
        enter(racer, first + i, uppers[i], racer->rates[first + i]);
    }
}

/* Has the tokens at `count` places race that may arrive by the limit, which their upper bits say. */
static void enter_part(struct Racer *racer, int64_t first, int64_t count, const uint16_t *uppers, double limit) {
    const float *rates = racer->rates + first;
    float scale = (float)(limit * (1 << UPPER_BITS));
    int64_t i = 0;
    for (; i + STRIDE * WIDTH <= count; i += STRIDE * WIDTH) {
        uint32_t found[STRIDE];
#pragma GCC unroll 4
        for (int s = 0; s < STRIDE; s++)
            found[s] = in_time((floats)*(const floats_at *)(rates + i + s * WIDTH), uppers + i + s * WIDTH, scale);
        if (!(found[0] | found[1] | found[2] | found[3])) continue;
#pragma GCC unroll 4
        for (int s = 0; s < STRIDE; s++)
            enter_some(racer, first + i + s * WIDTH, uppers + i + s * WIDTH, found[s]);
    }
    for (; i < count; i += WIDTH) {
        uint32_t found = in_time(load(rates + i, 0, count - i), uppers + i, scale);
        if (count - i < WIDTH) found &= (1u << (count - i)) - 1; /* rates beyond the row are 0, as upper bits may be */
        enter_some(racer, first + i, uppers + i, found);
    }
}

/* The upper bits of tokens first .. first + count - 1; `first` begins a block. */
static void fill_uppers(const struct Racer *racer, int64_t first, int64_t count, union Uppers *to) {
    struct Stream stream = {racer->seed, GUMBEL, racer->position};
    int64_t block = first / BLOCK_TOKENS;
    for (int64_t i = 0; i * BLOCK_TOKENS < count; i += BLOCKS_AT_ONCE)
        fill_blocks(stream, block + i, to->words + i * BLOCK_WORDS);
}

/* Runs the race of a row [width] and of those with the same noise up to a limit. */
static void race_together(struct Racer *racer, int64_t width, double limit) {
    union Uppers uppers;
    for (int64_t first = 0; first < width; first += PART) {
        int64_t count = least(PART, width - first);
        fill_uppers(racer, first, count, &uppers);
        for (struct Racer *own = racer; own; own = own->next) enter_part(own, first, count, uppers.of, limit);
    }
}

/* The same for a row whose places are tokens that are listed. */
static void race_listed(struct Racer *racer, int64_t width, double limit) {
    union Uppers uppers, listed;
    for (int64_t place = 0; place < width;) {
        int64_t first = racer->token_ids[place] / PART * PART, begin = place;
        fill_uppers(racer, first, PART, &uppers);
        for (; place < width && racer->token_ids[place] < first + PART; place++)
            listed.of[place - begin] = uppers.of[racer->token_ids[place] - first];
        enter_part(racer, begin, place - begin, listed.of, limit);
    }
}

static void race_up_to(struct Racer *racer, int64_t width, double limit) {
    if (racer->token_ids) race_listed(racer, width, limit);
    else race_together(racer, width, limit);
}

/* Goes on with a row after the first limit, until the leader arrives before a limit. */
static void race_on(struct Racer *racer, int64_t width) {
    racer->outlook = 0;
    racer->next = 0;
    for (const double *limit = LIMITS;; limit++) {
        if (racer->latest <= *limit) return;
        finish(racer);
        if (racer->latest <= *limit || *limit == INFINITY) return;
        race_up_to(racer, width, limit[1]);
    }
}

static struct Racer racer_of(const float *rates, uint64_t seed, uint64_t position) {
    struct Racer racer = {.rates = rates, .seed = seed, .position = position, .is_first = 1};
    racer.earliest = racer.latest = INFINITY;
    return racer;
}

static void weigh(struct Outlook *outlook) {
    double sum = 0.0;
    for (int64_t i = 0; i < outlook->size; i++) sum += outlook->speeds[i];
    for (int64_t i = 0; i < outlook->size; i++) outlook->speeds[i] /= sum;
}

int64_t first_to_arrive(const float *rates, int64_t width, const int64_t *token_ids, uint64_t seed, uint64_t position,
                        struct Outlook *outlook) {
    struct Racer racer = racer_of(rates, seed, position);
    racer.token_ids = token_ids;
    racer.outlook = outlook;
    race_up_to(&racer, width, LIMITS[0]);
    race_on(&racer, width);
    if (outlook) weigh(outlook);
    return racer.place;
}

struct Races {
    struct Racer *racers;
    int64_t count, width;
    int64_t *winners;
};

static void race_some(const void *work, struct Meeting *meeting, int thread, int threads) {
    const struct Races *races = work;
    (void)meeting;
    int64_t noises = 0; /* rows with the same noise are together, and each thread takes as many noises */
    for (int64_t r = 0; r < races->count; r++) {
        struct Racer *racer = races->racers + r, *next;
        if (!racer->is_first || noises++ % threads != thread) continue;
        race_together(racer, races->width, LIMITS[0]);
        for (; racer; racer = next) {
            next = racer->next;
            race_on(racer, races->width);
            races->winners[racer - races->racers] = racer->place;
        }
    }
}

/* Joins rows with the same noise: branches of one sequence at one position. */
static void join(struct Racer *racers, int64_t count) {
    for (int64_t r = 0; r < count; r++)
        for (int64_t other = r + 1; other < count; other++) {
            if (racers[other].position != racers[r].position || racers[other].seed != racers[r].seed) continue;
            racers[r].next = racers + other;
            racers[other].is_first = 0;
            break;
        }
}

/* The winners [count] of rows of rates [count][width], each by the noise of its seed and position, by so many threads.
   If `most` is above 0, also the first tokens of each row, at most so many, with their shares: [count][most], and how many
   there are. Returns 0, or 1 if there is no memory. */
EXPORT int64_t specpair_race(const float *rates, int64_t count, int64_t width, const uint64_t *seeds,
                             const uint64_t *positions, int64_t thread_count, int64_t *winners, int64_t most,
                             int64_t *tokens, double *shares, int64_t *sizes) {
    struct Racer *racers = malloc(count * (sizeof *racers + sizeof(struct Outlook)));
    if (!racers) return 1;
    struct Outlook *outlooks = (struct Outlook *)(racers + count);
    for (int64_t r = 0; r < count; r++) {
        racers[r] = racer_of(rates + r * width, seeds[r], positions[r]);
        if (!most) continue;
        outlooks[r] = (struct Outlook){most, 0, tokens + r * most, shares + r * most};
        racers[r].outlook = outlooks + r;
    }
    join(racers, count);
    struct Races races = {racers, count, width, winners};
    run_together(race_some, &races, thread_count);
    for (int64_t r = 0; most && r < count; r++) {
        weigh(outlooks + r);
        sizes[r] = outlooks[r].size;
    }
    free(racers);
    return 0;
}

/* The first tokens to arrive, at most `most`, of a row of counts [size], in the race for the target's own token of a step, with their shares:
   by their upper bits alone. Ids may be in any order; where they ascend, noise is made once. Returns how many there are. */
EXPORT int64_t specpair_foresee(const uint32_t *ids, const uint32_t *counts, int64_t size, uint64_t seed, uint64_t step,
                                int64_t most, int64_t *tokens, double *shares) {
    struct Outlook outlook = {most, 0, tokens, shares};
    struct Stream stream = {seed, GUMBEL, OWN_TOKEN_OF(step)};
    union Uppers uppers;
    int64_t block = -1;
    for (int64_t i = 0; i < size; i++) {
        if (ids[i] / BLOCK_TOKENS != block) fill_block(stream, block = ids[i] / BLOCK_TOKENS, uppers.words);
        look(&outlook, ids[i], uppers.of[ids[i] % BLOCK_TOKENS], counts[i]);
    }
    weigh(&outlook);
    return outlook.size;
}
