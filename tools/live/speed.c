// Measures in a guest. `speed bar FILE OFFSET COUNT` reads a register of a BAR (resource0 of a function in sysfs) as often, and prints how
// long one took, in ns. `speed receive PORT` takes a stream; `speed send ADDRESS PORT MIB` sends one, and prints Mbit/s.
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BLOCK (1 << 16)
static char block[BLOCK];

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static int bar(const char *path, long offset, long reads)
{
    int file = open(path, O_RDWR);
    volatile unsigned *registers = mmap(NULL, sysconf(_SC_PAGESIZE), PROT_READ, MAP_SHARED, file, 0);
    double begun = now();

    if (registers == MAP_FAILED) {
        perror(path);
        return 1;
    }
    for (long n = 0; n < reads; n++)
        (void)registers[offset / sizeof *registers];
    printf("%.0f\n", (now() - begun) / reads);
    return 0;
}

static struct sockaddr_in place(const char *address, const char *port)
{
    struct sockaddr_in place = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };

    inet_aton(address, &place.sin_addr);
    return place;
}

static int receive(const char *port)
{
    struct sockaddr_in own = place("0.0.0.0", port);
    int listener = socket(AF_INET, SOCK_STREAM, 0), stream;

    if (bind(listener, (void *)&own, sizeof own) || listen(listener, 1) || (stream = accept(listener, NULL, NULL)) < 0) {
        perror("receive");
        return 1;
    }
    while (read(stream, block, BLOCK) > 0)
        ;
    // All has arrived.
    return write(stream, block, 1) != 1;
}

static int transmit(const char *address, const char *port, long mib)
{
    struct sockaddr_in other = place(address, port);
    int stream = socket(AF_INET, SOCK_STREAM, 0);
    double begun;

    if (connect(stream, (void *)&other, sizeof other)) {
        perror("send");
        return 1;
    }
    begun = now();
    for (long left = mib << 20, sent; left > 0; left -= sent)
        if ((sent = write(stream, block, BLOCK)) <= 0)
            return 1;
    shutdown(stream, SHUT_WR);
    if (read(stream, block, 1) != 1)
        return 1;
    printf("%.0f\n", mib * 8 * 1048.576 / ((now() - begun) / 1e6));
    return 0;
}

int main(int count, char **words)
{
    if (count == 5 && !strcmp(words[1], "bar"))
        return bar(words[2], atol(words[3]), atol(words[4]));
    if (count == 3 && !strcmp(words[1], "receive"))
        return receive(words[2]);
    if (count == 5 && !strcmp(words[1], "send"))
        return transmit(words[2], words[3], atol(words[4]));
    fprintf(stderr, "speed bar FILE OFFSET COUNT | receive PORT | send ADDRESS PORT MIB\n");
    return 2;
}
