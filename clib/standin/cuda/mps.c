/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mps.c: this process as a client of MPS, with the same silent failures as the
 * hardware driver's: no daemon in the pipe directory means no limits, and a list of
 * limits that names a card which is not visible is dropped as a whole. The
 * protocol is that of test/fakemps: connect to "control" and stay connected; the
 * answer is "PERCENT BYTES", what the server gives each client. Only memory is held
 * to its limit; the percentage of threads does not change modelled times.
 */
#include "mps.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "driver.h"

enum { LINE_BYTES = 128, UUID_TEXT = 41 };

static int connect_daemon(void)
{
	const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int length = snprintf(address.sun_path, sizeof(address.sun_path), "%s/control", folder && *folder ? folder : "/tmp/nvidia-mps");
	int fd;

	if (length < 0 || (size_t)length >= sizeof(address.sun_path))
		return -1;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* One line; false when the daemon is gone. */
static bool read_line(int fd, char line[LINE_BYTES])
{
	size_t length = 0;

	while (length < LINE_BYTES - 1) {
		ssize_t n = read(fd, line + length, 1);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		if (line[length] == '\n')
			break;
		length++;
	}
	line[length] = 0;
	return true;
}

static void uuid_text(const struct sd_card *card, char text[UUID_TEXT])
{
	const uint8_t *u = card->facts->uuid;

	snprintf(text, UUID_TEXT, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2], u[3],
		 u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

/* The visible card that an entry names by its number or the start of its UUID. */
static int named(const char *entry, size_t length)
{
	char text[UUID_TEXT];

	if (length > 0 && length < 4 && isdigit((unsigned char)entry[0])) {
		unsigned long number = strtoul(entry, NULL, 10);

		return number < sd_card_count() ? (int)number : -1;
	}
	for (unsigned int i = 0; i < sd_card_count(); i++) {
		uuid_text(sd_card((CUdevice)i), text);
		if (length > 4 && length < UUID_TEXT && strncasecmp(entry, text, length) == 0)
			return (int)i;
	}
	return -1;
}

/* 1G, 512M, 512MB; 0 when it is none */
static uint64_t amount(const char *text)
{
	char *end;
	uint64_t number = strtoull(text, &end, 10);

	switch (*end) {
	case 'G':
		return number << 30;
	case 'M':
		return number << 20;
	}
	return 0;
}

/* What the process's own environment asks for; all zeros if any of it is wrong. */
static void own_limits(uint64_t limits[SD_MAX_CARDS])
{
	const char *at = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");

	memset(limits, 0, SD_MAX_CARDS * sizeof(limits[0]));
	while (at && *at) {
		size_t length = strcspn(at, "=,");
		int card = named(at, length);
		uint64_t bytes = at[length] == '=' ? amount(at + length + 1) : 0;

		if (card < 0 || bytes == 0) {
			memset(limits, 0, SD_MAX_CARDS * sizeof(limits[0]));
			return;
		}
		limits[card] = bytes;
		at += strcspn(at, ",");
		at += *at == ',';
	}
}

void sd_mps_connect(void)
{
	uint64_t limits[SD_MAX_CARDS];
	unsigned long long given = 0;
	char line[LINE_BYTES];
	int fd = connect_daemon();

	if (fd < 0)
		return;
	if (!read_line(fd, line) || sscanf(line, "%*f %llu", &given) != 1) {
		close(fd);
		return;
	}
	own_limits(limits);
	for (unsigned int i = 0; i < sd_card_count(); i++) {
		uint64_t bytes = limits[i];

		if (given && (!bytes || given < bytes))
			bytes = given; /* a client can only ask for less */
		if (bytes)
			(void)sim_cap(sd_card((CUdevice)i)->index, bytes); /* a simulator that is gone holds nothing */
	}
	/* the connection stays open: it says that this client lives */
}
