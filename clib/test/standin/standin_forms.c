/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which PTX the simulated GPU takes, asked of the parser and the compiler form by form
 * (forms.h), and whether docs/ptx.md says so.
 *
 *	forms            the checks
 *	forms --print    the table for docs/ptx.md
 */
#include "forms.h"
#include "program.h"

struct form {
	unsigned int version;
	unsigned int target;
	const char *name;
	const char *text;
};

#define FORM(version, target, name, text) { version, target, name, text },
static const struct form forms[] = { FORMS(FORM) };

enum { TABLE = 64 << 10 };

/* Why it is refused, or NULL. */
static const char *refusal(const struct form *form, unsigned int version, unsigned int target)
{
	static struct program program;
	char text[8192];

	CHECK((size_t)snprintf(text, sizeof(text),
			       ".version %u.%u\n.target sm_%u\n.address_size 64\n"
			       ".shared .align 16 .b8 tile[256];\n.func callee0() { ret; }\n"
			       ".visible .entry k() {\n.reg .pred %%p<9>; .reg .b16 %%h<9>; .reg .b32 %%r<9>; .reg .f32 %%f<9>;\n"
			       ".reg .b64 %%d<9>; .reg .f64 %%e<9>; %s\n%s\nL1: ret;\n}\n",
			       version / 10, version % 10, target, version >= 83 ? ".reg .b128 %q<9>;" : "", form->text) < sizeof(text));
	int result = build(&program, text);

	ptx_code_free(program.code);
	ptx_module_free(program.module);
	return result == 0 ? NULL : program.log.text;
}

/* The log's message without line and instruction, and without what all refusals have. */
static void reason(const char *message, char *out, size_t size)
{
	const char *rest = strstr(message, ": ");
	const char *next;

	while (rest && (next = strstr(rest + 2, ": ")))
		rest = next;
	snprintf(out, size, "%s", rest ? rest + 2 : message);
	for (char *common = strstr(out, " by the simulated card"); common; common = NULL)
		*common = '\0';
}

static void table(char *out)
{
	size_t size = (size_t)sprintf(out, "| PTX | From | Instructions | Taken |\n| --- | --- | --- | --- |\n");

	for (size_t i = 0; i < COUNT(forms); i++) {
		const struct form *form = &forms[i];
		const char *why = refusal(form, form->version, form->target);
		char text[256] = "yes";

		if (why) {
			char said[200];

			reason(why, said, sizeof(said));
			snprintf(text, sizeof(text), "no: %s", said);
		}
		size += (size_t)snprintf(out + size, TABLE - size, "| %u.%u | sm_%u | %s | %s |\n", form->version / 10, form->version % 10,
					 form->target, form->name, text);
		CHECK(size < TABLE);
	}
}

/* Every instruction that the parser knows is in a form, and the forms are in order. */
static void complete(void)
{
	for (unsigned int opcode = PTX_OP_NONE + 1; opcode < PTX_OP_COUNT; opcode++) {
		const char *name = ptx_opcode_name((enum ptx_opcode)opcode);
		size_t length = strlen(name);
		bool found = false;

		for (size_t i = 0; !found && i < COUNT(forms); i++) {
			for (const char *at = strstr(forms[i].text, name); at && !found; at = strstr(at + 1, name))
				found = (at == forms[i].text || at[-1] == ' ') && strchr(". ;", at[length]);
		}
		if (!found)
			fprintf(stderr, "forms: '%s' is in no form of clib/test/standin/forms.h\n", name);
		CHECK(found);
	}
	for (size_t i = 1; i < COUNT(forms); i++)
		CHECK(forms[i].version >= forms[i - 1].version);
}

/* Forms that came after version 8.0 are not there before, nor on older cards. */
static void early(void)
{
	for (size_t i = 0; i < COUNT(forms); i++) {
		const struct form *form = &forms[i];

		if (form->version <= 80 || refusal(form, form->version, form->target))
			continue;
		if (strstr(form->name, "satfinite") || strstr(form->name, "three"))
			continue; /* taken from earlier versions, too */
		CHECK(refusal(form, form->version - 1, form->target));
		CHECK(form->target < 60 || refusal(form, form->version, form->target - 1));
	}
}

/* docs/ptx.md has the table as it is. */
static void current(void)
{
	static char wanted[TABLE];
	static char page[2 * TABLE];
	FILE *file = fopen("docs/ptx.md", "r");

	CHECK(file);
	page[fread(page, 1, sizeof(page) - 1, file)] = '\0';
	fclose(file);
	table(wanted);
	if (!strstr(page, wanted))
		fprintf(stderr, "forms: the table of docs/ptx.md is not what is taken: %s\n",
			"paste what build/test/standin/plain/forms --print says");
	CHECK(strstr(page, wanted));
}

static const struct scenario list[] = {
	{ "complete", complete },
	{ "early", early },
	{ "current", current },
};

int main(int argc, char **argv)
{
	static char text[TABLE];

	if (argc == 2 && strcmp(argv[1], "--print") == 0) {
		table(text);
		fputs(text, stdout);
		return 0;
	}
	return run_scenarios(list, COUNT(list), argc, argv);
}
