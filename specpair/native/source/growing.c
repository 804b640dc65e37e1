/* Grows whole trees of an EAGLE-3 head in one call: the head's step for the nodes of a level, the likeliest tokens after
each, and so on, as specpair/speculation/trees/ranked_growth.py does level by level. */

#include "chains.h"
#include "eagle.h"
#include "softmax.h"
#include <stdlib.h>

#define LOOKS 8    /* tokens of an outlook: a node's most children */
#define FRONTIER 8 /* nodes of a tree that are fed in one step */
#define ROOT -1
#define NOT_FINITE -1

/* A tree to grow, and what has grown. */
struct Tree {
    int64_t token, position; /* the last committed token, which is fed first, and its position */
    int64_t most_nodes, most_depth;
    uint64_t seed;      /* of the noise that the target chooses with */
    double temperature; /* 0: it takes the likeliest */
    const int64_t *tail; /* [tail_count]: where tokens before the last committed one are, from the segment's start on */
    int64_t tail_count;
    int64_t free;             /* the place of what is fed first; each other node that is fed has the next one */
    int64_t *tokens, *parents; /* [most_nodes]: the heaviest nodes, in the order in which they grew; ROOT has no parent */
    int64_t count;
};

/* What a tree is made of while it grows. Node n is its n-th, and the root ROOT. */
struct Growth {
    int64_t *tokens, *parents, *places; /* [nodes]; places of those that were fed */
    double *weights;
    int64_t *heaviest; /* [most nodes + 1] */
    int64_t node_count, heaviest_count, depth, fed_count, root_place;
    int64_t frontier[FRONTIER], frontier_count, first_row; /* rows of the step, in the frontier's order */
};

struct Growing {
    struct Step step;
    struct Pass pass; /* of the step */
    const struct Segment *begin; /* [trees] */
    struct Tree *trees;
    struct Growth *growths;
    int64_t tree_count, width, longest_path;
    const int64_t *token_ids; /* [width], ascending; null if all tokens have a logit */
    float *hidden, *left, *room; /* [rows][hidden], the same, [threads][width] */
    struct Segment *segments;
    int64_t *fed_ids, *positions, *rows, *paths, *trees_of; /* [rows]; paths [rows][longest_path] */
    struct Outlook *outlooks; /* [rows]; of a row that is not finite its size is NOT_FINITE */
};

static int64_t most_nodes_of(int64_t depth) { return LOOKS * (1 + FRONTIER * (depth - 1)); }

/* What may follow the node of a row. */
static void look(struct Growing *growing, int64_t row, float *room) {
    const struct Tree *tree = growing->trees + growing->trees_of[row];
    const float *logits = growing->pass.logits + row * growing->width;
    struct Outlook *outlook = growing->outlooks + row;
    outlook->size = 0;
    if (tree->temperature == 0.0) {
        if (likeliest_place(logits, growing->width) < 0) outlook->size = NOT_FINITE;
        else look_at(logits, growing->width, growing->token_ids, outlook);
        return;
    }
    soften(logits, growing->width, (float)tree->temperature, room);
    if (room[0] != room[0]) {
        outlook->size = NOT_FINITE;
        return;
    }
    first_to_arrive(room, growing->width, growing->token_ids, tree->seed, (uint64_t)growing->positions[row] + 1,
                    outlook);
}

/* Among the heaviest the earlier of equal nodes comes first, so a parent is among them if a child is. */
static void weigh(struct Growth *growth, int64_t node, int64_t most) {
    double weight = growth->weights[node];
    int64_t *heaviest = growth->heaviest, place = growth->heaviest_count;
    if (!(weight > 0.0)) return;
    for (; place && growth->weights[heaviest[place - 1]] < weight; place--) heaviest[place] = heaviest[place - 1];
    heaviest[place] = node;
    if (growth->heaviest_count < most) growth->heaviest_count++;
}

/* Adds what may follow the nodes of the frontier, unless a row is not finite: then the tree is what it has. */
static void extend(const struct Tree *tree, struct Growth *growth, const struct Outlook *outlooks) {
    int64_t first = growth->node_count, frontier_count = growth->frontier_count;
    growth->frontier_count = 0;
    for (int64_t i = 0; i < frontier_count; i++)
        if (outlooks[i].size == NOT_FINITE) return;
    for (int64_t i = 0; i < frontier_count; i++) {
        int64_t parent = growth->frontier[i];
        double weight = parent == ROOT ? 1.0 : growth->weights[parent];
        for (int64_t child = 0; child < outlooks[i].size; child++) {
            int64_t node = growth->node_count++;
            growth->tokens[node] = outlooks[i].tokens[child];
            growth->parents[node] = parent;
            growth->weights[node] = weight * outlooks[i].speeds[child];
            weigh(growth, node, tree->most_nodes);
        }
    }
    if (++growth->depth == tree->most_depth) return;
    for (int64_t i = 0; i < growth->heaviest_count && growth->frontier_count < FRONTIER; i++)
        if (growth->heaviest[i] >= first) growth->frontier[growth->frontier_count++] = growth->heaviest[i];
}

