/* SPDX-License-Identifier: Apache-2.0 */
/* What CUDA_VISIBLE_DEVICES means inside a share, and how the driver is told. */
#include <pthread.h>
#include <unistd.h>

#include "check.h"
#include "visible.h"

#define FIRST "GPU-aa000102-0304-0506-0708-090a0b0c0d0e"
#define SECOND "GPU-ab000102-0304-0506-0708-090a0b0c0d0e"
#define THIRD "GPU-cc000102-0304-0506-0708-090a0b0c0d0e"

/* A share of this many GPUs, which begin with aa, ab and cc. */
static struct divvy_limits share_of(unsigned cards)
{
	static const uint8_t begins[] = {0xaa, 0xab, 0xcc, 0xd0, 0xd1, 0xd2, 0xd3, 0xd4};
	struct divvy_limits limits = {.cards = cards};

	for (unsigned slot = 0; slot < DIVVY_MAX_CARDS; slot++) {
		limits.card[slot].uuid[0] = begins[slot];
		for (unsigned i = 1; i < 16; i++)
			limits.card[slot].uuid[i] = (uint8_t)(i - 1);
	}
	return limits;
}

static bool shows(unsigned cards, const char *list, const char *want)
{
	struct divvy_limits limits = share_of(cards);
	char text[VISIBLE_TEXT_BYTES];
	struct visible chosen;

	visible_choose(&limits, list, &chosen);
	visible_entry(&limits, &chosen, text);
	if (strncmp(text, "CUDA_VISIBLE_DEVICES=", 21) == 0 && strcmp(text + 21, want) == 0)
		return true;
	fprintf(stderr, "%s in a share of %u: %s\n", list ? list : "nothing", cards, text);
	return false;
}

static void reads_numbers(void)
{
	CHECK(shows(1, NULL, FIRST) && shows(1, "0", FIRST) && shows(1, "1", "") && shows(1, "0,1", FIRST));
	CHECK(shows(3, NULL, FIRST "," SECOND "," THIRD) && shows(3, "2", THIRD) && shows(3, "1,0", SECOND "," FIRST));
	CHECK(shows(3, "0,1,2", FIRST "," SECOND "," THIRD) && shows(3, "3", "") && shows(3, "2,3,1", THIRD));
	CHECK(shows(3, " 1 , 2 ", SECOND "," THIRD) && shows(3, "1,", SECOND) && shows(3, ",1", ""));
	CHECK(shows(3, "01", SECOND) && shows(3, "1x", "") && shows(3, "0x1", "") && shows(3, "+1", ""));
	CHECK(shows(3, "4294967296", "") && shows(3, "18446744073709551616", "") && shows(3, "99999999999999999999999999999999999999999999999999", ""));
}

static void reads_names(void)
{
	CHECK(shows(3, SECOND, SECOND) && shows(3, "GPU-ab", SECOND) && shows(3, "gpu-AB00", SECOND));
	CHECK(shows(3, "GPU-a", "")); /* two of them */
	CHECK(shows(3, "GPU-c", THIRD) && shows(1, "GPU-a", FIRST) && shows(1, "GPU-", FIRST) && shows(3, "GPU-", ""));
	CHECK(shows(1, SECOND, "") && shows(3, SECOND "," FIRST, SECOND "," FIRST) && shows(3, SECOND "0", ""));
	CHECK(shows(3, "MIG-" SECOND, "") && shows(3, "MIG-GPU-ab/1/0", "") && shows(3, "GPU-ab,1", "") && shows(3, "GPU-ab,MIG-x", SECOND));
	CHECK(shows(3, "GPU-ab,0", SECOND "," FIRST)); /* mixed, and no contradiction */
}

static void hides(void)
{
	CHECK(shows(3, "", "") && shows(3, "-1", "") && shows(3, "0,-1,1", FIRST) && shows(3, "none", "") && shows(3, "NoDevFiles", ""));
	CHECK(shows(3, "0,0", "") && shows(3, "0,1,GPU-a", FIRST "," SECOND) && shows(3, "1,GPU-ab", "") && shows(3, "0,0,1", ""));
	CHECK(visible_hides("") && visible_hides(" ") && visible_hides("-1") && !visible_hides("7") && !visible_hides("none") && !visible_hides(NULL));
}

