/* What mqadmin says of itself, all of it from the command rows. */
#ifndef MQADMIN_HELP_H
#define MQADMIN_HELP_H

#include <stdio.h>

#include "tools/mqadmin/command.h"

/* All commands by subject. */
void help_commands(FILE *out);
/* One command: options, example. */
void help_command(const struct command *command, FILE *out);
/* docs/reference/mqadmin.md and the shell's completion, on stdout. */
void help_reference(void);
void help_completion(void);

/* A command of RocketMQ's that this product has no use for: why, and what instead; else NULL. */
const char *command_not_offered(const char *name);

#endif