/* Where the cache has the tokens up to the one of a row, from the segment's start on. */
static void write_path(const struct Tree *tree, const struct Growth *growth, int64_t node, int64_t place, int64_t *path) {
    memcpy(path, tree->tail, tree->tail_count * sizeof *path);
    path += tree->tail_count;
    path[growth->depth] = place;
    for (int64_t level = growth->depth - 1; level > 0; level--) {
        node = growth->parents[node];
        path[level] = growth->places[node];
    }
    path[0] = growth->root_place;
}

/* Has the next step feed a node of a tree as this row. */
static void feed(struct Growing *growing, int64_t index, int64_t node, int64_t row, const float *before) {
    const struct Tree *tree = growing->trees + index;
    struct Growth *growth = growing->growths + index;
    int64_t width = growing->step.head->decoder.hidden, place = tree->free + growth->fed_count++;
    int64_t *path = growing->paths + row * growing->longest_path;
    if (node == ROOT) growth->root_place = place;
    else growth->places[node] = place;
    write_path(tree, growth, node, place, path);
    growing->segments[row] = growing->begin[index];
    growing->segments[row].count = 1;
    growing->segments[row].first = growing->rows[row] = row;
    growing->segments[row].paths = path;
    growing->fed_ids[row] = node == ROOT ? tree->token : growth->tokens[node];
    growing->positions[row] = tree->position + growth->depth;
    growing->trees_of[row] = index;
    memcpy(growing->hidden + row * width, before, width * sizeof *before);
}

/* The row of the last step that fed a node. */
static int64_t row_of(const struct Growth *growth, const int64_t *frontier, int64_t node) {
    int64_t row = growth->first_row;
    while (*frontier++ != node) row++;
    return row;
}

/* Extends all trees by a level, and makes the step for the next one. */
static void grow(struct Growing *growing) {
    int64_t rows = 0, width = growing->step.head->decoder.hidden;
    for (int64_t index = 0; index < growing->tree_count; index++) {
        struct Growth *growth = growing->growths + index;
        int64_t fed[FRONTIER], first_row = rows;
        if (!growth->frontier_count) continue;
        memcpy(fed, growth->frontier, sizeof fed);
        extend(growing->trees + index, growth, growing->outlooks + growth->first_row);
        for (int64_t i = 0; i < growth->frontier_count; i++) {
            int64_t node = growth->frontier[i], parent = row_of(growth, fed, growth->parents[node]);
            feed(growing, index, node, rows++, growing->left + parent * width);
        }
        growth->first_row = first_row;
    }
    growing->pass.token_count = growing->pass.segment_count = growing->pass.row_count = rows;
}

static void run_growing(const void *work, struct Meeting *meeting, int thread, int threads) {
    struct Growing *growing = *(struct Growing *const *)work; /* the first thread changes it while the others wait */
    while (growing->pass.token_count) {
        run_step(&growing->step, meeting, thread, threads);
        meet(meeting, threads);
        for (int64_t row = thread; row < growing->pass.token_count; row += threads)
            look(growing, row, growing->room + thread * growing->width);
        meet(meeting, threads);
        if (thread == 0) grow(growing);
        meet(meeting, threads);
    }
}

/* The heaviest nodes of a growth, in the order in which they grew. */
static void finish_tree(struct Tree *tree, struct Growth *growth) {
    int64_t *kept = growth->heaviest, *renamed = growth->places;
    for (int64_t i = 1; i < growth->heaviest_count; i++) {
        int64_t node = kept[i], place = i;
        for (; place && kept[place - 1] > node; place--) kept[place] = kept[place - 1];
        kept[place] = node;
    }
    tree->count = growth->heaviest_count;
    for (int64_t i = 0; i < tree->count; i++) {
        renamed[kept[i]] = i;
        tree->tokens[i] = growth->tokens[kept[i]];
        tree->parents[i] = growth->parents[kept[i]] == ROOT ? ROOT : renamed[growth->parents[kept[i]]];
    }
}

/* One allocation for everything. Without a base its parts are only counted. */
struct Memory {
    char *base;
    int64_t used;
};

