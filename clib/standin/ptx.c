/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ptx.c: the scan of PTX text: versions, entry points with their parameters and
 * the memory they declare, variables of modules with their first contents.
 * Instructions are skipped.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"

enum { WORD = 512 };

struct scanner {
	const char *at;
	const char *end;
	char word[WORD]; /* the token just read */
	struct sd_image *image;
};

/* Reads the next token: a word with its dots, a number, or one character.
 * False at the end. */
static bool next(struct scanner *s)
{
	for (;;) {
		while (s->at < s->end && isspace((unsigned char)*s->at))
			s->at++;
		if (s->end - s->at >= 2 && s->at[0] == '/' && s->at[1] == '/') {
			const char *line = memchr(s->at, '\n', (size_t)(s->end - s->at));

			s->at = line ? line : s->end;
		} else if (s->end - s->at >= 2 && s->at[0] == '/' && s->at[1] == '*') {
			const char *close = memmem(s->at + 2, (size_t)(s->end - s->at) - 2, "*/", 2);

			s->at = close ? close + 2 : s->end;
		} else {
			break;
		}
	}
	if (s->at >= s->end)
		return false;
	size_t length = 0;
	char c = *s->at;

	if (c == '"') {
		const char *close = memchr(s->at + 1, '"', (size_t)(s->end - s->at) - 1);

		s->at = close ? close + 1 : s->end;
		strcpy(s->word, "\"");
		return true;
	}
	if (isalnum((unsigned char)c) || strchr("._$%@-", c)) {
		do {
			if (length < WORD - 1)
				s->word[length++] = *s->at;
			s->at++;
		} while (s->at < s->end && (isalnum((unsigned char)*s->at) || strchr("._$%", *s->at)));
	} else {
		s->word[length++] = c;
		s->at++;
	}
	s->word[length] = '\0';
	return true;
}

static bool is(const struct scanner *s, const char *word)
{
	return strcmp(s->word, word) == 0;
}

/* bytes of a type like .u32 or .v4.f32 (the dots of vectors come first), 0 if it is none */
static uint32_t type_bytes(const char *word)
{
	uint32_t lanes = 1;

	if (strncmp(word, ".v2", 3) == 0 || strncmp(word, ".v4", 3) == 0) {
		lanes = (uint32_t)(word[2] - '0');
		word += 3;
		if (!*word)
			return 0; /* the element type is a token of its own */
	}
	static const struct {
		const char *name;
		uint32_t bytes;
	} types[] = {
		{ ".b8", 1 },	 { ".u8", 1 },	 { ".s8", 1 },	 { ".b16", 2 },	   { ".u16", 2 },
		{ ".s16", 2 },	 { ".f16", 2 },	 { ".bf16", 2 }, { ".f16x2", 4 },  { ".b32", 4 },
		{ ".u32", 4 },	 { ".s32", 4 },	 { ".f32", 4 },	 { ".b64", 8 },	   { ".u64", 8 },
		{ ".s64", 8 },	 { ".f64", 8 },	 { ".b128", 16 }, { ".pred", 1 },  { ".texref", 8 },
		{ ".samplerref", 8 }, { ".surfref", 8 },
	};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		if (strcmp(word, types[i].name) == 0)
			return types[i].bytes * lanes;
	}
	return 0;
}

static bool number(const char *word, uint64_t *value)
{
	char *end = NULL;
	bool negative = *word == '-';

	word += negative;
	if (!isdigit((unsigned char)*word))
		return false;
	if (word[0] == '0' && (word[1] == 'f' || word[1] == 'F' || word[1] == 'd' || word[1] == 'D')) {
		bool wide = word[1] == 'd' || word[1] == 'D';

		*value = strtoull(word + 2, &end, 16); /* a float by its bits */
		if (negative)
			*value ^= wide ? 1ull << 63 : 1ull << 31;
		return !*end;
	}
	*value = strtoull(word, &end, 0);
	if (*end == 'U' || *end == 'u')
		end++;
	if (negative)
		*value = 0 - *value;
	return !*end;
}

