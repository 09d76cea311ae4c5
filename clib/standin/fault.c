/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

void sd_context_fault(struct sd_context *context, CUresult error)
{
	if (context->alive && !context->sticky)
		context->sticky = error;
}

CUresult sd_context_healthy(const struct sd_context *context)
{
	return context->sticky;
}

CUresult sd_context_still(const struct sd_context *context, uint64_t id, CUresult result)
{
	const struct sd_context *found = sd_object_get(context, SD_CONTEXT);

	return found && found->object.id == id && found->sticky ? found->sticky : result;
}
