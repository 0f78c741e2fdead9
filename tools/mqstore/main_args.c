/*
 * The command line of mqstore: a row per command, a row per option. Threads: one.
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/mqstore/mqstore.h"

enum option_id {
    OPT_HELP = 'h',
    OPT_SEGMENT = 's',
    OPT_TOPIC = 't',
    OPT_COUNT = 'c',
    OPT_JSON = 1000,
    OPT_VERSION,
    OPT_INDEX_SLOTS,
    OPT_FROM,
    OPT_TO,
    OPT_BODY,
    OPT_YES
};

enum { DUMP_ONLY = 1, REPAIR_ONLY = 2 };

static const struct option_row {
    const char *name;
    int id;
    const char *argument; /* NULL: takes none */
    unsigned only;        /* the one command that takes it; 0: all do */
    const char *help;
} option_rows[] = {
    {"json", OPT_JSON, NULL, 0, "output for scripts"},
    {"segment-size", OPT_SEGMENT, "BYTES", 0,
     "length of a commit log segment (default: that of the first)"},
    {"index-slots", OPT_INDEX_SLOTS, "N", 0, "hash slots of an index file (default: found out)"},
    {"from", OPT_FROM, "OFFSET", DUMP_ONLY, "dump: records at or behind this physical offset"},
    {"to", OPT_TO, "OFFSET", DUMP_ONLY, "dump: records before this physical offset"},
    {"topic", OPT_TOPIC, "NAME", DUMP_ONLY, "dump: only records of this topic"},
    {"count", OPT_COUNT, "N", DUMP_ONLY, "dump: at most so many records"},
    {"body", OPT_BODY, NULL, DUMP_ONLY, "dump: bodies too"},
    {"yes", OPT_YES, NULL, REPAIR_ONLY, "repair: do it; without, only what it would do is told"},
    {"help", OPT_HELP, NULL, 0, "this text"},
    {"version", OPT_VERSION, NULL, 0, "the version"},
};

enum { OPTION_ROWS = sizeof option_rows / sizeof option_rows[0] };

static const struct command_row {
    const char *name;
    int dirs;
    const char *help;
} command_rows[] = {
    {"ls", 1, "segments, queues, index files, state, config files"},
    {"dump", 1, "the records, in the order of the log"},
    {"verify", 1, "checks every record, queue unit, index entry and the checkpoint"},
    {"repair", 1, "ends a damaged log before the damage; saves what it cuts under diverged/"},
    {"diff", 2, "compares two logs record by record to their common end"},
};

enum { COMMAND_ROWS = sizeof command_rows / sizeof command_rows[0] };

static void print_help(FILE *out)
{
    fputs("usage: mqstore COMMAND [options] DIR [DIR2]\n\n"
          "Looks at a store, TernMQ's or RocketMQ 4.9's, offline; only repair --yes writes.\n"
          "DIR is the store's root (storePathRootDir).\n\ncommands:\n",
          out);
    for (int i = 0; i < COMMAND_ROWS; i++)
        fprintf(out, "  %-8s%s\n", command_rows[i].name, command_rows[i].help);
    fputs("\noptions:\n", out);
    for (int i = 0; i < OPTION_ROWS; i++) {
        const struct option_row *row = &option_rows[i];
        char letter[] = "    ";
        char form[32];
        if (row->id < 256)
            snprintf(letter, sizeof letter, "-%c, ", row->id);
        snprintf(form, sizeof form, "--%s%s%s", row->name, row->argument ? " " : "",
                 row->argument ? row->argument : "");
        fprintf(out, "  %s%-22s %s\n", letter, form, row->help);
    }
    fputs("\nverify and repair hold the store's lock, so no broker starts on it meanwhile.\n"
          "exit status: 0 ok, 1 a fault, a difference or nothing to read, 2 wrong usage\n",
          out);
}

static int usage_error(FILE *warn, const char *what, const char *name)
{
    fprintf(warn, "mqstore: %s%s%s; mqstore --help tells more\n", what, name ? " " : "",
            name ? name : "");
    return MQSTORE_USAGE;
}

/* ---- options ---- */