/* The slow, obvious twin: a list of numbers. */
static void reads_any_list_of_numbers(void)
{
	struct divvy_limits limits = share_of(DIVVY_MAX_CARDS);

	for (unsigned seed = 1; seed <= 20000; seed++) {
		unsigned draw = seed * 2654435761u, seen = 0, want = 0, length = draw % 9;
		uint8_t slots[DIVVY_MAX_CARDS + 1];
		char list[64] = "";
		struct visible chosen;
		bool over = false;

		for (unsigned i = 0; i < length; i++) {
			unsigned n = (draw >> (3 * i)) % 10;

			sprintf(list + strlen(list), "%s%u", i ? "," : "", n);
			over |= n >= DIVVY_MAX_CARDS;
			if (over)
				continue;
			if (seen & 1u << n) {
				want = 0;
				break;
			}
			seen |= 1u << n;
			slots[want++] = (uint8_t)n;
		}
		visible_choose(&limits, list, &chosen);
		CHECK(chosen.count == want && memcmp(chosen.slot, slots, want) == 0);
	}
}

static void takes_any_bytes(void)
{
	struct divvy_limits limits = share_of(DIVVY_MAX_CARDS);
	static const char alphabet[] = "0123456789abcdefGPUMIgpumi-,, /x\xff";
	char text[VISIBLE_TEXT_BYTES];
	unsigned draw = 1;

	for (unsigned seed = 0; seed < 50000; seed++) {
		char list[80];
		struct visible chosen;
		unsigned length = seed % sizeof(list);

		for (unsigned i = 0; i < length; i++) {
			draw = draw * 1664525u + 1013904223u;
			list[i] = alphabet[(draw >> 16) % (sizeof(alphabet) - 1)];
		}
		list[length] = 0;
		visible_choose(&limits, list, &chosen);
		CHECK(chosen.count <= DIVVY_MAX_CARDS);
		visible_entry(&limits, &chosen, text);
		CHECK(strlen(text) < sizeof(text));
		limits.cards = 1 + draw % (2 * DIVVY_MAX_CARDS); /* more than there can be, too */
	}
}

static bool variable_is(const char *want)
{
	const char *now = getenv("CUDA_VISIBLE_DEVICES");

	return want ? now && strcmp(now, want) == 0 : !now;
}

/* The entries of a name in the environment. */
static unsigned entries(const char *name)
{
	unsigned found = 0;

	for (char **entry = environ; entry && *entry; entry++)
		found += strncmp(*entry, name, strlen(name)) == 0;
	return found;
}

static void tells_the_driver(void)
{
	setenv("CUDA_VISIBLE_DEVICES", "0", 1);
	setenv("OTHER", "kept", 1);
	CHECK(visible_tell("CUDA_VISIBLE_DEVICES=" FIRST) && variable_is(FIRST) && strcmp(getenv("OTHER"), "kept") == 0);
	visible_told();
	CHECK(variable_is("0") && entries("CUDA_VISIBLE_DEVICES") == 1 && strcmp(getenv("OTHER"), "kept") == 0);
	/* once more without a new array, and after the program has made one */
	CHECK(visible_tell("CUDA_VISIBLE_DEVICES=" SECOND) && variable_is(SECOND));
	visible_told();
	setenv("MORE", "1", 1);
	CHECK(visible_tell("CUDA_VISIBLE_DEVICES=") && variable_is("") && getenv("MORE"));
	visible_told();
	CHECK(variable_is("0") && getenv("MORE") && getenv("PATH"));
}

static void leaves_nothing_where_nothing_was(void)
{
	unsetenv("CUDA_VISIBLE_DEVICES");
	CHECK(visible_tell("CUDA_VISIBLE_DEVICES=" FIRST) && variable_is(FIRST));
	visible_told();
	CHECK(variable_is(NULL) && getenv("PATH"));
	clearenv();
	CHECK(visible_tell("CUDA_VISIBLE_DEVICES=" FIRST) && variable_is(FIRST));
	visible_told();
	CHECK(variable_is(NULL) && (!environ || !*environ));
}

