/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Starts twenty children, one after the other, and counts those that it could not start. */

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    int failed = 0;
    for (int n = 0; n < 20; n++) {
        pid_t child = fork();
        if (child == 0) {
            usleep(30000);
            _exit(0);
        }
        if (child < 0) {
            failed++;
            usleep(30000);
        } else {
            waitpid(child, NULL, 0);
        }
    }
    printf("%d of 20 failed\n", failed);
    return failed > 0;
}
