/* mqbroker: configuration, signals, and the life of one broker. */
#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "base/program.h"
#include "broker/broker.h"
#include "broker/broker_config.h"

enum { STOP_GRACE_S = 5, FILES_LEAST = 96 };

static const struct program_info info = {
    .name = "mqbroker",
    .summary = "Stores messages and serves them to consumers.",
    .takes_namesrv = true,
};

static enum tern_code finish_config(void *config, struct tern_error *err)
{
    return broker_config_check(config, err);
}

/* Runs until a signal. @blocks */
static enum program_exit serve(const struct env *env, struct link *link,
                               const struct broker_config *config)
{
    struct tern_error err = {.text = ""};
    struct broker *broker = NULL;
    enum program_exit status = PROGRAM_DONE;

    enum tern_code code = broker_create(env, link, config, &broker, &err);
    if (code == TERN_OK)
        code = broker_start(broker, &err);
    if (code != TERN_OK) {
        status = program_fail(&info, code, &err);
        goto out;
    }
    program_ready(&info, "%s %" PRId64 " %s", config->broker_name, config->broker_id,
                  broker_address(broker));
    program_wait_stop(STOP_GRACE_S);
    code = broker_stop(broker, &err);
    if (code != TERN_OK)
        status = program_fail(&info, code, &err);
out:
    broker_destroy(broker);
    return status;
}

static enum program_exit run(const struct env *env, const struct broker_config *config)
{
    struct tern_error err = {.text = ""};
    struct link *link = NULL;
    enum tern_code code = link_nng_create(env, &link, &err);
    if (code != TERN_OK)
        return program_fail(&info, code, &err);
    enum program_exit status = serve(env, link, config);
    link_destroy(link);
    return status;
}

int main(int argc, char **argv)
{
    struct program_options options;
    struct broker_config config;
    struct env env;
    struct log *log = NULL;

    enum program_exit status = program_parse(&info, argc, argv, &options);
    if (status != PROGRAM_GO_ON)
        return (int)status;
    broker_config_init(&config);
    status = program_configure(&info, &options, &broker_config_table, &config, finish_config);
    if (status != PROGRAM_GO_ON)
        return (int)status;
    program_block_signals();
    env_init_system(&env, NULL);
    enum tern_code code = log_create(env.clock, (enum log_level)config.log_level, NULL, NULL, &log);
    if (code != TERN_OK)
        return (int)program_fail(&info, code, NULL);
    env.log = log;
    program_warn_exposed(log, "listenAddr", config.listen_addr);
    status = program_share_files(
        &info, log,
        &(struct program_files){FILES_LEAST, &config.max_connections, &config.open_files});
    if (status == PROGRAM_GO_ON)
        status = run(&env, &config);
    log_destroy(log);
    return (int)status;
}
