/*
 * mqnamesrv: the nameserver as a program. All of it is in namesrv.c; here are the real world, the
 * options and the end. RocketMQ: NamesrvStartup.
 *
 * Exit status: 0 after a clean stop, 1 when it could not start, 2 for wrong options or
 * configuration.
 */
#include "base/log.h"
#include "base/clock.h"
#include "base/program.h"
#include "namesrv/namesrv.h"
#include "rpc/link.h"

enum { STOP_GRACE_S = 4, FILES_LEAST = 64 };

static const struct program_info info = {
    .name = "mqnamesrv",
    .summary = "The nameserver of a TernMQ cluster: brokers register, clients ask for routes.",
};

static enum tern_code run(const struct namesrv_config *config, struct log *log,
                          struct tern_error *err)
{
    struct env env;
    struct link *link = NULL;
    struct namesrv *ns = NULL;
    char address[PROGRAM_ADDRESS_BYTES];
    env_init_system(&env, log);
    enum tern_code code = link_nng_create(&env, &link, err);
    if (code == TERN_OK)
        code = namesrv_create(&env, link, config, &ns, err);
    if (code == TERN_OK)
        code = namesrv_start(ns, err);
    if (code != TERN_OK)
        goto out;
    program_warn_exposed(log, "listenAddr", config->listen_addr);
    code = program_join_address(address, config->listen_addr, namesrv_port(ns), err);
    if (code == TERN_OK) {
        program_ready(&info, "%s", address);
        int signo = program_wait_stop(STOP_GRACE_S);
        log_info(log, "stop_requested", "signal=%d", signo);
    }
    namesrv_stop(ns);
out:
    namesrv_destroy(ns);
    link_destroy(link);
    return code;
}

int main(int argc, char **argv)
{
    struct program_options options;
    struct namesrv_config config;
    struct tern_error err = {0};
    struct log *log = NULL;
    enum program_exit status = program_parse(&info, argc, argv, &options);
    if (status == PROGRAM_GO_ON)
        status = program_configure(&info, &options, &namesrv_config_table, &config,
                                   namesrv_config_finish);
    if (status != PROGRAM_GO_ON)
        return status;
    program_block_signals();
    enum tern_code code =
        log_create(clock_system(), (enum log_level)config.log_level, NULL, NULL, &log);
    if (code == TERN_OK)
        status = program_share_files(
            &info, log, &(struct program_files){FILES_LEAST, &config.max_connections, NULL});
    if (code == TERN_OK && status == PROGRAM_GO_ON)
        code = run(&config, log, &err);
    log_destroy(log);
    if (status != PROGRAM_GO_ON)
        return status;
    return code == TERN_OK ? PROGRAM_DONE : program_fail(&info, code, &err);
}
