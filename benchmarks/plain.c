/* Algorithm 1 of Szlak & Shamir (2021) by hand in C: Q-learning, and replay with w ∝ var·e^{−βr} and literal mixing.

It draws the same random numbers in the same order as safereplay, so that the same seed gives the same Q. It does only the
work that the algorithm needs: no counts of visits, replays and outcomes for reports, no checks of a scheme, a constant ε.

    gcc -O3 -march=native -ffp-contract=off -shared -fPIC plain.c -o plain.so -lm
*/

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#ifndef ACTIONS
#define ACTIONS 4
#endif
#define TABLE 65536 /* n^−power is tabulated for smaller n */

static double steps_of[TABLE];

void tabulate(double power) {
    for (int n = 1; n < TABLE; n++) steps_of[n] = pow(n, -power);
}

/* xoshiro256++ (Blackman & Vigna 2021) */
typedef struct { uint64_t a, b, c, d; } Words;

static inline uint64_t rotl(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

static inline double uniform(Words *g) {
    uint64_t word = rotl(g->a + g->d, 23) + g->a, t = g->b << 17;
    g->c ^= g->a;
    g->d ^= g->b;
    g->b ^= g->c;
    g->a ^= g->d;
    g->c ^= t;
    g->d = rotl(g->d, 45);
    return (double)(word >> 11) * 0x1p-53;
}

static inline int below(Words *g, int n) { return (int)(uniform(g) * n); }

/* The outcomes of pair i are first[i], ..., first[i + 1] − 1, sorted by reward. */
typedef struct {
    int32_t n_states, n_starts;
    const int32_t *first, *s_next, *starts;
    const double *p_cum, *r; /* p_cum: running sum of the probabilities within a pair, 1 at its end */
    const uint8_t *ends;
    double gamma;
} Model;

static inline double highest(const double *q) {
    double best = q[0];
    for (int a = 1; a < ACTIONS; a++) best = q[a] > best ? q[a] : best;
    return best;
}

static inline int greedy(const double *q) {
    int best = 0;
    double top = q[0];
    for (int a = 1; a < ACTIONS; a++)
        if (q[a] > top) best = a, top = q[a];
    return best;
}

/* The first entry of cum[k], cum[k + 1], ... that exceeds u. */
static inline int pick(const double *cum, int k, double u) {
    while (cum[k] <= u) k++;
    return k;
}

static inline int sample(const Model *m, int i, Words *g) {
    int k = m->first[i];
    return m->first[i + 1] - k == 1 ? k : pick(m->p_cum, k, uniform(g));
}

static inline void update(const Model *m, double *Q, int64_t *n, double power, int i, int k) {
    int64_t t = ++n[i];
    double alpha = t < TABLE ? steps_of[t] : pow((double)t, -power);
    double best = m->ends[k] ? 0.0 : highest(Q + ACTIONS * m->s_next[k]);
    Q[i] = (1.0 - alpha) * Q[i] + alpha * (m->r[k] + m->gamma * best);
}

/* Q-learning. Q [S·A] must be 0, and n [S·A], the number of updates of each pair. */
void q_learning(const Model *m, double epsilon, double power, long episodes, int max_steps, const uint64_t *words,
                double *Q, int64_t *n) {
    Words g = {words[0], words[1], words[2], words[3]};
    for (long e = 0; e < episodes; e++) {
        int s = m->starts[below(&g, m->n_starts)];
        for (int step = 0; step < max_steps; step++) {
            int explores = (e == 0 && step == 0) || uniform(&g) < epsilon; /* the first iteration only explores */
            int i = ACTIONS * s + (explores ? below(&g, ACTIONS) : greedy(Q + ACTIONS * s)), k = sample(m, i, &g);
            update(m, Q, n, power, i, k);
            if (m->ends[k]) break;
            s = m->s_next[k];
        }
    }
}

/* The shares of the seen outcomes of a pair as a running sum: e^{−βr} for each reward, divided among its next states. */
static void share_out(const Model *m, const uint8_t *seen, double *share, int i, double beta) {
    int first = m->first[i], stop = m->first[i + 1];
    double top = -INFINITY, total = 0.0;
    for (int k = first; k < stop; k++)
        if (seen[k] && -beta * m->r[k] > top) top = -beta * m->r[k];
    for (int k = first, after; k < stop; k = after) {
        double mass = 0.0;
        for (after = k; after < stop && m->r[after] == m->r[k]; after++) mass += seen[after];
        double tilt = exp(-beta * m->r[k] - top);
        for (int j = k; j < after; j++) {
            if (seen[j]) total += tilt / mass;
            share[j] = total;
        }
    }
}

/* The same with replay: each iteration is a replay with probability v. */
void replay(const Model *m, double epsilon, double power, double v, double beta, long episodes, int max_steps,
            const uint64_t *words, double *Q, int64_t *n) {
    Words g = {words[0], words[1], words[2], words[3]};
    int pairs = m->n_states * ACTIONS, outcomes = m->first[pairs], leaves = 1;
    while (leaves < pairs) leaves *= 2;
    double *tree = calloc(2 * leaves, sizeof *tree); /* sums of variances: node j is the sum of nodes 2j and 2j + 1 */
    double *mean = calloc(pairs, sizeof *mean), *squares = calloc(pairs, sizeof *squares);
    int64_t *visits = calloc(pairs, sizeof *visits);
    double *share = calloc(outcomes, sizeof *share);
    uint8_t *seen = calloc(outcomes, 1);
    for (long e = 0; e < episodes; e++) {
        int s = m->starts[below(&g, m->n_starts)];
        for (int step = 0; step < max_steps;) {
            int initial = e == 0 && step == 0; /* the first iteration only explores */
            int i, k;
            if (!initial && uniform(&g) < v && tree[1] > 0.0) {
                double x = uniform(&g) * tree[1];
                int j = 1;
                while (j < leaves) {
                    j *= 2;
                    if (!(x < tree[j]) && tree[j + 1] > 0.0) x -= tree[j++];
                }
                i = j - leaves;
                k = pick(share, m->first[i], uniform(&g) * share[m->first[i + 1] - 1]);
                update(m, Q, n, power, i, k);
                continue;
            }
            i = ACTIONS * s + (initial || uniform(&g) < epsilon ? below(&g, ACTIONS) : greedy(Q + ACTIONS * s));
            k = sample(m, i, &g);
            update(m, Q, n, power, i, k);
            double r = m->r[k], delta = r - mean[i], count = (double)++visits[i];
            mean[i] += delta / count;
            squares[i] += delta * (r - mean[i]);
            if (!seen[k]) {
                seen[k] = 1;
                share_out(m, seen, share, i, beta);
            }
            double var = squares[i] / count;
            if (tree[leaves + i] != var) {
                tree[leaves + i] = var;
                for (int j = leaves + i; j > 1; j /= 2) tree[j / 2] = var += tree[j ^ 1];
            }
            step++;
            if (m->ends[k]) break;
            s = m->s_next[k];
        }
    }
    free(tree), free(mean), free(squares), free(visits), free(share), free(seen);
}
