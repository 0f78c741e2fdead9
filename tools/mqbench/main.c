/* mqbench: the command line. */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/mqbench/bench.h"

static const struct mode {
    const char *name;
    bench_mode_fn run;
    bool needs_topic;
    const char *help;
} modes[] = {
    {"echo", bench_echo, false, "the bare transport between two processes, nothing stored"},
    {"produce", bench_produce, true, "send messages"},
    {"consume", bench_consume, true, "receive what the topic holds with a push consumer"},
    {"pingpong", bench_pingpong, true, "one message at a time from producer to consumer"},
    {"verify", bench_verify, true, "check that nothing acknowledged is lost, reordered or altered"},
};

static void usage(FILE *out)
{
    fputs("usage: mqbench MODE [options]\n\nmodes:\n", out);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
        fprintf(out, "  %-10s %s\n", modes[i].name, modes[i].help);
    fputs(
        "\noptions:\n"
        "  -n, --namesrvAddr LIST  nameservers, host:port separated by ';' (NAMESRV_ADDR, else\n"
        "                          127.0.0.1:9876)\n"
        "  -t, --topic TOPIC       made when absent\n"
        "      --size B            bytes of a body (1024)\n"
        "      --count N           messages to send or receive\n"
        "      --seconds S         how long to go on (5, when no count is given)\n"
        "      --mode M            produce, echo: sync, async, oneway or batch (sync)\n"
        "      --batch N           messages in a frame; in a pull for consume (64)\n"
        "      --in-flight N       frames under way: sync 1, async 128, batch 8\n"
        "      --compress TYPE     produce: none, zlib, lz4 or zstd, of bodies like JSON (none)\n"
        "      --producers N       senders in this process (1)\n"
        "      --queues N          queues per broker of a topic that is made (4)\n"
        "      --group G           consumer group (consume, verify: a new one)\n"
        "      --hold              consume: the first batch stays unfinished to the end, so that\n"
        "                          progress of its queue stands while the others go on\n"
        "      --state F           verify: keep what was acknowledged in F; with an existing F,\n"
        "                          check what an earlier run sent\n"
        "      --from-slave        verify: read from the sets' slaves, not through a group\n"
        "      --orderly           verify: read by orderly members that come and go\n"
        "      --delayed MS        verify: messages due up to MS ahead, none may come early\n"
        "      --transactional     verify: transactions, of producers that come and go\n"
        "      --filter            verify: read by tag and by SQL92 condition, too\n"
        "      --fail-rate P       verify: listeners fail at P percent of the deliveries\n"
        "      --drain S           verify: give up when nothing comes for so long (30)\n"
        "      --seed N            verify: seed of sizes and contents (random, printed)\n"
        "      --json              figures as JSON\n"
        "      --version, --help\n\n"
        "example: mqbench produce -n 127.0.0.1:9876 -t Bench --mode batch --seconds 5 --json\n"
        "exit status: 0 done, 1 errors or the check failed, 2 wrong usage, 3 nobody reached\n",
        out);
}

static int wrong(const char *option, const char *value, const char *allowed)
{
    fprintf(stderr, "mqbench: --%s: '%s' is not %s\n", option, value, allowed);
    return EXIT_USAGE;
}

static bool parse_int(const char *text, int64_t min, int64_t max, int64_t *out)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < min || value > max)
        return false;
    *out = value;
    return true;
}

static bool parse_seconds(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && !*end && *out > 0 && *out <= 86400;
}

enum {
    OPT_SIZE = 256,
    OPT_COUNT,
    OPT_SECONDS,
    OPT_MODE,
    OPT_BATCH,
    OPT_IN_FLIGHT,
    OPT_COMPRESS,
    OPT_PRODUCERS,
    OPT_QUEUES,
    OPT_GROUP,
    OPT_HOLD,
    OPT_STATE,
    OPT_FROM_SLAVE,
    OPT_ORDERLY,
    OPT_DELAYED,
    OPT_TRANSACTIONAL,
    OPT_FILTER,
    OPT_FAIL_RATE,
    OPT_DRAIN,
    OPT_SEED,
    OPT_JSON,
    OPT_VERSION
};

