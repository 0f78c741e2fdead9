/*
 * What the daemons' main() functions share.
 *
 * Signals: they are blocked in all threads and taken by the first one with sigwait, so no handler
 * runs in the middle of anything. The one handler is the watchdog's: SIGALRM after the grace
 * period, which only writes a line and ends the process; it needs no thread and no lock, so a stop
 * that hangs cannot stop it.
 *
 * Threads: the first one only. Failure modes: wrong usage is one line on stderr and
 * PROGRAM_WRONG_USAGE; output that cannot be written (a full disk behind stdout) is PROGRAM_FAILED.
 */
#include "base/program.h"

#include <arpa/inet.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

enum { OPTION_REFERENCE = 256, OPTION_HELP, OPTION_VERSION };

static const struct option long_options[] = {
    {"config-reference", no_argument, NULL, OPTION_REFERENCE},
    {"help", no_argument, NULL, OPTION_HELP},
    {"version", no_argument, NULL, OPTION_VERSION},
    {NULL, 0, NULL, 0},
};

/* The exit status after data was printed to stdout. */
static enum program_exit printed(const struct program_info *info)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return PROGRAM_DONE;
    fprintf(stderr, "%s: cannot write to standard output\n", info->name);
    return PROGRAM_FAILED;
}

static enum program_exit wrong_usage(const struct program_info *info, const char *what,
                                     const char *which)
{
    fprintf(stderr, "%s: %s %s (see %s --help)\n", info->name, what, which, info->name);
    return PROGRAM_WRONG_USAGE;
}

static enum program_exit print_help(const struct program_info *info)
{
    printf("usage: %s [-c FILE] [-o key=value]…%s [-p]\n%s\n\n", info->name,
           info->takes_namesrv ? " [-n NAMESRV[;NAMESRV]…]" : "", info->summary);
    puts("  -c FILE               configuration, YAML `key: value` lines\n"
         "  -o key=value          sets one key, after the file; may be repeated, the last one "
         "counts");
    if (info->takes_namesrv)
        puts("  -n NAMESRV[;…]        nameservers, host:port; as -o namesrvAddr=…, the last one "
             "counts");
    puts("  -p                    prints the effective configuration and ends\n"
         "  --config-reference    prints all keys with their defaults and ranges and ends\n"
         "  --version, --help");
    return printed(info);
}

/* getopt's complaint in our words: with a leading ':' it tells a missing argument from an unknown
 * option. */
static enum program_exit bad_option(const struct program_info *info, int kind, char **argv)
{
    char letter[3] = {'-', (char)optopt, 0};
    bool is_letter = optopt > ' ' && optopt < 127;
    const char *option = is_letter ? letter : argv[optind - 1];
    return wrong_usage(info, kind == ':' ? "missing argument of option" : "unknown option", option);
}

enum program_exit program_parse(const struct program_info *info, int argc, char **argv,
                                struct program_options *out)
{
    *out = (struct program_options){0};
    opterr = 0;
    optind = 0; /* glibc: begin anew, whoever parsed before */
    const char *letters = info->takes_namesrv ? ":c:o:n:p" : ":c:o:p";
    int option;
    while ((option = getopt_long(argc, argv, letters, long_options, NULL)) != -1) {
        switch (option) {
        case 'c':
            out->config_path = optarg;
            break;
        case 'n':
            out->namesrv = optarg;
            out->namesrv_at = out->override_count;
            break;
        case 'o':
            if (out->override_count == PROGRAM_OVERRIDES_MAX)
                return wrong_usage(info, "more than 256 options", "-o");
            out->overrides[out->override_count++] = optarg;
            break;
        case 'p':
            out->print_config = true;
            break;
        case OPTION_REFERENCE:
            out->print_reference = true;
            break;
        case OPTION_HELP:
            return print_help(info);
        case OPTION_VERSION:
            printf("%s %s\n", info->name, TERN_VERSION);
            return printed(info);
        default:
            return bad_option(info, option, argv);
        }
    }
    if (optind < argc)
        return wrong_usage(info, "unexpected argument", argv[optind]);
    return PROGRAM_GO_ON;
}

