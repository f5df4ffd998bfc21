/* SPDX-License-Identifier: MIT */
/* The policy file: rm is on only if each line is rm=on, blank or a comment, whatever the bytes are. */
#include "backend/rm.c"

#include <stdlib.h>
#include <sys/mman.h>

/* The same rule once more, in other words. */
static bool allows(const uint8_t *data, size_t size)
{
	char line[POLICY_BYTES + 1];
	size_t n = 0;

	for (size_t i = 0; i <= size; i++) {
		size_t first = 0;

		if (i < size && !data[i])
			return false;
		if (i < size && data[i] != '\n') {
			line[n++] = (char)data[i];
			continue;
		}
		line[n] = '\0';
		n = strcspn(line, "#");
		while (n && strchr(" \t\r\v\f", line[n - 1]))
			n--;
		while (first < n && strchr(" \t\r\v\f", line[first]))
			first++;
		if (n - first && (n - first != 5 || memcmp(line + first, "rm=on", 5) != 0))
			return false;
		n = 0;
	}
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = memfd_create("policy", MFD_CLOEXEC);
	char *text = malloc(POLICY_BYTES + 1);
	const char *says;

	if (fd < 0 || !text || write(fd, data, size) != (ssize_t)size || lseek(fd, 0, SEEK_SET))
		abort();
	says = read_text(fd, text);
	if (!says != (size <= POLICY_BYTES && allows(data, size)))
		abort();
	close(fd);
	free(text);
	return 0;
}
