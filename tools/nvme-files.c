// Lets nvme-cli read the files that `nearfar tree SCENARIO --nvme DIR` writes, as if they were a drive:
//
//   cc -shared -fPIC -o nvme-files.so tools/nvme-files.c -ldl
//   NVME_FILES=DIR/a-nvme0n1 LD_PRELOAD=./nvme-files.so nvme smart-log /dev/null
//
// Identify and Get Log Page answer from the file that is named as nvme-cli's command; what there is no file for is an invalid
// field. effects-log wants `--csi=0`: without it nvme-cli looks for a register of the drive. /dev/null stands for the drive: it is a character device that everybody can open.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/nvme_ioctl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

static const char *file_of(const struct nvme_admin_cmd *command)
{
    if (command->opcode == 0x06) {
        switch (command->cdw10 & 0xff) {
        case 0x00: return "id-ns";
        case 0x01: return "id-ctrl";
        case 0x02: return "list-ns";
        case 0x03: return "ns-descs";
        }
    } else if (command->opcode == 0x02) {
        switch (command->cdw10 & 0xff) {
        case 0x01: return "error-log";
        case 0x02: return "smart-log";
        case 0x03: return "fw-log";
        case 0x04: return "changed-ns-list-log";
        case 0x05: return "effects-log";
        }
    }
    return NULL;
}

// 0, or a status of the drive's.
static int answer(const struct nvme_admin_cmd *command)
{
    const int invalid_field = 0x4002;
    const char *name = file_of(command), *folder = getenv("NVME_FILES");
    char path[4096];
    if (!name || !folder)
        return invalid_field;
    snprintf(path, sizeof path, "%s/%s.bin", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file)
        return invalid_field;
    if (command->opcode == 0x02)
        fseek(file, (long)command->cdw12, SEEK_SET);
    char *to = (char *)(unsigned long)command->addr;
    size_t got = fread(to, 1, command->data_len, file);
    memset(to + got, 0, command->data_len - got);
    fclose(file);
    return 0;
}

int ioctl(int fd, unsigned long request, ...)
{
    va_list list;
    va_start(list, request);
    void *argument = va_arg(list, void *);
    va_end(list);
    switch (request) {
    case NVME_IOCTL_ID:
        return 1;
    case NVME_IOCTL_ADMIN_CMD:
        return answer(argument);
    case NVME_IOCTL_ADMIN64_CMD: {
        // As the other, but for a wider result behind it.
        struct nvme_passthru_cmd64 *command = argument;
        command->result = 0;
        return answer(argument);
    }
    }
    int (*real)(int, unsigned long, ...) = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
    return real(fd, request, argument);
}
