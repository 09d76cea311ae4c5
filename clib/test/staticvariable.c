/* SPDX-License-Identifier: Apache-2.0 */
/* static-variable: prints CUDA_VISIBLE_DEVICES; linked statically, so that nothing of ours is loaded. */
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
	const char *value = getenv("CUDA_VISIBLE_DEVICES");

	puts(value ? value : "");
	return 0;
}
