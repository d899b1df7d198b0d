// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A guest's clock for nearfar: counts the instructions of a QEMU guest under
 * -icount, and stops the guest wherever the simulation has to come first.
 *
 * The page shared with the simulation has two 64-bit words: the instructions
 * begun so far, which this plugin writes, and the count at which to stop, which
 * the simulation writes. At a stop the count goes over the socket; the guest goes
 * on when eight bytes come back.
 *
 * Blocks are counted when they begin. One thread runs all processors of a guest
 * under -icount, so nothing here is atomic.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The part of QEMU's plugin interface that is used, as of its version 7. */
#define EXPORT __attribute__((visibility("default")))

EXPORT int qemu_plugin_version = 7;

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_info;
enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
		void (*cb)(struct qemu_plugin_tb *tb, void *data), void *data);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb,
		void (*cb)(unsigned int cpu, void *data),
		enum qemu_plugin_cb_flags flags, void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);

static volatile uint64_t *page;
static int simulation = -1;

static void stop(void)
{
	uint64_t word = page[0];

	if (write(simulation, &word, sizeof(word)) == sizeof(word) &&
	    read(simulation, &word, sizeof(word)) == sizeof(word))
		return;
	fprintf(stderr, "lockstep: the simulation has ended\n");
	_exit(1);
}

static void begin_block(unsigned int cpu, void *instructions)
{
	page[0] += (uintptr_t)instructions;
	while (page[0] >= page[1])
		stop();
}

static void translate(struct qemu_plugin_tb *tb, void *data)
{
	qemu_plugin_register_vcpu_tb_exec_cb(tb, begin_block,
			QEMU_PLUGIN_CB_NO_REGS,
			(void *)(uintptr_t)qemu_plugin_tb_n_insns(tb));
}

static const char *value(const char *word, const char *key)
{
	size_t length = strlen(key);

	return strncmp(word, key, length) ? NULL : word + length;
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info *info,
			       int argc, char **argv)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const char *shared = NULL, *found;
	int file;

	for (int n = 0; n < argc; n++) {
		if (!strcmp(argv[n], "check=on")) {
			/* Loaded by way of trial. */
			fprintf(stderr, "lockstep: works with this QEMU\n");
			return 1;
		}
		found = value(argv[n], "socket=");
		if (found)
			strncpy(address.sun_path, found, sizeof(address.sun_path) - 1);
		found = value(argv[n], "page=");
		if (found)
			shared = found;
	}
	file = shared ? open(shared, O_RDWR) : -1;
	page = mmap(NULL, 2 * sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (page == MAP_FAILED) {
		perror("lockstep: page=");
		return 1;
	}
	close(file);
	simulation = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connect(simulation, (struct sockaddr *)&address, sizeof(address))) {
		perror("lockstep: socket=");
		return 1;
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, translate, NULL);
	return 0;
}