static void *take(struct Memory *memory, int64_t count, size_t size) {
    char *part = memory->base ? memory->base + memory->used : 0;
    memory->used += (count * size + 7) / 8 * 8;
    return part;
}

/* Gives a growth its memory, in which it begins with its root. */
static void begin(const struct Tree *tree, struct Growth *growth, int64_t index, struct Memory *memory) {
    int64_t nodes = most_nodes_of(tree->most_depth);
    struct Growth begun = {.frontier = {ROOT}, .frontier_count = 1, .first_row = index};
    begun.tokens = take(memory, nodes, sizeof(int64_t));
    begun.parents = take(memory, nodes, sizeof(int64_t));
    begun.places = take(memory, nodes, sizeof(int64_t));
    begun.weights = take(memory, nodes, sizeof(double));
    begun.heaviest = take(memory, tree->most_nodes + 1, sizeof(int64_t));
    if (memory->base) *growth = begun;
}

/* Points to the memory of all trees, and of all rows of a step. */
static void share_out(struct Growing *growing, struct Memory *memory, int64_t rows, int64_t threads) {
    int64_t width = growing->step.head->decoder.hidden;
    growing->growths = take(memory, growing->tree_count, sizeof *growing->growths);
    growing->segments = take(memory, rows, sizeof *growing->segments);
    growing->outlooks = take(memory, rows, sizeof *growing->outlooks);
    growing->fed_ids = take(memory, rows, sizeof(int64_t));
    growing->positions = take(memory, rows, sizeof(int64_t));
    growing->rows = take(memory, rows, sizeof(int64_t));
    growing->trees_of = take(memory, rows, sizeof(int64_t));
    growing->paths = take(memory, rows * growing->longest_path, sizeof(int64_t));
    growing->hidden = take(memory, rows * width, sizeof(float));
    growing->left = take(memory, rows * width, sizeof(float));
    growing->pass.logits = take(memory, rows * growing->width, sizeof(float));
    growing->room = take(memory, threads * growing->width, sizeof(float));
    int64_t *looked_at = take(memory, rows * LOOKS, sizeof(int64_t));
    double *shares = take(memory, rows * LOOKS, sizeof(double));
    for (int64_t i = 0; i < growing->tree_count; i++) begin(growing->trees + i, growing->growths + i, i, memory);
    for (int64_t row = 0; memory->base && row < rows; row++)
        growing->outlooks[row] = (struct Outlook){LOOKS, 0, looked_at + row * LOOKS, shares + row * LOOKS};
}

/* Grows some trees in one call, from the hidden states [trees][width] of the tokens before their last committed ones.
   `begin` [trees] says where the tokens of each are. `pass` has the threads, and memory for FRONTIER tokens of each tree.
   Returns 0, or 1 if there is no memory. */
EXPORT int64_t specpair_head_trees(const struct Eagle *head, const struct Pass *pass, struct Tree *trees, int64_t count,
                                   const int64_t *token_ids, const struct Segment *begins, const float *hidden) {
    int64_t rows = 0, width = head->decoder.hidden, threads = pass->thread_count;
    struct Growing growing = {.pass = *pass, .begin = begins, .trees = trees, .tree_count = count};
    growing.step = (struct Step){head, &growing.pass, 0, 0};
    growing.width = head->decoder.head.out;
    growing.token_ids = token_ids;
    for (int64_t i = 0; i < count; i++) {
        int64_t path = trees[i].tail_count + trees[i].most_depth;
        if (path > growing.longest_path) growing.longest_path = path;
        rows += trees[i].most_depth > 1 ? FRONTIER : 1;
    }
    struct Memory counted = {0}, memory = {0};
    share_out(&growing, &counted, rows, threads);
    memory.base = malloc(counted.used);
    if (!memory.base) return 1;
    share_out(&growing, &memory, rows, threads);
    growing.step.hidden = growing.hidden;
    growing.step.left = growing.left;
    growing.pass.token_ids = growing.fed_ids;
    growing.pass.positions = growing.positions;
    growing.pass.rows = growing.rows;
    growing.pass.segments = growing.segments;
    growing.pass.token_count = growing.pass.segment_count = growing.pass.row_count = count;
    for (int64_t i = 0; i < count; i++) feed(&growing, i, ROOT, i, hidden + i * width);
    struct Growing *shared = &growing;
    run_together(run_growing, &shared, threads);
    for (int64_t i = 0; i < count; i++) finish_tree(trees + i, growing.growths + i);
    free(memory.base);
    return 0;
}