static const struct option long_options[] = {
    {"namesrvAddr", required_argument, NULL, 'n'},
    {"topic", required_argument, NULL, 't'},
    {"size", required_argument, NULL, OPT_SIZE},
    {"count", required_argument, NULL, OPT_COUNT},
    {"seconds", required_argument, NULL, OPT_SECONDS},
    {"mode", required_argument, NULL, OPT_MODE},
    {"batch", required_argument, NULL, OPT_BATCH},
    {"in-flight", required_argument, NULL, OPT_IN_FLIGHT},
    {"compress", required_argument, NULL, OPT_COMPRESS},
    {"producers", required_argument, NULL, OPT_PRODUCERS},
    {"queues", required_argument, NULL, OPT_QUEUES},
    {"group", required_argument, NULL, OPT_GROUP},
    {"hold", no_argument, NULL, OPT_HOLD},
    {"state", required_argument, NULL, OPT_STATE},
    {"from-slave", no_argument, NULL, OPT_FROM_SLAVE},
    {"orderly", no_argument, NULL, OPT_ORDERLY},
    {"delayed", required_argument, NULL, OPT_DELAYED},
    {"transactional", no_argument, NULL, OPT_TRANSACTIONAL},
    {"filter", no_argument, NULL, OPT_FILTER},
    {"fail-rate", required_argument, NULL, OPT_FAIL_RATE},
    {"drain", required_argument, NULL, OPT_DRAIN},
    {"seed", required_argument, NULL, OPT_SEED},
    {"json", no_argument, NULL, OPT_JSON},
    {"version", no_argument, NULL, OPT_VERSION},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* One option with a number; -1: not one of these. */
static int number_option(struct bench_options *o, int option, const char *value)
{
    int64_t seed;
    switch (option) {
    case OPT_SIZE:
        return parse_int(value, 0, 64 << 20, &o->size_bytes)
                   ? 0
                   : wrong("size", value, "in 0..67108864");
    case OPT_COUNT:
        return parse_int(value, 1, INT64_MAX, &o->count) ? 0 : wrong("count", value, "above 0");
    case OPT_SECONDS:
        return parse_seconds(value, &o->seconds) ? 0 : wrong("seconds", value, "in 0..86400");
    case OPT_DRAIN:
        return parse_seconds(value, &o->drain_seconds) ? 0 : wrong("drain", value, "in 0..86400");
    case OPT_BATCH:
        return parse_int(value, 1, 1024, &o->batch) ? 0 : wrong("batch", value, "in 1..1024");
    case OPT_IN_FLIGHT:
        return parse_int(value, 1, 4096, &o->in_flight) ? 0
                                                        : wrong("in-flight", value, "in 1..4096");
    case OPT_PRODUCERS:
        return parse_int(value, 1, 64, &o->producers) ? 0 : wrong("producers", value, "in 1..64");
    case OPT_QUEUES:
        return parse_int(value, 1, 1024, &o->queues) ? 0 : wrong("queues", value, "in 1..1024");
    case OPT_SEED:
        if (!parse_int(value, 1, INT64_MAX, &seed))
            return wrong("seed", value, "above 0");
        o->seed = (uint64_t)seed;
        return 0;
    default:
        return -1;
    }
}

static int mode_option(struct bench_options *o, const char *value)
{
    static const char *const names[] = {"sync", "async", "oneway", "batch"};
    for (int i = 0; i < 4; i++)
        if (!strcmp(value, names[i])) {
            o->mode = (enum send_mode)i;
            o->mode_given = true;
            return 0;
        }
    return wrong("mode", value, "sync, async, oneway or batch");
}

static int compress_option(struct bench_options *o, const char *value)
{
    static const char *const names[] = {[TERN_COMPRESS_NONE] = "none",
                                        [TERN_COMPRESS_ZLIB] = "zlib",
                                        [TERN_COMPRESS_LZ4] = "lz4",
                                        [TERN_COMPRESS_ZSTD] = "zstd"};
    for (int i = 0; i < 4; i++)
        if (!strcmp(value, names[i])) {
            o->compression = (enum tern_compression)i;
            return 0;
        }
    return wrong("compress", value, "none, zlib, lz4 or zstd");
}

/* What verify checks: one thing a run. */
static int check_option(struct bench_options *o, int option, const char *value)
{
    enum bench_check check = option == OPT_ORDERLY         ? CHECK_ORDERLY
                             : option == OPT_DELAYED       ? CHECK_DELAYED
                             : option == OPT_TRANSACTIONAL ? CHECK_TRANSACTIONAL
                             : option == OPT_FAIL_RATE     ? CHECK_FAILING
                                                           : CHECK_FILTERED;
    if (o->check != CHECK_PLAIN && o->check != check) {
        fprintf(stderr, "mqbench: --orderly, --delayed, --transactional, --filter, --fail-rate: a "
                        "run checks one of them; see mqbench --help\n");
        return EXIT_USAGE;
    }
    o->check = check;
    if (option == OPT_DELAYED && !parse_int(value, 1, 86400000, &o->delayed_ms))
        return wrong("delayed", value, "in 1..86400000");
    if (option == OPT_FAIL_RATE && !parse_int(value, 1, 99, &o->fail_percent))
        return wrong("fail-rate", value, "in 1..99");
    return EXIT_OK;
}

/* Options that exclude each other. */
static int check_together(const struct bench_options *o)
{
    if ((o->check == CHECK_ORDERLY || o->check == CHECK_FAILING) && o->from_slave) {
        fprintf(stderr,
                "mqbench: --%s reads through a group, --from-slave does not: give one of "
                "them; see mqbench --help\n",
                o->check == CHECK_ORDERLY ? "orderly" : "fail-rate");
        return EXIT_USAGE;
    }
    if ((o->check == CHECK_DELAYED || o->check == CHECK_TRANSACTIONAL) && o->mode == MODE_BATCH) {
        fprintf(stderr, "mqbench: --mode batch: delayed and transactional messages travel alone, "
                        "leave it out; see mqbench --help\n");
        return EXIT_USAGE;
    }
    return EXIT_OK;
}

/* PARSED: go on; else the exit status. */
enum { PARSED = -1 };

static int parse_options(int argc, char **argv, struct bench_options *o)
{
    int option, status;
    while ((option = getopt_long(argc, argv, "n:t:h", long_options, NULL)) != -1) {
        switch (option) {
        case 'n':
            o->namesrv = optarg;
            break;
        case 't':
            o->topic = optarg;
            break;
        case 'h':
            usage(stdout);
            return EXIT_OK;
        case OPT_VERSION:
            printf("mqbench %s\n", tern_version());
            return EXIT_OK;
        case OPT_GROUP:
            o->group = optarg;
            break;
        case OPT_STATE:
            o->state_path = optarg;
            break;
        case OPT_FROM_SLAVE:
            o->from_slave = true;
            break;
        case OPT_HOLD:
            o->hold = true;
            break;
        case OPT_ORDERLY:
        case OPT_DELAYED:
        case OPT_TRANSACTIONAL:
        case OPT_FILTER:
        case OPT_FAIL_RATE:
            if ((status = check_option(o, option, optarg)) != EXIT_OK)
                return status;
            break;
        case OPT_JSON:
            o->json = true;
            break;
        case OPT_COMPRESS:
            if ((status = compress_option(o, optarg)) != EXIT_OK)
                return status;
            break;
        case OPT_MODE:
            if ((status = mode_option(o, optarg)))
                return status;
            break;
        case '?':
            return EXIT_USAGE;
        default:
            if ((status = number_option(o, option, optarg)))
                return status;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "mqbench: unexpected argument '%s'; see mqbench --help\n", argv[optind]);
        return EXIT_USAGE;
    }
    return PARSED;
}

int main(int argc, char **argv)
{
    struct bench_options options = {
        .size_bytes = 1024, .batch = 64, .producers = 1, .queues = 4, .drain_seconds = 30};
    const struct mode *mode = NULL;
    for (size_t i = 0; argc > 1 && i < sizeof modes / sizeof modes[0]; i++)
        if (!strcmp(argv[1], modes[i].name))
            mode = &modes[i];
    if (argc > 1 && !mode && argv[1][0] != '-') {
        fprintf(stderr, "mqbench: unknown mode '%s'; see mqbench --help\n", argv[1]);
        return EXIT_USAGE;
    }
    int status = parse_options(mode ? argc - 1 : argc, mode ? argv + 1 : argv, &options);
    if (status != PARSED)
        return status;
    if (!mode || (mode->needs_topic && !options.topic)) {
        fprintf(stderr, "mqbench: %s; see mqbench --help\n",
                mode ? "-t TOPIC is required" : "a mode is required");
        return EXIT_USAGE;
    }
    if ((status = check_together(&options)) != EXIT_OK)
        return status;
    if (!options.namesrv)
        options.namesrv = getenv("NAMESRV_ADDR");
    if (!options.namesrv || !options.namesrv[0])
        options.namesrv = "127.0.0.1:9876";
    if (!options.count && options.seconds <= 0)
        options.seconds = 5;
    if (!options.in_flight)
        options.in_flight = options.mode == MODE_ASYNC ? 128 : options.mode == MODE_BATCH ? 8 : 1;
    return mode->run(&options);
}