struct declaration {
	char name[WORD];
	uint32_t element;
	uint64_t align;
	uint64_t bytes;
	bool sized; /* false for [] */
	bool managed;
};

/* Reads [.align N] .type name[dims]..., up to the token after it, which stays in
 * s->word; the first token is in s->word already. */
static bool declaration(struct scanner *s, struct declaration *out)
{
	uint32_t lanes = 1;
	uint64_t value = 0;
	bool pointed = false; /* what follows .ptr is about what it points to */

	*out = (struct declaration){ .align = 1, .sized = true };
	while (s->word[0] == '.') {
		if (is(s, ".align")) {
			if (!next(s) || !number(s->word, &value) || !value || value > 1 << 20)
				return false;
			if (!pointed)
				out->align = value;
		} else if (is(s, ".v2") || is(s, ".v4")) {
			lanes = (uint32_t)(s->word[2] - '0');
		} else if (is(s, ".attribute")) {
			do {
				if (!next(s))
					return false;
				out->managed = out->managed || is(s, ".managed");
			} while (!is(s, ")"));
		} else if (is(s, ".ptr")) {
			pointed = true;
		} else if (type_bytes(s->word)) {
			out->element = type_bytes(s->word) * lanes;
		}
		if (!next(s))
			return false;
	}
	if (!out->element || !(isalpha((unsigned char)s->word[0]) || strchr("_$%", s->word[0])))
		return false;
	strcpy(out->name, s->word);
	out->bytes = out->element;
	if (out->align < out->element)
		out->align = out->element;
	if (!next(s))
		return s->at >= s->end;
	while (is(s, "[")) {
		if (!next(s))
			return false;
		if (is(s, "]")) {
			out->sized = false;
		} else {
			if (!number(s->word, &value) || __builtin_mul_overflow(out->bytes, value, &out->bytes) ||
			    out->bytes > SD_IMAGE_VARIABLE || !next(s) || !is(s, "]"))
				return false;
		}
		if (!next(s))
			return false;
	}
	return true;
}

static uint64_t float_bits(const char *word, uint32_t bytes)
{
	double wide = strtod(word, NULL);
	float narrow = (float)wide;
	uint64_t bits = 0;

	memcpy(&bits, bytes == 4 ? (const void *)&narrow : (const void *)&wide, bytes == 4 ? 4 : 8);
	return bits;
}

/* Fills a variable from "= value" or "= { ... }"; what is no number (an address
 * of another variable) stays zero. */
static bool initializer(struct scanner *s, const struct declaration *what, struct sd_variable *variable)
{
	uint64_t place = 0;
	uint64_t value = 0;
	int depth = 0;

	variable->initial = calloc(1, variable->bytes ? variable->bytes : 1);
	if (!variable->initial)
		return false;
	while (next(s)) {
		if (is(s, "{")) {
			depth++;
		} else if (is(s, "}")) {
			depth--;
		} else if (is(s, ";")) {
			return true;
		} else if (is(s, ",")) {
			if (depth == 0) {
				return true;
			}
		} else {
			uint32_t bytes = what->element < 8 ? what->element : 8;

			if (strchr(s->word, '.') && !isalpha((unsigned char)s->word[0]))
				value = float_bits(s->word, bytes);
			else if (!number(s->word, &value))
				value = 0;
			if (place + bytes <= variable->bytes)
				memcpy(variable->initial + place, &value, bytes);
			place += bytes;
			/* generic(name)+4 and the like are one element */
			while (s->at < s->end && (*s->at == '(' || *s->at == '+' || *s->at == ')' || *s->at == ' ')) {
				bool more = *s->at != ' ';

				s->at++;
				while (more && s->at < s->end && (isalnum((unsigned char)*s->at) || *s->at == '_' || *s->at == '$'))
					s->at++;
			}
		}
	}
	return false;
}

