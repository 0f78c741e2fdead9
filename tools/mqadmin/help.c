/*
 * Help, reference page and shell completion, printed from the command rows; and the commands of
 * RocketMQ's that have no row, with the reason. Threads: one. Failure modes: none.
 */
#include "tools/mqadmin/help.h"

#include <string.h>

/* ---- not offered ---- */

#define NO_ACL "there is no access control: listen on loopback or behind a firewall"

static const struct {
    const char *name, *why;
} not_offered[] = {
    {"updateAclConfig", NO_ACL},
    {"deleteAclConfig", NO_ACL},
    {"getAclConfig", NO_ACL},
    {"getAccessConfigSubCommand", NO_ACL},
    {"clusterAclConfigVersion", NO_ACL},
    {"updateGlobalWhiteAddr", NO_ACL},
    {"updateNamesrvConfig",
     "a nameserver reads its configuration at the start: change its file and restart it"},
    {"startMonitoring",
     "watch `mqadmin consumerProgress --json` and `mqadmin brokerStatus --json` instead"},
    {"addBroker", "DLedger and broker containers are not part of this product"},
    {"removeBroker", "DLedger and broker containers are not part of this product"},
    {"resetMasterFlushOffset", "slaves follow epochs and need no such mark: mqadmin haStatus"},
    {"setConsumeMode", "pop consumption is not part of this product"},
};

const char *command_not_offered(const char *name)
{
    for (size_t i = 0; i < sizeof not_offered / sizeof not_offered[0]; i++)
        if (!strcmp(not_offered[i].name, name))
            return not_offered[i].why;
    return NULL;
}

/* ---- help ---- */

static const char *const subjects[] = {SUBJECT_MESSAGES, SUBJECT_TOPICS, SUBJECT_GROUPS,
                                       SUBJECT_CLUSTER, SUBJECT_REPLICATION};

void help_commands(FILE *out)
{
    const struct command *rows;
    size_t count = commands(&rows);
    fputs("usage: mqadmin COMMAND [options]\n", out);
    for (size_t s = 0; s < sizeof subjects / sizeof subjects[0]; s++) {
        fprintf(out, "\n%s:\n", subjects[s]);
        for (size_t i = 0; i < count; i++)
            if (!strcmp(rows[i].subject, subjects[s]))
                fprintf(out, "   %-22s %s\n", rows[i].name, rows[i].help);
    }
    fputs("\nmqadmin help COMMAND shows a command's options. Every command takes -n NAMESRV[;…]\n"
          "(else NAMESRV_ADDR, else 127.0.0.1:9876), --json and -h.\n"
          "A message is not where it should be? mqadmin why\n"
          "exit status: 0 done, 1 no or failed, 2 wrong usage, 3 nobody reached in time\n",
          out);
}

void help_command(const struct command *command, FILE *out)
{
    fprintf(out, "mqadmin %s: %s\n\noptions:\n", command->name, command->help);
    for (size_t i = 0; i < OPTIONS_MAX && command->options[i].name; i++) {
        const struct command_option *o = &command->options[i];
        char form[80];
        snprintf(form, sizeof form, "%c%c%s--%s%s%s", o->letter ? '-' : ' ',
                 o->letter ? o->letter : ' ', o->letter ? ", " : "  ", o->name,
                 o->argument ? " " : "", o->argument ? o->argument : "");
        fprintf(out, "  %-36s %s%s\n", form, o->help, o->required ? " (required)" : "");
    }
    fputs("  -n, --namesrvAddr LIST               nameservers, host:port separated by ';'\n"
          "      --json                           output for scripts\n",
          out);
    if (command->one_of)
        fprintf(out, "\nexactly one of -%c and -%c is required\n", command->one_of[0],
                command->one_of[1]);
    if (command->other)
        fprintf(out, "\nalso found as %s\n", command->other);
    fprintf(out, "\nexample: %s\n", command->example);
}