static enum tern_code set_namesrv(const struct config_table *table, void *config, const char *list,
                                  struct tern_error *err)
{
    char assignment[CONFIG_STRING_BYTES + 16];
    int len = snprintf(assignment, sizeof assignment, "namesrvAddr=%s", list);
    if ((size_t)len >= sizeof assignment)
        return error_set(err, TERN_CONFIG, "-n: longer than %d bytes",
                         (int)CONFIG_STRING_BYTES - 1);
    return config_set(table, config, assignment, "-n", err);
}

static enum tern_code load(const struct program_options *options, const struct config_table *table,
                           void *config, struct tern_error *err)
{
    enum tern_code code = TERN_OK;
    config_defaults(table, config);
    if (options->config_path)
        code = config_load_file(table, config, options->config_path, err);
    for (size_t i = 0; code == TERN_OK && i <= options->override_count; i++) {
        if (options->namesrv && i == options->namesrv_at)
            code = set_namesrv(table, config, options->namesrv, err);
        if (code == TERN_OK && i < options->override_count)
            code = config_set(table, config, options->overrides[i], "-o", err);
    }
    return code;
}

enum program_exit program_configure(const struct program_info *info,
                                    const struct program_options *options,
                                    const struct config_table *table, void *config,
                                    program_finish_fn finish)
{
    struct tern_error err = {0};
    if (options->print_reference) {
        config_print_reference(table, stdout);
        return printed(info);
    }
    enum tern_code code = load(options, table, config, &err);
    if (code == TERN_OK && finish)
        code = finish(config, &err);
    if (code != TERN_OK) {
        program_fail(info, code, &err);
        return PROGRAM_WRONG_USAGE;
    }
    if (!options->print_config)
        return PROGRAM_GO_ON;
    config_print(table, config, stdout);
    return printed(info);
}

enum program_exit program_fail(const struct program_info *info, enum tern_code code,
                               const struct tern_error *err)
{
    fprintf(stderr, "%s: %s", info->name, error_text(err, code));
    program_print_cause(code);
    fputc('\n', stderr);
    return PROGRAM_FAILED;
}

/* The signals that end a daemon; ignored ones stay ignored, though a blocked one would be queued.
 */
static void stop_signals(sigset_t *out)
{
    struct sigaction hangup;
    sigemptyset(out);
    sigaddset(out, SIGTERM);
    sigaddset(out, SIGINT);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
        sigaddset(out, SIGHUP);
}

void program_block_signals(void)
{
    sigset_t signals;
    stop_signals(&signals);
    ENSURE(pthread_sigmask(SIG_BLOCK, &signals, NULL) == 0);
    ENSURE(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
}

void program_ready(const struct program_info *info, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    printf("%s ready ", info->name);
    vprintf(fmt, args);
    putchar('\n');
    fflush(stdout); /* nobody may be listening any more; the daemon goes on */
    va_end(args);
}

static void stop_hangs(int signo)
{
    static const char line[] = "fatal: the clean stop did not end in time, giving up\n";
    (void)signo;
    ssize_t ignored = write(STDERR_FILENO, line, sizeof line - 1);
    (void)ignored;
    _exit(PROGRAM_FAILED);
}

int program_wait_stop(unsigned grace_s)
{
    sigset_t signals;
    int signo = 0;
    stop_signals(&signals);
    ENSURE(sigwait(&signals, &signo) == 0);

    struct sigaction action = {.sa_handler = stop_hangs};
    sigset_t alarm_only;
    sigemptyset(&action.sa_mask);
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    ENSURE(sigaction(SIGALRM, &action, NULL) == 0);
    ENSURE(pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL) == 0);
    alarm(grace_s);
    return signo;
}

bool program_host_is_loopback(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, host, &v6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
    return strcmp(host, "localhost") == 0;
}

void program_warn_exposed(struct log *log, const char *key, const char *host)
{
    if (!program_host_is_loopback(host))
        log_warn(log, "listening_beyond_loopback", "key=%s host=%s authentication=none", key, host);
}

enum tern_code program_join_address(char out[PROGRAM_ADDRESS_BYTES], const char *host, int64_t port,
                                    struct tern_error *err)
{
    bool v6 = strchr(host, ':') != NULL;
    int len =
        snprintf(out, PROGRAM_ADDRESS_BYTES, v6 ? "[%s]:%lld" : "%s:%lld", host, (long long)port);
    if (host[0] == 0 || len >= PROGRAM_ADDRESS_BYTES)
        return error_set(err, TERN_CONFIG, "host '%.64s' is empty or too long", host);
    return TERN_OK;
}