static int add_variable(struct sd_image *image, const struct declaration *what, bool constant,
			struct sd_variable **out)
{
	/* grown by doubling at powers of two */
	if (image->variablecount >= SD_IMAGE_NAMES)
		return -EBADMSG;
	if (!(image->variablecount & (image->variablecount - 1))) {
		size_t room = image->variablecount ? image->variablecount * 2 : 1;
		struct sd_variable *more = realloc(image->variables, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		image->variables = more;
	}
	char *name = strdup(what->name);

	if (!name)
		return -ENOMEM;
	*out = &image->variables[image->variablecount++];
	**out = (struct sd_variable){
		.name = name, .bytes = what->bytes, .align = what->align, .constant = constant, .managed = what->managed,
	};
	return 0;
}

static int add_entry(struct sd_image *image, const char *word, struct sd_entrypoint **out)
{
	if (image->entrycount >= SD_IMAGE_NAMES)
		return -EBADMSG;
	if (!(image->entrycount & (image->entrycount - 1))) {
		size_t room = image->entrycount ? image->entrycount * 2 : 1;
		struct sd_entrypoint *more = realloc(image->entries, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		image->entries = more;
	}
	char *name = strdup(word);

	if (!name)
		return -ENOMEM;
	*out = &image->entries[image->entrycount++];
	**out = (struct sd_entrypoint){ .name = name };
	return 0;
}

static int parameters(struct scanner *s, struct sd_entrypoint *entry)
{
	struct declaration what;

	while (next(s) && !is(s, ")")) {
		if (is(s, ",") || is(s, ".param"))
			continue;
		if (!declaration(s, &what) || entry->count >= SD_IMAGE_PARAMETERS)
			return -EBADMSG;
		struct sd_parameter *more = realloc(entry->parameters, (entry->count + 1) * sizeof(*more));

		if (!more)
			return -ENOMEM;
		entry->parameters = more;
		uint64_t offset = (entry->bytes + what.align - 1) / what.align * what.align;

		if (offset + what.bytes > 1 << 16)
			return -EBADMSG;
		more[entry->count++] = (struct sd_parameter){ (uint32_t)offset, (uint32_t)what.bytes };
		entry->bytes = (uint32_t)(offset + what.bytes);
		if (is(s, ")"))
			return 0;
	}
	return is(s, ")") ? 0 : -EBADMSG;
}

/* Skips a body, "{" read already; sums what it declares of shared and local memory. */
static int body(struct scanner *s, struct sd_entrypoint *entry)
{
	struct declaration what;
	int depth = 1;

	while (depth && next(s)) {
		if (is(s, "{")) {
			depth++;
		} else if (is(s, "}")) {
			depth--;
		} else if (entry && (is(s, ".shared") || is(s, ".local"))) {
			bool shared = is(s, ".shared");

			if (!next(s) || !declaration(s, &what))
				return -EBADMSG;
			uint64_t bytes = what.bytes * what.sized + (shared ? entry->shared : entry->local);

			if (bytes > UINT32_MAX)
				return -EBADMSG;
			*(shared ? &entry->shared : &entry->local) = (uint32_t)bytes;
		}
	}
	return depth ? -EBADMSG : 0;
}

static int entry_point(struct scanner *s)
{
	struct sd_entrypoint *entry = NULL;
	uint64_t value = 0;

	if (!next(s))
		return -EBADMSG;
	int result = add_entry(s->image, s->word, &entry);

	if (result < 0)
		return result;
	while (next(s) && !is(s, "{") && !is(s, ";")) {
		if (is(s, "(")) {
			result = parameters(s, entry);
			if (result < 0)
				return result;
		} else if (is(s, ".maxntid") || is(s, ".reqntid")) {
			uint64_t threads = 1;

			do {
				if (!next(s) || !number(s->word, &value) || value > 1024)
					return -EBADMSG;
				threads *= value;
				while (s->at < s->end && isspace((unsigned char)*s->at))
					s->at++;
			} while (s->at < s->end && *s->at == ',' && next(s));
			entry->maxthreads = threads > 1024 ? 1024 : (uint32_t)threads;
		}
	}
	if (is(s, ";")) { /* a declaration: it is no entry point of this image */
		free(entry->name);
		free(entry->parameters);
		s->image->entrycount--;
		return 0;
	}
	return is(s, "{") ? body(s, entry) : -EBADMSG;
}

static int variable(struct scanner *s, bool external)
{
	bool constant = is(s, ".const");
	bool shared = is(s, ".shared");
	struct declaration what;

	if (!next(s))
		return -EBADMSG;
	for (;;) {
		struct sd_variable *made = NULL;

		if (!declaration(s, &what))
			return -EBADMSG;
		if (!external && !shared) {
			int result = add_variable(s->image, &what, constant, &made);

			if (result < 0)
				return result;
			if (is(s, "=") && !initializer(s, &what, made))
				return -EBADMSG;
		}
		if (!is(s, ","))
			break;
		if (!next(s))
			return -EBADMSG;
		if (s->word[0] != '.') {
			/* another name of the same type: only its size is of use */
			char name[WORD];

			strcpy(name, s->word);
			what.bytes = what.element;
			struct declaration more = what;

			strcpy(more.name, name);
			if (!external && !shared) {
				int result = add_variable(s->image, &more, constant, &made);

				if (result < 0)
					return result;
			}
			while (next(s) && !is(s, ";"))
				;
			break;
		}
	}
	while (!is(s, ";") && next(s))
		;
	return 0;
}

/* Skips a function that is no entry point: to its body's end or its semicolon. */
static int function(struct scanner *s)
{
	while (next(s)) {
		if (is(s, ";"))
			return 0;
		if (is(s, "{"))
			return body(s, NULL);
	}
	return -EBADMSG;
}

int sd_ptx_scan(struct sd_image *image, unsigned int maxversion)
{
	struct scanner s = { .at = (const char *)image->bytes, .end = (const char *)image->bytes + image->size,
			     .image = image };
	bool external = false;
	int result = 0;

	while (result == 0 && next(&s)) {
		if (is(&s, ".version")) {
			unsigned int major = 0;
			unsigned int minor = 0;
			char *end = NULL;

			if (!next(&s))
				return -EBADMSG;
			major = (unsigned int)strtoul(s.word, &end, 10);
			if (*end != '.' || major < 1 || major > 99)
				return -EBADMSG;
			minor = (unsigned int)strtoul(end + 1, &end, 10);
			if (*end || minor > 9)
				return -EBADMSG;
			if (major * 10 + minor > maxversion)
				return -ENOTSUP;
			if (image->version < major * 10 + minor)
				image->version = major * 10 + minor;
		} else if (!image->version) {
			return -EBADMSG; /* the version comes first */
		} else if (is(&s, ".target")) {
			if (next(&s) && strncmp(s.word, "sm_", 3) == 0)
				image->target = (unsigned int)strtoul(s.word + 3, NULL, 10);
		} else if (is(&s, ".extern")) {
			external = true;
			continue;
		} else if (is(&s, ".entry")) {
			result = entry_point(&s);
		} else if (is(&s, ".func")) {
			result = function(&s);
		} else if (is(&s, ".global") || is(&s, ".const") || is(&s, ".shared")) {
			result = variable(&s, external);
		} else if (is(&s, "{")) { /* a debugging section */
			result = body(&s, NULL);
		}
		if (!is(&s, ".visible") && !is(&s, ".weak") && !is(&s, ".common"))
			external = false;
	}
	return result < 0 ? result : image->version ? 0 : -EBADMSG;
}