void help_reference(void)
{
    const struct command *rows;
    size_t count = commands(&rows);
    puts("# mqadmin\n\nPrinted from the command table by `mqadmin --reference`. Every command also "
         "takes\n"
         "`-n LIST`, `--json` and `-h`.");
    for (size_t i = 0; i < count; i++) {
        printf("\n## %s\n\n%s\n\n| option | | |\n| --- | --- | --- |\n", rows[i].name,
               rows[i].help);
        for (size_t j = 0; j < OPTIONS_MAX && rows[i].options[j].name; j++) {
            const struct command_option *o = &rows[i].options[j];
            char letter[8] = "";
            if (o->letter)
                snprintf(letter, sizeof letter, "-%c, ", o->letter);
            printf("| `%s--%s%s%s` | %s | %s |\n", letter, o->name, o->argument ? " " : "",
                   o->argument ? o->argument : "", o->required ? "required" : "", o->help);
        }
        if (rows[i].other)
            printf("\nAlso found as `%s`.\n", rows[i].other);
        printf("\n    %s\n", rows[i].example);
    }
    puts("\n## Not offered\n\n| command | why, and what instead |\n| --- | --- |");
    for (size_t i = 0; i < sizeof not_offered / sizeof not_offered[0]; i++)
        printf("| `%s` | %s |\n", not_offered[i].name, not_offered[i].why);
}

/* ---- completion ---- */

/* "-t|--topic" of every option whose argument is of this kind, as a pattern of the shell; the empty
 * text when there is none. */
static void print_pattern(const struct command *command, const char *argument)
{
    const char *between = "";
    for (size_t j = 0; j < OPTIONS_MAX && command->options[j].name; j++) {
        const struct command_option *o = &command->options[j];
        if (!o->argument || strcmp(o->argument, argument) != 0)
            continue;
        if (o->letter)
            printf("%s-%c", between, o->letter);
        printf("%s--%s", o->letter ? "|" : between, o->name);
        between = "|";
    }
}

static bool has_argument(const struct command *command, const char *argument)
{
    for (size_t j = 0; j < OPTIONS_MAX && command->options[j].name; j++)
        if (command->options[j].argument && !strcmp(command->options[j].argument, argument))
            return true;
    return false;
}

/* What follows an option of this kind. */
static void print_values(const struct command *command, const char *argument, const char *reply)
{
    if (!has_argument(command, argument))
        return;
    fputs("        case $before in ", stdout);
    print_pattern(command, argument);
    printf(") %s ;; esac\n", reply);
}

void help_completion(void)
{
    const struct command *rows;
    size_t count = commands(&rows);
    printf("# bash completion for mqadmin, printed by: mqadmin --completion\n_mqadmin() {\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} options=\n"
           "    local commands=\"");
    for (size_t i = 0; i < count; i++)
        printf("%s%s", i ? " " : "", rows[i].name);
    puts("\"\n    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
         "        mapfile -t COMPREPLY < <(compgen -W \"help $commands\" -- \"$word\")\n"
         "        return\n    fi\n    case ${COMP_WORDS[1]} in\n    help)\n"
         "        [ \"$COMP_CWORD\" -eq 2 ] &&\n"
         "            mapfile -t COMPREPLY < <(compgen -W \"$commands\" -- \"$word\")\n"
         "        return ;;");
    for (size_t i = 0; i < count; i++) {
        printf("    %s)\n", rows[i].name);
        print_values(&rows[i], "BOOL",
                     "mapfile -t COMPREPLY < <(compgen -W \"true false\" -- \"$word\"); return");
        print_values(&rows[i], "FILE", "mapfile -t COMPREPLY < <(compgen -f -- \"$word\"); return");
        print_values(&rows[i], "DIR", "mapfile -t COMPREPLY < <(compgen -d -- \"$word\"); return");
        fputs("        options=\"--namesrvAddr --json --help", stdout);
        for (size_t j = 0; j < OPTIONS_MAX && rows[i].options[j].name; j++)
            printf(" --%s", rows[i].options[j].name);
        puts("\" ;;");
    }
    puts("    esac\n    mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$word\")\n}\n"
         "complete -o default -F _mqadmin mqadmin");
}
