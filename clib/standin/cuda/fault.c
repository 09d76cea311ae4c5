/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

#include "outlook.h"
#include "print.h"

static const uint32_t *word; /* of the notice */
static uint32_t seen;

void sd_faults_open(void)
{
	const struct divvy_sim_notice *notice = sim_notice();

	word = notice ? &notice->sequence : NULL;
	seen = sim_word(word);
}

static bool stick(struct sd_context *context, CUresult error)
{
	if (!context->alive || context->sticky)
		return false;
	context->sticky = error;
	if (context->stop)
		context->stop(context);
	return true;
}

void sd_context_fault(struct sd_context *context, CUresult error)
{
	/* as a driver logs it: a page fault, or an exception of the graphics engine */
	if (stick(context, error))
		(void)sim_fault_report(context->card->index, error == CUDA_ERROR_ILLEGAL_ADDRESS ? 31 : 13, (uint32_t)error);
}

/* Whether something has hit this process, card by card. */
static void ask(void)
{
	sd_outlook_forget();
	for (unsigned int i = 0; i < sd_card_count(); i++) {
		struct sd_card *card = sd_card((CUdevice)i);
		uint32_t count = 0;
		uint32_t error = 0;

		if (sim_faulted(card->index, &count, &error) < 0 || count == card->faults)
			continue;
		card->faults = count;
		for (struct sd_object *object = card->contexts.first; object; object = object->next)
			(void)stick((struct sd_context *)object, (CUresult)error);
	}
}

void sd_faults_look(void)
{
	uint32_t now = sim_word(word);

	if (now == seen)
		return;
	seen = now;
	ask();
}

CUresult sd_context_still(const struct sd_context *context, uint64_t id, CUresult result)
{
	const struct sd_context *found;

	sd_print_flush();
	sd_faults_look();
	found = sd_object_get(context, SD_CONTEXT);

	return found && found->object.id == id && found->sticky ? found->sticky : result;
}
