// Frames of chosen lengths, sent and shown as they are on the wire: `frames send DEV LENGTH...`, `frames take DEV COUNT`.
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

// For local experiments (IEEE 802).
#define KIND 0x88b5

static int fail(const char *what)
{
    perror(what);
    return 1;
}

int main(int count, char **words)
{
    unsigned char frame[16384];
    if (count < 4)
        return 2;
    int socket_ = socket(AF_PACKET, SOCK_RAW, htons(KIND));
    struct sockaddr_ll at = { .sll_family = AF_PACKET, .sll_protocol = htons(KIND), .sll_ifindex = if_nametoindex(words[2]) };
    if (socket_ < 0 || bind(socket_, (struct sockaddr *)&at, sizeof(at)))
        return fail(words[2]);
    if (!strcmp(words[1], "send")) {
        for (int n = 3; n < count; n++) {
            int length = atoi(words[n]);
            for (int at = 0; at < length; at++)
                frame[at] = at * 7 + length;
            memset(frame, 0xff, 6);
            memcpy(frame + 6, "\2\0\0\0\0\1\x88\xb5", 8);
            if (send(socket_, frame, length, 0) != length)
                return fail("send");
        }
        return 0;
    }
    // The one who sends waits for this line.
    fprintf(stderr, "ready\n");
    for (int left = atoi(words[3]); left; left--) {
        int length = recv(socket_, frame, sizeof(frame), 0);
        if (length < 0)
            return fail("recv");
        for (int at = 0; at < length; at++)
            printf("%02x", frame[at]);
        puts("");
    }
    return 0;
}
