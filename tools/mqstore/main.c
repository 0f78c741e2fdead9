/* mqstore: looks at a store offline; the program is mqstore_main(). */
#include <stdio.h>

#include "tools/mqstore/mqstore.h"

int main(int argc, char **argv)
{
    struct env env;
    env_init_system(&env, NULL);
    return mqstore_main(&env, argc, argv, stdout, stderr);
}