/* A whole number, not negative, with KiB, MiB or GiB behind it if wanted. */
static bool parse_number(const char *text, int64_t most, int64_t *out)
{
    static const struct {
        const char *unit;
        int64_t factor;
    } units[] = {{"", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};
    char *end;
    if (text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    for (size_t i = 0; i < sizeof units / sizeof units[0] && errno == 0; i++) {
        if (strcmp(end, units[i].unit) == 0 && value <= most / units[i].factor) {
            *out = value * units[i].factor;
            return true;
        }
    }
    return false;
}

/* false: the value is none. */
static bool set_option(struct mqstore_options *options, int id, const char *value)
{
    int64_t number = 0;
    switch (id) {
    case OPT_JSON:
        options->json = true;
        return true;
    case OPT_BODY:
        options->body = true;
        return true;
    case OPT_YES:
        options->yes = true;
        return true;
    case OPT_TOPIC:
        options->topic = value;
        return value[0] != 0;
    case OPT_SEGMENT:
        return parse_number(value, INT32_MAX, &options->segment_bytes) &&
               options->segment_bytes >= 64;
    case OPT_FROM:
        return parse_number(value, INT64_MAX, &options->from);
    case OPT_TO:
        return parse_number(value, INT64_MAX, &options->to);
    case OPT_INDEX_SLOTS:
        if (!parse_number(value, INT32_MAX, &number) || number == 0)
            return false;
        options->index_slots = (uint32_t)number;
        return true;
    default: /* OPT_COUNT */
        if (!parse_number(value, INT64_MAX, &number))
            return false;
        options->count = (uint64_t)number;
        return true;
    }
}

static void fill_getopt(struct option longs[OPTION_ROWS + 1], char shorts[2 * OPTION_ROWS + 2])
{
    size_t at = 0;
    shorts[at++] = ':'; /* the error texts are ours */
    for (int i = 0; i < OPTION_ROWS; i++) {
        const struct option_row *row = &option_rows[i];
        longs[i] = (struct option){row->name, row->argument ? required_argument : no_argument, NULL,
                                   row->id};
        if (row->id >= 256)
            continue;
        shorts[at++] = (char)row->id;
        if (row->argument)
            shorts[at++] = ':';
    }
    longs[OPTION_ROWS] = (struct option){NULL, 0, NULL, 0};
    shorts[at] = 0;
}

static const struct option_row *find_row(int id)
{
    for (int i = 0; i < OPTION_ROWS; i++)
        if (option_rows[i].id == id)
            return &option_rows[i];
    return NULL;
}

/* -1: go on; else the exit status. special[only - 1] is an option that only that
 * command takes, if given. */
static int parse_options(int argc, char **argv, struct mqstore_options *options,
                         const struct option_row *special[2])
{
    struct option longs[OPTION_ROWS + 1];
    char shorts[2 * OPTION_ROWS + 2];
    fill_getopt(longs, shorts);
    optind = 0; /* begins anew, also in a test's second call */
    for (;;) {
        int before = optind ? optind : 1;
        int id = getopt_long(argc, argv, shorts, longs, NULL);
        if (id < 0)
            return -1;
        const struct option_row *row = find_row(id);
        if (!row)
            return usage_error(options->warn,
                               id == ':' ? "a value is missing behind" : "unknown option",
                               argv[before < optind ? optind - 1 : before]);
        if (id == OPT_HELP || id == OPT_VERSION) {
            if (id == OPT_HELP)
                print_help(options->out);
            else
                fputs("mqstore " TERN_VERSION "\n", options->out);
            return MQSTORE_OK;
        }
        if (!set_option(options, id, optarg)) {
            fprintf(options->warn, "mqstore: --%s: \"%s\" is no value for it\n", row->name,
                    optarg ? optarg : "");
            return MQSTORE_USAGE;
        }
        if (row->only)
            special[row->only - 1] = row;
    }
}

/* ---- the program ---- */

static int run(const struct env *env, int command, char **dirs,
               const struct mqstore_options *options)
{
    switch (command) {
    case 0:
        return mqstore_ls(env, dirs[0], options);
    case 1:
        return mqstore_dump(env, dirs[0], options);
    case 2:
        return mqstore_verify(env, dirs[0], options);
    case 3:
        return mqstore_repair(env, dirs[0], options);
    default:
        return mqstore_diff(env, dirs[0], dirs[1], options);
    }
}

int mqstore_main(const struct env *env, int argc, char **argv, FILE *out, FILE *warn)
{
    struct mqstore_options options;
    const struct option_row *special[] = {NULL, NULL}; /* by `only`, less one */
    int command = 0;
    mqstore_options_init(&options);
    options.out = out;
    options.warn = warn;
    options.progress = isatty(fileno(warn)) == 1;
    int status = parse_options(argc, argv, &options, special);
    if (status >= 0)
        return status;
    if (optind >= argc)
        return usage_error(warn, "no command", NULL);
    while (command < COMMAND_ROWS && strcmp(command_rows[command].name, argv[optind]) != 0)
        command++;
    if (command == COMMAND_ROWS)
        return usage_error(warn, "unknown command", argv[optind]);
    if (argc - optind - 1 != command_rows[command].dirs)
        return usage_error(warn,
                           command_rows[command].dirs == 1
                               ? "exactly one directory is needed by"
                               : "exactly two directories are needed by",
                           command_rows[command].name);
    if (special[0] && strcmp(command_rows[command].name, "dump") != 0)
        return usage_error(warn, "only dump takes the option", special[0]->name);
    if (special[1] && strcmp(command_rows[command].name, "repair") != 0)
        return usage_error(warn, "only repair takes the option", special[1]->name);
    status = run(env, command, argv + optind + 1, &options);
    if (fflush(out) != 0 && status == MQSTORE_OK) {
        fprintf(warn, "mqstore: cannot write the output: %s\n", strerror(errno));
        return MQSTORE_FAILED;
    }
    return status;
}