/* What others do to the environment meanwhile is not undone. */
static void keeps_what_changes_meanwhile(void)
{
	char name[16];

	setenv("CUDA_VISIBLE_DEVICES", "0", 1);
	setenv("CHANGED", "before", 1);
	setenv("GONE", "1", 1);
	CHECK(visible_tell("CUDA_VISIBLE_DEVICES=" FIRST));
	setenv("CHANGED", "after", 1);
	unsetenv("GONE");
	for (int i = 0; i < 100; i++) { /* so many that the array is made anew */
		sprintf(name, "NEW%d", i);
		setenv(name, "1", 1);
	}
	CHECK(variable_is(FIRST));
	visible_told();
	CHECK(variable_is("0") && strcmp(getenv("CHANGED"), "after") == 0 && !getenv("GONE") && getenv("NEW99"));
	CHECK(visible_tell("CUDA_VISIBLE_DEVICES=" FIRST));
	setenv("CUDA_VISIBLE_DEVICES", "1", 1); /* the very one */
	visible_told();
	CHECK(variable_is("1"));
	CHECK(visible_tell("CUDA_VISIBLE_DEVICES=" FIRST));
	unsetenv("CUDA_VISIBLE_DEVICES");
	visible_told();
	CHECK(variable_is(NULL));
	CHECK(visible_tell("CUDA_VISIBLE_DEVICES=" FIRST));
	clearenv();
	visible_told();
	CHECK(variable_is(NULL));
}

static void *tell_often(void *unused)
{
	for (int i = 0; i < 2000; i++) {
		CHECK(visible_tell("CUDA_VISIBLE_DEVICES=" FIRST));
		CHECK(variable_is(FIRST));
		visible_told();
	}
	return unused;
}

static void tells_from_many_threads(void)
{
	pthread_t thread[4];

	setenv("CUDA_VISIBLE_DEVICES", "0", 1);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&thread[i], NULL, tell_often, NULL) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(thread[i], NULL) == 0);
	CHECK(variable_is("0") && entries("CUDA_VISIBLE_DEVICES") == 1);
}

static bool enough;

#define SET 30

/* Sets variables until it is enough; each must have what it was given last. strict: at once. */
static void *set_often(void *strict)
{
	char name[16], value[SET][16];
	unsigned i = 0;

	memset(value, 0, sizeof(value));
	for (; !__atomic_load_n(&enough, __ATOMIC_RELAXED) || i < SET; i++) {
		sprintf(name, "SET%u", i % SET);
		sprintf(value[i % SET], "%u", i);
		CHECK(setenv(name, value[i % SET], 1) == 0);
		CHECK(!strict || strcmp(getenv(name), value[i % SET]) == 0);
	}
	for (i = 0; i < SET; i++) {
		sprintf(name, "SET%u", i);
		CHECK(strcmp(getenv(name), value[i]) == 0);
	}
	return NULL;
}

/* One thread tells the driver, the other has its own to do in the environment. */
static void keeps_what_another_thread_sets(const char *variable)
{
	pthread_t setter;
	char name[16];

	for (int i = 0; i < SET; i++) { /* or the other's setenv makes new arrays, which getenv is not safe from */
		sprintf(name, "SET%d", i);
		setenv(name, "", 1);
	}
	if (variable)
		setenv("CUDA_VISIBLE_DEVICES", variable, 1);
	else
		unsetenv("CUDA_VISIBLE_DEVICES");
	for (int round = 0; round < 100; round++) { /* only the first telling of a process makes an array */
		int status = 0;
		pid_t child = fork();

		if (child == 0) {
			CHECK(pthread_create(&setter, NULL, set_often, variable ? &enough : NULL) == 0);
			for (int i = 0; i < 50; i++) {
				CHECK(visible_tell("CUDA_VISIBLE_DEVICES=" FIRST) && variable_is(FIRST));
				visible_told();
				CHECK(variable_is(variable));
			}
			__atomic_store_n(&enough, true, __ATOMIC_RELAXED);
			CHECK(pthread_join(setter, NULL) == 0);
			_exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
}

static void loses_nothing_of_another_thread(void)
{
	keeps_what_another_thread_sets("0");
}

static void loses_nothing_where_it_makes_an_array(void)
{
	keeps_what_another_thread_sets(NULL);
}

static const struct scenario scenarios[] = {
	{"reads numbers", reads_numbers},
	{"reads names", reads_names},
	{"hides", hides},
	{"reads any list of numbers", reads_any_list_of_numbers},
	{"takes any bytes", takes_any_bytes},
	{"tells the driver", tells_the_driver},
	{"leaves nothing where nothing was", leaves_nothing_where_nothing_was},
	{"keeps what changes meanwhile", keeps_what_changes_meanwhile},
	{"tells from many threads", tells_from_many_threads},
	{"loses nothing of another thread", loses_nothing_of_another_thread},
	{"loses nothing where it makes an array", loses_nothing_where_it_makes_an_array},
};

RUN_SCENARIOS(scenarios)
