/*
 * The verdict of the checker and its output, as text and as JSON. What belongs to one check only is
 * printed with that one.
 */
#include <inttypes.h>
#include <jansson.h>

#include "tools/mqbench/verify.h"

static int64_t longest_ms(const struct verify_gap *gap)
{
    return gap->longest_ns / 1000000;
}

/* ---- figures of one check ---- */

struct figure {
    const char *name;
    uint64_t value;
};
enum { FIGURES_MOST = 8 };

/* Those of this run's check; how many. */
static size_t own_figures(const struct verify *v, struct figure figures[FIGURES_MOST])
{
    size_t count = 0;
    switch (v->options->check) {
    case CHECK_PLAIN:
        break;
    case CHECK_ORDERLY:
        figures[count++] = (struct figure){"overlapped", v->overlapped};
        figures[count++] = (struct figure){"moves", v->moves};
        break;
    case CHECK_DELAYED:
        figures[count++] = (struct figure){"early", v->early};
        figures[count++] = (struct figure){"max_late_ms", (uint64_t)v->late_ms};
        figures[count++] = (struct figure){"max_late_in_all_ms", (uint64_t)v->late_in_all_ms};
        break;
    case CHECK_TRANSACTIONAL:
        figures[count++] = (struct figure){"wrongly_delivered", v->unwanted};
        figures[count++] = (struct figure){"rolled_back", v->settled - v->acked};
        figures[count++] = (struct figure){"checks", v->checks};
        figures[count++] = (struct figure){"abandoned", v->abandoned};
        break;
    case CHECK_FILTERED:
        figures[count++] = (struct figure){"wrongly_filtered", v->unwanted + v->withheld};
        figures[count++] = (struct figure){"wrongly_delivered", v->unwanted};
        figures[count++] = (struct figure){"withheld", v->withheld};
        figures[count++] = (struct figure){"delivered_by_tag", v->delivered_by_tag};
        figures[count++] = (struct figure){"delivered_by_condition", v->delivered_by_condition};
        break;
    case CHECK_FAILING:
        figures[count++] = (struct figure){"retried", v->retried};
        figures[count++] = (struct figure){"dead_lettered", v->dead_lettered};
        figures[count++] = (struct figure){"beyond_count", v->beyond_count};
        figures[count++] = (struct figure){"wrongly_dead", v->wrongly_dead};
        figures[count++] = (struct figure){"consumed_and_dead", v->consumed_and_dead};
        figures[count++] = (struct figure){"redelivered_unexplained", v->redelivered_unexplained};
        figures[count++] = (struct figure){"forked", v->forked};
        figures[count++] = (struct figure){"send_backs_unanswered", v->unanswered};
        break;
    }
    return count;
}

static void add_own_figures(const struct verify *v, json_t *json)
{
    struct figure figures[FIGURES_MOST];
    size_t count = own_figures(v, figures);
    for (size_t i = 0; i < count; i++)
        json_object_set_new(json, figures[i].name, json_integer((json_int_t)figures[i].value));
}

static void print_own_figures(const struct verify *v)
{
    struct figure figures[FIGURES_MOST];
    size_t count = own_figures(v, figures);
    for (size_t i = 0; i < count; i++)
        printf("%s%s %" PRIu64, i > 0 ? "  " : "", figures[i].name, figures[i].value);
    if (count > 0)
        putchar('\n');
}

/* ---- all ---- */

static void print_json(const struct verify *v, bool good, uint64_t unacked)
{
    json_t *json = json_pack(
        "{s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "ok", good, "acked",
        (json_int_t)v->acked, "lost", (json_int_t)v->waiting, "duplicated",
        (json_int_t)v->duplicated, "duplicated_unexplained", (json_int_t)v->duplicated_unexplained,
        "redelivered", (json_int_t)v->redelivered, "reordered", (json_int_t)v->reordered, "altered",
        (json_int_t)v->altered, "unacked_but_present", (json_int_t)unacked, "offset_regressions",
        (json_int_t)v->offset_regressions);
    if (json) {
        json_object_set_new(json, "max_gap_ms",
                            json_pack("{s:I, s:I}", "send", (json_int_t)longest_ms(&v->send_gap),
                                      "receive", (json_int_t)longest_ms(&v->receive_gap)));
        json_object_set_new(json, "max_wait_ms", json_integer(longest_ms(&v->wait_gap)));
        json_object_set_new(json, "send_errors", json_integer((json_int_t)v->send_errors));
        json_object_set_new(json, "received", json_integer((json_int_t)v->received));
        add_own_figures(v, json);
        json_dumpf(json, stdout, JSON_COMPACT);
    }
    putchar('\n');
    json_decref(json);
}

static void print_text(const struct verify *v, bool good, uint64_t unacked)
{
    printf("acked %" PRIu64 "  lost %" PRIu64 "  reordered %" PRIu64 "  altered %" PRIu64
           "  duplicated %" PRIu64 " (unexplained %" PRIu64 ")  redelivered %" PRIu64
           "\nunacked_but_present %" PRIu64 "  offset_regressions %" PRIu64 "  send errors %" PRIu64
           "\nmax_gap_ms: send %" PRId64 "  receive %" PRId64 "  max_wait_ms: %" PRId64 "\n%s\n",
           v->acked, v->waiting, v->reordered, v->altered, v->duplicated, v->duplicated_unexplained,
           v->redelivered, unacked, v->offset_regressions, v->send_errors, longest_ms(&v->send_gap),
           longest_ms(&v->receive_gap), longest_ms(&v->wait_gap), good ? "ok" : "FAILED");
    print_own_figures(v);
}

/* Whether nothing was found. Of a transaction that was not acknowledged, nothing ran locally. */
static bool is_good(const struct verify *v, uint64_t unacked)
{
    return v->acked > 0 && !v->waiting && !v->reordered && !v->altered &&
           !v->duplicated_unexplained && !v->offset_regressions && !v->overlapped && !v->unwanted &&
           !v->withheld && !v->early && !v->beyond_count && !v->wrongly_dead &&
           !v->redelivered_unexplained &&
           (v->options->check != CHECK_TRANSACTIONAL || unacked == 0);
}

int verify_report(const struct verify *verify)
{
    uint64_t unacked = verify->seen - (verify->acked - verify->waiting);
    bool good = is_good(verify, unacked);
    bench_progress_end();
    if (verify->options->json)
        print_json(verify, good, unacked);
    else
        print_text(verify, good, unacked);
    fflush(stdout);
    return good ? EXIT_OK : EXIT_NO;
}
